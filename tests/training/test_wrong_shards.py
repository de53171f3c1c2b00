"""Shards that are damaged, or whose checksums are right and whose content is not; nothing is ever unpickled."""

import json
import pickle
import shutil

import pytest
import safetensors
import safetensors.torch
import torch

import mapformers as mf
from mapformers.cli.main import main
from mapformers.runs import checkpoint
from runs import (
    Trap,
    command,
    copy,
    edit_manifest,
    ended,
    newest,
    run,
    run_in_two_processes,
    sha256,
    splits,
    start_two,
)

OFFSETS = "DCP_SHARDING_INFO"
FIRST, SECOND = (f"shard-0000{number}-model-00001-of-00001.safetensors" for number in (1, 2))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run of two processes that ended at the checkpoint of step 10, and beside it the same at its end."""
    place = tmp_path_factory.mktemp("stopped")
    whole = run_in_two_processes(place / "whole", sharding="full")
    folder = copy(whole, place / "run")
    (folder / "result.json").unlink()
    shutil.rmtree(newest(folder))
    return folder


@pytest.fixture
def folder(stopped, tmp_path):
    return copy(stopped, tmp_path / "run")


def resume(folder):
    return main(["train", "--resume", "--out", str(folder)])


def test_one_process_reads_them_and_goes_on(folder, stopped):
    assert newest(folder).name == "step-00000010"
    assert resume(folder) == 0
    assert splits(folder) == splits(stopped.with_name("whole"))


def cut(file):
    file.write_bytes(file.read_bytes()[:-1])


def flip_a_bit(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def remove(file):
    file.unlink()


def add_another(file):
    shutil.copy(file, file.with_name("shard-00003-model-00001-of-00001.safetensors"))


@pytest.mark.parametrize("damage", [cut, flip_a_bit, remove, add_another])
@pytest.mark.parametrize("place", ["weights", "optimizer"])
def test_damage_is_named(folder, place, damage):
    damage(newest(folder) / place / SECOND)
    path, complaints = checkpoint.latest(folder / "checkpoints")
    assert path is None
    assert len(complaints) == 1 and str(newest(folder)) in complaints[0] and "damaged" in complaints[0]


def test_the_checkpoint_before_a_damaged_one_is_used(stopped, tmp_path):
    folder = copy(stopped.with_name("whole"), tmp_path / "run")
    assert mf.load(folder).step == 12
    flip_a_bit(newest(folder) / "optimizer" / SECOND)
    assert mf.load(folder).step == 10


def test_all_shards_missing_is_damage_too(folder):
    shutil.rmtree(newest(folder) / "optimizer")
    (newest(folder) / "optimizer").mkdir()
    edit_manifest(folder, lambda told: [told["sha256"].pop(f"optimizer/{name}") for name in (FIRST, SECOND)])
    assert checkpoint.latest(folder / "checkpoints")[0] is None


def rewrite(folder, place, change, name=SECOND):
    """Change the tensors and offsets of a shard, and put its checksum right."""
    file = newest(folder) / place / name
    with safetensors.safe_open(file, framework="pt") as opened:
        tensors, told = {key: opened.get_tensor(key) for key in opened.keys()}, dict(opened.metadata())  # noqa: SIM118
    offsets = json.loads(told[OFFSETS])
    change(tensors, offsets)
    replace(folder, place, safetensors.torch.save(tensors, {**told, OFFSETS: json.dumps(offsets)}), name)


def replace(folder, place, content, name=SECOND):
    (newest(folder) / place / name).write_bytes(content)
    edit_manifest(folder, lambda facts: facts["sha256"].update({f"{place}/{name}": sha256(content)}))


HEAD = "head.weight"
MEAN, SQUARE = f"{HEAD}.exp_avg", f"{HEAD}.exp_avg_sq"
WRONG = {
    "weights of another type": ("weights", lambda t, _: t.update({HEAD: t[HEAD].half()}), f"{HEAD} is float16 of"),
    "a gap": ("weights", lambda t, o: o[HEAD]["saved_offsets"].__setitem__(0, 12), f"the parts of {HEAD} do not make"),
    "an overlap": ("weights", lambda t, o: o[HEAD]["saved_offsets"].__setitem__(0, 9), "do not make a whole"),
    "no offset": ("weights", lambda t, o: o.pop(HEAD), f"of its config.json: '{HEAD}'"),
    "an offset that is none": (
        "weights",
        lambda t, o: o[HEAD].update(saved_offsets=["a", {}]),
        "of its config.json: unsupported operand",
    ),
    "an offset below zero": (
        "weights",
        lambda t, o: o[HEAD].update(saved_offsets=[-3, 0]),
        f"the parts of {HEAD} do not make a whole",
    ),
    "too few rows": ("weights", lambda t, o: t.update({HEAD: t[HEAD][:-1].clone()}), f"{HEAD} is float32 of shape (20"),
    "a weight too many": (
        "weights",
        lambda t, o: (t.update(tail=torch.zeros(2)), o.update(tail={"saved_offsets": [0]})),
        "tail is no tensor of the model",
    ),
    "moments of another shape": ("optimizer", lambda t, o: t.update({MEAN: t[MEAN][:-1].clone()}), f"{MEAN} is float"),
    "negative squares": ("optimizer", lambda t, o: t[SQUARE].fill_(-1.0), f"{SQUARE} is a mean of squares"),
    "not a number": ("optimizer", lambda t, o: t[MEAN].fill_(torch.nan), f"{MEAN} holds NaN"),
    "moments too many": (
        "optimizer",
        lambda t, o: (t.update({"tail.exp_avg": torch.zeros(2)}), o.update({"tail.exp_avg": {"saved_offsets": [0]}})),
        "tail.exp_avg belongs to no parameter",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_content_is_one_sentence(folder, capsys, case):
    place, change, sentence = WRONG[case]
    rewrite(folder, place, change)
    capsys.readouterr()
    assert resume(folder) == 2
    told = capsys.readouterr().err
    assert told.startswith("mapformers: ") and told.count("\n") == 1, told
    assert sentence in told and str(newest(folder)) in told
    assert ("do not fit the model" if place == "weights" else "does not fit the model") in told


@pytest.mark.parametrize("place", ["weights", "optimizer"])
@pytest.mark.parametrize("content", [pickle.dumps(Trap()), b"", b"\x00" * 64], ids=["pickle", "nothing", "zeros"])
def test_a_pickle_is_refused(folder, capsys, place, content):
    replace(folder, place, content)
    assert resume(folder) == 2
    told = capsys.readouterr().err
    assert told.count("mapformers: ") == 1 and "not fit the model" in told


def test_the_index_that_the_library_would_unpickle_is_never_read(folder):
    """`torch.distributed.checkpoint` keeps one in its own format; here it is a file like any other that is listed."""
    for place in ("weights", "optimizer"):
        replace(folder, place, pickle.dumps(Trap()), ".metadata")
    assert resume(folder) == 0


def test_a_shared_run_refuses_wrong_moments_on_all_processes(folder):
    """Only the second process reads the part that is wrong."""
    rewrite(folder, "optimizer", lambda t, o: t[MEAN].fill_(torch.nan))
    log = folder.with_suffix(".log")
    both = start_two(command(out=folder, sharding="full", resume=True), log)
    assert [ended(process) for process in both] == [2, 2]
    assert log.read_text().count(f"optimizer does not fit the model: {MEAN} holds NaN; remove that folder") == 2


def test_weights_of_another_model_are_refused(folder, tmp_path):
    other = run(tmp_path / "other", d_model=8)
    shutil.rmtree(other / "checkpoints")
    shutil.copytree(folder / "checkpoints", other / "checkpoints")
    with pytest.raises(mf.UserError, match=r"The weights in .* do not fit the model of its config.json: "):
        mf.load(other)
