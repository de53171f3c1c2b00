"""Options that several commands share: --threads, --json; seeds by name; what resuming refuses; where a map begins."""

import json
import shlex

import numpy as np
import pytest
import torch

import mapformers as mf
from mapformers.benchmarks.startup import Startup
from mapformers.cli import bench, demo
from mapformers.cli.main import main
from mapformers.cli.rows import parse_seeds
from mapformers.reports import walk_figures
from mapformers.seeding import generator
from runs import TINY, command

SMALL = {"sequences": 16, "eval_sequences": 4, "final_sequences": 4}


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys):
    """Run a command line that must succeed; the JSON that it prints, alone on standard output."""

    def run(line):
        assert main(shlex.split(line)) == 0
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "mine"
    assert main(command(out=folder, **SMALL)) == 0
    return folder


def threads_of(folder):
    return json.loads((folder / "result.json").read_text())["hardware"]["threads"]


def test_threads_are_used_and_recorded_and_no_part_of_the_config(scratch, trained):
    before = torch.get_num_threads()
    assert main(command(out="two", threads=2, **SMALL)) == 0
    assert threads_of(scratch / "two") == 2 != threads_of(trained) == before == torch.get_num_threads()
    assert (scratch / "two/config.json").read_text() == (trained / "config.json").read_text()
    assert main(["train", "--resume", "--out", "two", "--threads", "1"]) == 0


@pytest.mark.parametrize(
    "line", ["eval {} --n-sequences 2 --threads 2", "demo --scale smoke", "bench startup --threads 2"]
)
def test_other_commands_take_threads(monkeypatch, capsys, trained, line):
    seen = []

    def note(*args, **kwargs):
        seen.append(torch.get_num_threads())
        raise mf.UserError("enough.")

    monkeypatch.setattr("mapformers.cli.evaluate.evaluate_splits", note)
    monkeypatch.setattr(demo, "start_run", note)
    monkeypatch.setattr(bench, "startup", note)
    assert main(shlex.split(line.format(trained))) == 2
    assert seen == [2] and torch.get_num_threads() == 1, "the demo has two on every machine"


def test_eval_as_json(run, trained):
    found = run(f"eval {trained} --n-sequences 4 --splits iid ood-dense --json")
    assert list(found) == ["model", "step", "task", "settings", "n_sequences", "seed", "splits", "players"]
    result = json.loads((trained / "result.json").read_text())
    assert found["splits"] == {split: result["splits"][split] for split in ("iid", "ood-dense")}
    assert (found["task"], found["step"], found["settings"]["grid"]) == ("navigation", 4, TINY["grid"])
    assert found["players"]["best-lag"]["n_sequences"] == 4
    assert list(found["players"]["best-lag"]["splits"]) == ["iid", "ood-dense"]


def test_list_as_json(run):
    found = run("list --json")
    assert [entry["name"] for entry in found["models"]] == list(mf.list_models())
    assert all(entry["summary"] for kind in found.values() for entry in kind)
    assert run("list tasks --json") == {"tasks": found["tasks"]}


def test_bench_as_json(run, scratch, monkeypatch):
    monkeypatch.setattr(bench, "startup", lambda repeats: [Startup("nothing", 0.5)])
    found = run("bench startup --json --write kept")
    assert found == json.loads((scratch / "kept/bench-startup.json").read_text())
    assert found["rows"] == [{"what": "nothing", "seconds": 0.5}]
    assert run("report startup --results kept --json") == {"benchmark": "startup", "record": found}


def test_seeds_can_be_listed():
    assert parse_seeds(["0,3,7"]) == parse_seeds(["0", "3", "7"]) == [0, 3, 7]
    assert parse_seeds(["100-102,5"]) == [100, 101, 102, 5] and parse_seeds(["3"]) == [0, 1, 2]
    for words in (["0,,3"], ["3,"], ["a,b"]):
        with pytest.raises(mf.UserError, match="--seeds takes a whole number"):
            parse_seeds(words)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("--scale smoke", "--batch-size 4 (not 16)"),
        ("--scale smoke --rank 1 --batch-size 4", "--rank 2 (not 1)"),
        ("--scale smoke --n-layers 2", "--n-layers 1 (not 2)"),
    ],
)
def test_resuming_names_the_setting_that_differs(capsys, trained, given, named):
    others = {
        name: value for name, value in (TINY | SMALL).items() if name not in ("batch_size", "scale", "task", "model")
    }
    rest = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in others.items())
    line = f"train --task navigation --model mapwm --resume --out {trained} {rest} {given}"
    assert main(shlex.split(line)) == 2
    printed = capsys.readouterr().err
    assert f"was started with {named}" in printed and f"--resume --out {trained} alone" in printed
    assert "without --scale" not in printed


@pytest.mark.parametrize("edges", ["walls", "torus"])
def test_the_start_of_the_picture_is_where_the_walk_begins(edges, monkeypatch):
    task = mf.build_task("navigation", dims=2, steps=12, grid=4, edges=edges)
    model = mf.build_model("mapwm", vocab_size=task.vocab_size, d_model=16, n_heads=1, n_layers=1, rank=2)
    picture = demo.map_picture(model, task, 0)
    first = task.sample("iid", 1, generator(0, "picture")).info["displacement"][0, 0].numpy()
    assert len(picture.truth) == len(picture.integrated) == 13
    assert picture.truth[0].tolist() == [0, 0] and (picture.truth[1] == first).all()
    assert np.abs(picture.truth[1]).sum() == 1, "one step from the start"
    marks = {}

    class Axes:
        def scatter(self, x, y, **look):
            marks[look.get("label")] = (x, y)

        def __getattr__(self, name):
            return lambda *args, **kwargs: None

    walk_figures._walk(Axes(), picture.truth)
    assert marks["start"] == (0, 0) and marks["end"] == tuple(picture.truth[-1])
