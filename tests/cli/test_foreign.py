"""`mapformers eval` of a model that is not ours: found, built, filled, measured; refused in a sentence otherwise."""

import importlib
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch

import mapformers as mf
from mapformers.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
[EXAMPLE] = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
EVAL = "eval --model my_module:build --task navigation --set dims=1 steps=4 grid=4 --n-sequences 4 "


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    """The current folder holds the module of the documentation."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_module.py").write_text(EXAMPLE)
    yield tmp_path
    sys.modules.pop("my_module", None)
    importlib.invalidate_caches()


@pytest.fixture
def refused(capsys):
    def refused(line, sentence):
        assert main(shlex.split(line)) == 2
        printed = capsys.readouterr()
        assert sentence in printed.err and printed.err.count("\n") == 1 and printed.out == "", printed.err
        assert "Traceback" not in printed.err

    return refused


def write(folder, text):
    (folder / "my_module.py").write_text("import torch\nfrom torch import nn\n" + text)


def measured(capsys, line):
    assert main(shlex.split(line + " --json")) == 0
    return json.loads(capsys.readouterr().out)


def module():
    return importlib.import_module("my_module")


def test_the_example_of_the_documentation_is_measured(capsys, scratch):
    assert len(EXAMPLE.splitlines()) <= 12
    torch.manual_seed(1)
    found = measured(capsys, EVAL)
    torch.manual_seed(1)
    task = mf.build_task("navigation", dims=1, steps=4, grid=4)
    model = module().build(vocab_size=task.vocab_size)
    for split in task.splits:
        ours = {name: metric.to_dict() for name, metric in mf.evaluate(model, task, split, n_sequences=4).items()}
        assert found["splits"][split] == ours
    assert found["model"] == "my_module:build on navigation" and found["step"] is None
    assert main(shlex.split(EVAL)) == 0
    assert "my_module:build on navigation" in capsys.readouterr().out


def test_weights_and_arguments_reach_the_model(capsys, scratch):
    torch.manual_seed(2)
    sys.path.insert(0, str(scratch))
    model = module().build(vocab_size=19, width=8)
    safetensors.torch.save_model(model, "mine.safetensors")
    line = f"{EVAL} --model-args width=8 --weights mine.safetensors"
    first, second = measured(capsys, line), measured(capsys, line)
    task = mf.build_task("navigation", dims=1, steps=4, grid=4)
    assert first == second
    expected = mf.evaluate(model, task, "iid", n_sequences=4)["accuracy"].to_dict()
    assert first["splits"]["iid"]["accuracy"] == expected


def test_a_run_that_trained_a_model_of_ones_own(capsys, scratch, refused):
    sys.path.insert(0, str(scratch))
    small = {"dims": 1, "steps": 4, "grid": 4, "sequences": 8, "batch_size": 4, "final_sequences": 4}
    run = mf.train("navigation", module().build(19), scale="smoke", out="own", **small)
    capsys.readouterr()
    refused("eval own", "name what builds it: --model MODULE:FUNCTION.")
    refused("eval own --model my_module:build --task dyck", "has its own task and weights; leave out --task.")
    found = measured(capsys, "eval own --model my_module:build --n-sequences 4")
    assert found["splits"] == run.result["splits"] and found["step"] == 2


WRONG = {
    "no colon": ("my_module", "--model takes MODULE:FUNCTION, such as my_module:build, not 'my_module'."),
    "a file": ("my_module.py:build", "--model takes MODULE:FUNCTION"),
    "no module": ("nowhere:build", "There is no module 'nowhere'; run the command in the folder of its file"),
    "no function": ("my_module:make", "my_module has no function 'make'; name the function that builds the model."),
    "no call": ("my_module:NUMBER", "my_module:NUMBER is not a function but int"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_names(scratch, refused, case):
    name, sentence = WRONG[case]
    write(scratch, "NUMBER = 3\n")
    refused(EVAL.replace("my_module:build", name), sentence)


MODULES = {
    "a syntax error": ("def build(:\n", "my_module cannot be imported: SyntaxError"),
    "an error at import": ("1 / 0\n", "my_module cannot be imported: ZeroDivisionError: division by zero."),
    "an absent dependency": ("import nothing_of_that_name\n", "There is no module 'nothing_of_that_name'"),
    "an error in build": ("def build(): raise KeyError('x')\n", "could not build a model: KeyError: 'x'"),
    "an argument too many": ("def build(a): return a\n", "could not build a model: TypeError"),
    "no model": ("def build(): return None\n", "must return a module from tokens to logits, not NoneType."),
    "no logits": ("def build(): return lambda t: None\n", "tokens (1, 7) with logits (1, 7, 19), not NoneType."),
    "another shape": ("def build(): return lambda t: torch.zeros(1, 19)\n", "logits (1, 7, 19), not (1, 19)."),
    "too few tokens": (
        "def build(): return nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5))\n",
        "cannot read tokens (1, 7) of iid, with ids 0 to 18: IndexError",
    ),
    "too few answers": (
        "def build(): return nn.Sequential(nn.Embedding(19, 4), nn.Linear(4, 5))\n",
        "with logits (1, 7, 19), not (1, 7, 5).",
    ),
    "too short": (
        "def read(t):\n  assert t.shape[1] < 8, 'too long'\n  return torch.zeros(*t.shape, 19)\n\n"
        "def build(): return read\n",
        "of ood-sparse, with ids 0 to 18: AssertionError: too long.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MODULES)
def test_wrong_modules(scratch, refused, case):
    text, sentence = MODULES[case]
    write(scratch, text)
    refused(EVAL, sentence)


def test_weights_are_safetensors_of_that_model(scratch, refused):
    torch.save({"a": torch.zeros(1)}, "pickle.pt")
    safetensors.torch.save_file({"0.weight": torch.zeros(19, 16)}, "part.safetensors")
    sys.path.insert(0, str(scratch))
    state = module().build(19).state_dict()
    safetensors.torch.save_file({**state, "more": torch.zeros(1)}, "more.safetensors")
    safetensors.torch.save_file({name: torch.zeros(3) for name in state}, "shapes.safetensors")
    refused(f"{EVAL} --weights pickle.pt", "pickle.pt is not a whole safetensors file; write it with safetensors")
    refused(f"{EVAL} --weights nowhere.safetensors", "There is no file nowhere.safetensors")
    refused(f"{EVAL} --weights part.safetensors", "part.safetensors lacks ")
    refused(f"{EVAL} --weights more.safetensors", "The model has no place for more; give the weights of this model.")
    refused(f"{EVAL} --weights shapes.safetensors", "(3,) in shapes.safetensors and (19, 16) in the model")
