"""An optimiser's file whose checksum is right and whose content is not: one sentence, before any step is taken."""

import json
import pickle

import pytest
import safetensors.torch
import torch

import mapformers as mf
from mapformers.cli.main import main
from mapformers.training.train import resume_run as resume
from runs import Trap, assert_same_run, copy, edit_manifest, newest, quiet, run, sha256

MEAN, SQUARE, STEP = (f"head.weight.{key}" for key in ("exp_avg", "exp_avg_sq", "step"))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run of twelve steps, and the same at its checkpoint of step 10."""
    place = tmp_path_factory.mktemp("stopped")
    whole = run(place / "whole")
    half = copy(whole, place / "half")
    (half / "result.json").unlink()
    for file in newest(half).iterdir():
        file.unlink()
    newest(half).rmdir()
    return whole, half


def rewrite(folder, content):
    """Put another optimiser file into the newest checkpoint, with its checksum."""
    path = newest(folder)
    (path / "optimizer.safetensors").write_bytes(content)
    edit_manifest(folder, lambda facts: facts["sha256"].update({"optimizer.safetensors": sha256(content)}))


def tensors_of(folder):
    return safetensors.torch.load_file(newest(folder) / "optimizer.safetensors")


def swap(tensors, one, other):
    tensors[one], tensors[other] = tensors[other], tensors[one]


WRONG = {
    "another shape": (lambda t: t.update({MEAN: torch.zeros(2, 2)}), "head.weight.exp_avg is float32 of shape (2, 2)"),
    "transposed": (lambda t: t.update({MEAN: t[MEAN].T.contiguous()}), "but the parameter is float32 of shape (21"),
    "swapped": (lambda t: swap(t, MEAN, SQUARE), "head.weight.exp_avg_sq is a mean of squares, but holds negative"),
    "of two parameters": (lambda t: swap(t, MEAN, "norm.gain.exp_avg"), "is float32 of shape (16,), but the"),
    "missing": (lambda t: t.pop(MEAN), "head.weight.exp_avg is missing"),
    "all missing": (lambda t: t.clear(), ".exp_avg is missing"),
    "one too many": (lambda t: t.update({"tail.exp_avg": torch.zeros(3)}), "tail.exp_avg belongs to no parameter"),
    "halved": (lambda t: t.update({SQUARE: t[SQUARE].half()}), "head.weight.exp_avg_sq is float16 of shape"),
    "whole numbers": (lambda t: t.update({SQUARE: t[SQUARE].int()}), "head.weight.exp_avg_sq is int32 of shape"),
    "not a number": (lambda t: t[MEAN].fill_(torch.nan), "head.weight.exp_avg holds NaN"),
    "a later step": (lambda t: t[STEP].fill_(11), "head.weight.step is no number of steps up to 10"),
    "a broken step": (lambda t: t[STEP].fill_(9.5), "head.weight.step is no number of steps up to 10"),
    "many steps": (lambda t: t.update({STEP: torch.ones(3)}), "head.weight.step is no number of steps up to 10"),
    "all of an earlier step": (
        lambda t: [tensor.fill_(9) for name, tensor in t.items() if name.endswith(".step")],
        "its moments are not those of step 10",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_content_is_one_sentence(stopped, tmp_path, capsys, case):
    change, sentence = WRONG[case]
    folder = copy(stopped[1], tmp_path / "run")
    tensors = tensors_of(folder)
    change(tensors)
    rewrite(folder, safetensors.torch.save(tensors))
    capsys.readouterr()
    assert main(["train", "--resume", "--out", str(folder)]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"mapformers: {newest(folder)}/optimizer.safetensors does not fit the model: "), told
    assert sentence in told and told.count("\n") == 1 and "remove that folder" in told


@pytest.mark.parametrize("content", [pickle.dumps(Trap()), b"", b"\x00" * 64, b"PK\x03\x04" * 40], ids=str)
def test_a_pickle_is_refused(stopped, tmp_path, content):
    folder = copy(stopped[1], tmp_path / "run")
    rewrite(folder, content)
    with pytest.raises(mf.UserError, match=r"optimizer\.safetensors does not fit the model: "):
        resume(folder, quiet())


@pytest.mark.parametrize("content", [pickle.dumps(Trap()), b""], ids=str)
def test_weights_that_are_a_pickle_are_refused_too(stopped, tmp_path, content):
    folder = copy(stopped[1], tmp_path / "run")
    (newest(folder) / "weights.safetensors").write_bytes(content)
    edit_manifest(folder, lambda facts: facts["sha256"].update({"weights.safetensors": sha256(content)}))
    with pytest.raises(mf.UserError, match="do not fit the model"):
        resume(folder, quiet())


@pytest.mark.parametrize(
    "facts",
    [{"step": 5}, {"step": True}, {"step": -10}, {"seconds": -1}, {"seconds": 10**400}, {"untouched": 3}],
    ids=str,
)
def test_a_manifest_of_another_step_is_a_damaged_checkpoint(stopped, tmp_path, facts):
    """The run then goes on from the one before it, and says so."""
    folder, console = copy(stopped[0], tmp_path / "run"), quiet()
    edit_manifest(folder, lambda told: told.update(facts))
    resume(folder, console)
    assert "step-00000012 is damaged: manifest.json is not what was written" in console.file.getvalue()
    assert_same_run(folder, stopped[0])


def test_a_file_of_the_version_before_is_read_and_checked(stopped, tmp_path):
    """Then moments were counted in the optimiser's order instead of named."""
    whole, half = stopped
    names = list(dict.fromkeys(name.rpartition(".")[0] for name in in_order(half)))
    old = {f"{names.index(name.rpartition('.')[0])}.{name.rpartition('.')[2]}": t for name, t in in_order(half).items()}
    folder = copy(half, tmp_path / "run")
    rewrite(folder, safetensors.torch.save(old))
    resume(folder, quiet())
    assert_same_run(folder, whole)

    folder = copy(half, tmp_path / "wrong")
    rewrite(folder, safetensors.torch.save({name: t for name, t in old.items() if name != "3.exp_avg"}))
    with pytest.raises(mf.UserError, match=f"{names[3]}.exp_avg is missing"):
        resume(folder, quiet())


def in_order(folder):
    """The moments in the order of the optimiser: matrices first."""
    tensors, run = tensors_of(folder), mf.load(folder)
    groups = mf.training.build_optimizer(run.model, run.config.train).param_groups
    known = {parameter: name for name, parameter in run.model.named_parameters()}
    names = [known[parameter] for group in groups for parameter in group["params"]]
    return {f"{name}.{key}": tensors[f"{name}.{key}"] for name in names for key in ("step", "exp_avg", "exp_avg_sq")}


class HalfUsed(torch.nn.Module):
    """A module of one's own with a parameter that has no gradient."""

    def __init__(self, vocab_size):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.idle = torch.nn.Embedding(vocab_size, vocab_size), torch.nn.Linear(3, 3)

    def forward(self, tokens):
        return self.embedding(tokens)


def test_a_parameter_without_a_gradient_has_no_moments_and_needs_none(tmp_path, monkeypatch):
    task = mf.build_task("navigation", dims=1)
    small = {"dims": 1, "steps": 8, "grid": 4, "sequences": 16, "batch_size": 4, "checkpoint_every": 2}
    given = {"scale": "smoke", "final_sequences": 4, "eval_sequences": 4, "console": quiet(), **small}
    whole = mf.train("navigation", HalfUsed(task.vocab_size), out=tmp_path / "run", **given)
    assert json.loads((newest(tmp_path / "run") / "manifest.json").read_text())["untouched"] == [
        "idle.weight",
        "idle.bias",
    ]
    (tmp_path / "run/result.json").unlink()
    again = mf.resume(tmp_path / "run", HalfUsed(task.vocab_size), console=quiet())
    assert again.result["splits"] == whole.result["splits"]
