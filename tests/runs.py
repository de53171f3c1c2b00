"""What the tests of training share: tiny runs, here or in processes of their own, and how two of them compare."""

import contextlib
import hashlib
import io
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import safetensors
import safetensors.torch
import torch
from rich.console import Console
from torch import Tensor

from mapformers.cli.main import main
from mapformers.tasks import Batch
from mapformers.tasks.navigation import Navigation, World

TINY: dict[str, Any] = {
    "task": "navigation", "model": "mapwm", "scale": "smoke", "steps": 8, "grid": 4, "d_model": 16, "sequences": 48,
    "batch_size": 4, "warmup_steps": 2, "zero_mean_steps": 0, "log_every": 1, "eval_every": 4, "eval_sequences": 8,
    "final_sequences": 8, "checkpoint_every": 5, "device": "cpu",
}  # fmt: skip
TIMES = {"sequences_per_second", "seconds"}  # the fields that may differ between two runs of one config
CHANGES = ("open", "os.mkdir", "os.fsync", "os.rename", "os.remove", "os.rmdir")

# A process of this kind is forked from a server that has loaded torch but never used it: it starts at once.
SERVER = multiprocessing.get_context("forkserver")
PRELOADED = ("cli.train", "cli.lm_data", "layers.mapwm", "runs.shards")
SERVER.set_forkserver_preload([*(f"mapformers.{name}" for name in PRELOADED), "pytest", "safetensors.torch"])


def quiet() -> Console:
    return Console(file=io.StringIO())


def command(**settings: Any) -> list[str]:
    """`train` with the settings of a tiny run; True is a switch."""
    line = ["train"]
    for name, value in (TINY | settings).items():
        line += [f"--{name.replace('_', '-')}"] if value is True else [f"--{name.replace('_', '-')}", str(value)]
    return line


def run(folder: Path, **settings: Any) -> Path:
    """A run in this process, to its end."""
    assert main(command(out=folder, **settings)) == 0
    return folder


def start(
    line: Sequence[str], log: Path, environment: Mapping[str, str] | None = None, prepare: Callable[[], object] = int
) -> BaseProcess:
    """`mapformers` in a process of its own, which begins by calling ``prepare``; what it prints is in ``log``."""
    process = SERVER.Process(target=_command_line, args=(line, log, environment or {}, prepare), daemon=True)
    process.start()
    return process


def _command_line(
    line: Sequence[str], log: Path, environment: Mapping[str, str], prepare: Callable[[], object]
) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)
    prepare()
    with log.open("a", buffering=1) as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        sys.exit(main(line))


def ended(process: BaseProcess) -> int | None:
    process.join(120)
    return process.exitcode


def kill(process: BaseProcess) -> None:
    """End a process as a power cut would; it must have been running."""
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    assert ended(process) == -signal.SIGKILL


def wait_for_step(process: BaseProcess | subprocess.Popen[bytes], folder: Path, step: int) -> None:
    """Until metrics.jsonl has a line for a step."""
    mark, file = f'{{"step": {step}, ', folder / "metrics.jsonl"
    while not (file.exists() and mark in file.read_text()):
        alive = process.poll() is None if isinstance(process, subprocess.Popen) else process.is_alive()
        assert alive, f"it ended before step {step}"
        time.sleep(0.001)


def die_before(operation: int, folder: Path, note: Path, kinds: Sequence[str] = CHANGES) -> None:
    """Let this process kill itself just before its n-th change to a file or folder within ``folder``."""
    count, flush = itertools.count(1), os.fsync

    def watch(event: str, args: tuple[Any, ...]) -> None:
        if event not in kinds or (event == "open" and not set(args[1] or "") & set("wa")):
            return
        path = str(args[0])
        if (not Path(path).is_absolute() or path.startswith(str(folder))) and next(count) == operation:
            note.write_text(f"{event} {path}")
            os.kill(os.getpid(), signal.SIGKILL)

    def flush_aloud(file: int) -> None:
        sys.audit("os.fsync", "")
        flush(file)

    os.fsync = flush_aloud
    sys.addaudithook(watch)


def start_two(line: Sequence[str], log: Path, prepare: Callable[[], object] = int) -> list[BaseProcess]:
    """Two processes that share a run, told of each other as `torchrun` tells them."""
    count = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    shared = count | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [start(line, log, shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, prepare) for rank in range(2)]


def run_in_two_processes(folder: Path, prepare: Callable[[], object] = int, **settings: Any) -> Path:
    log = folder.with_suffix(".log")
    both = start_two(command(out=folder, **settings), log, prepare)
    assert [ended(process) for process in both] == [0, 0], log.read_text()
    return folder


def learn_from_some(share: Callable[[Tensor], Tensor]) -> None:
    """From now on, learn only from the first targets of each row: a share that its first random number decides."""
    draw = Navigation.draw

    def some(self: Navigation, uniform: Tensor, world: World) -> Batch:
        batch = draw(self, uniform, world)
        length = batch.targets.shape[1]
        return replace(batch, loss_mask=torch.arange(length) < share(uniform[:, :1]) * length)

    Navigation.draw = some


def launch(launcher: Sequence[str], line: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """`python -m launcher -m mapformers line`, as a person would start it."""
    words = [sys.executable, "-m", *launcher, "-m", "mapformers", *line]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)


def torchrun(line: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """`torchrun` with two processes of `mapformers`; what they and it print is in ``log``."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    words = [*launcher, "--master-port", str(free_port()), "-m", "mapformers", *line]
    with log.open("ab") as file:
        return subprocess.Popen(words, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=file, stderr=file)


def workers(launcher: subprocess.Popen[bytes]) -> list[int]:
    """The processes that a launcher has started, by their rank."""
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    told = {pid: Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") for pid in children}
    ranks = {int(word[5:]): int(pid) for pid, words in told.items() for word in words if word.startswith(b"RANK=")}
    return [ranks[rank] for rank in sorted(ranks)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def newest(folder: Path) -> Path:
    return max(folder.glob("checkpoints/step-*"))


def tensor_files(folder: Path) -> list[Path]:
    """Weights and optimiser of the newest checkpoint, each as one file or as shards."""
    return sorted(newest(folder).rglob("*.safetensors"))


def weights(folder: Path) -> dict[str, Tensor]:
    return safetensors.torch.load_file(newest(folder) / "weights.safetensors")


def metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without the time they took."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in TIMES} for line in lines]


def losses(folder: Path) -> list[float]:
    return [line["loss"] for line in metrics(folder) if "loss" in line]


def splits(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "result.json").read_text())["splits"]


def assert_same_run(one: Path, other: Path) -> None:
    """Weights, optimiser and every figure are the same to the last bit."""
    assert newest(one).name == newest(other).name
    for name, tensor in weights(one).items():
        assert torch.equal(tensor, weights(other)[name]), name
    ours, theirs = ({str(file.relative_to(newest(f))): file for file in tensor_files(f)} for f in (one, other))
    assert ours.keys() == theirs.keys()
    for name, file in ours.items():
        if "shard" in name:  # the words of its header come in any order
            assert_same_shard(file, theirs[name])
        else:
            assert file.read_bytes() == theirs[name].read_bytes(), name
    assert metrics(one) == metrics(other)
    assert splits(one) == splits(other)


def assert_same_shard(one: Path, other: Path) -> None:
    with safetensors.safe_open(one, "pt") as ours, safetensors.safe_open(other, "pt") as theirs:
        assert ours.metadata() == theirs.metadata()
        assert set(ours.keys()) == set(theirs.keys())
        for name in ours.keys():  # noqa: SIM118
            assert torch.equal(ours.get_tensor(name), theirs.get_tensor(name)), name


def largest_difference(one: Path, other: Path) -> float:
    """Over all weights of two runs, of the same names and sizes."""
    ours, theirs = weights(one), weights(other)
    assert {name: t.shape for name, t in ours.items()} == {name: t.shape for name, t in theirs.items()}
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what the newest checkpoint says of itself."""
    file = newest(folder) / "manifest.json"
    facts = json.loads(file.read_text())
    change(facts)
    file.write_text(json.dumps(facts))


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Trap:
    """What a pickle could do."""

    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("it was unpickled",)


def copy(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to
