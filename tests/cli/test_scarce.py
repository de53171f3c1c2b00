"""No memory, no room on the disk: one sentence that says of what and where, exit code 2, and nothing left behind."""

import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from mapformers.cli.main import main
from mapformers.errors import in_bytes, memory_asked_for
from mapformers.files import write_atomically
from mapformers.runs import checkpoint
from runs import command, ended, start

BEYOND = 2**48  # bytes that no process can have an address for, however much the system lends


def caught(function, *args):
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        function(*args)
    return caught.value


def test_what_torch_and_numpy_say_when_memory_runs_out():
    assert memory_asked_for(caught(torch.empty, BEYOND // 4)) == "256.0 TiB"
    assert memory_asked_for(caught(np.empty, BEYOND // 8)) == "256. TiB"
    assert memory_asked_for(caught(torch.empty, 2**62)) is not None
    assert memory_asked_for(caught(bytearray, BEYOND)) == "more"
    cuda = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 15.77 GiB of which"
    assert memory_asked_for(torch.OutOfMemoryError(cuda)) == "20.00 GiB"
    assert memory_asked_for(torch.OutOfMemoryError("CUDA error: out of memory")) == "more"
    assert memory_asked_for(RuntimeError("The size of tensor a (3) must match")) is None
    assert memory_asked_for(ValueError("out of memory. Tried to allocate 1 GiB")) is None
    assert [in_bytes(size) for size in (0, 1023, 1024, 1536, 2**60)] == [
        "0 bytes", "1023 bytes", "1.0 KiB", "1.5 KiB", "1.0 EiB"
    ]  # fmt: skip


def test_training_without_memory_is_one_sentence(tmp_path, capsys):
    assert main(command(out=tmp_path / "run", mlp_ratio=2**43)) == 2  # an MLP of petabytes
    told = capsys.readouterr().err
    assert told == (
        "mapformers: There is not enough memory: 8.0 PiB was asked for at once; lower --batch-size, raise "
        "--accumulate, or choose shorter sequences or a smaller model.\n"
    )
    assert not (tmp_path / "run").exists()


def test_any_command_without_memory_is_one_sentence(monkeypatch, capsys):
    monkeypatch.setattr("mapformers.cli.listing.main", lambda args: torch.empty(BEYOND).numel())
    assert main(["list"]) == 2
    told = "mapformers: There is not enough memory: 1.0 PiB was asked for at once; choose shorter sequences.\n"
    assert capsys.readouterr().err == told


def test_another_error_is_still_an_error(monkeypatch):
    def broken(args):
        raise RuntimeError("a defect")

    monkeypatch.setattr("mapformers.cli.listing.main", broken)
    with pytest.raises(RuntimeError, match="a defect"):
        main(["list"])


@pytest.fixture
def small_files():
    """No file of this process may grow beyond 64 KiB: the system refuses, as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_files")
def test_a_file_that_cannot_be_written_is_named_and_leaves_no_part(tmp_path):
    (tmp_path / "mine").write_bytes(b"as it was")
    with pytest.raises(OSError) as refused:
        write_atomically(tmp_path / "mine", bytes(2**17))
    assert refused.value.filename == str(tmp_path / "mine")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"mine": b"as it was"}


@pytest.mark.usefixtures("small_files")
def test_a_checkpoint_that_cannot_be_written_leaves_no_hidden_folder(tmp_path):
    checkpoint.save(tmp_path, 1, torch.nn.Linear(4, 4), None, {"seconds": 0})
    with pytest.raises(OSError):
        checkpoint.save(tmp_path, 2, torch.nn.Linear(200, 200), None, {"seconds": 0})
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, resource.RLIM_INFINITY))


def test_a_run_that_has_no_room_for_a_checkpoint_names_it(tmp_path):
    folder, log = tmp_path / "run", tmp_path / "log"
    assert ended(start(command(out=folder, d_model=64), log, prepare=limit_files)) == 2
    part = folder / "checkpoints/.step-00000005.part/weights.safetensors"
    assert log.read_text().endswith(f"mapformers: Cannot use {part}: file too large; make room there.\n")
    assert sorted(path.name for path in folder.rglob("*") if ".part" in path.name) == []


FULL = "mount -t tmpfs -o size=512k none {place}; cd {place}; {python} -m mapformers {line}; ls -A run/checkpoints"


def test_a_full_disk(tmp_path):
    """A file system of 512 KiB, where the system lets a user mount one of his own."""
    place = tmp_path / "small"
    place.mkdir()
    line = " ".join(command(out="run", d_model=64, checkpoint_every=2))
    script = FULL.format(place=place, python=sys.executable, line=line)
    if shutil.which("unshare") is None or not can_mount(place):
        pytest.skip("this system lets no user mount a file system")
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("mapformers: Cannot use run/checkpoints/.step-0000000"), done.stderr
    assert done.stderr.endswith(": no space left on device; make room there.\n")
    assert ".part" not in done.stdout


def can_mount(place: Path) -> bool:
    words = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", str(place)]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0
