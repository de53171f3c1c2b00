"""Recorded runs outlive a change to the sources if old and new sources compute the same, to the last bit."""

import contextlib
import json
import shutil
import signal

import pytest
from making import run_recipe

from mapformers.cli.main import main
from mapformers.errors import UserError
from mapformers.launch import confirm
from mapformers.runs import checkout, provenance, sources
from mapformers.runs.sources import PACKAGE

AN_UNUSED_NAME = ("model.py", "EMBEDDING_STD = 0.3\n", "EMBEDDING_STD = 0.3\nUNUSED = 1\n")
ANOTHER_START = ("model.py", "EMBEDDING_STD = 0.3\n", "EMBEDDING_STD = 0.31\n")
ANOTHER_ROPE = ("layers/rope.py", "torch.ones(rows", "2 * torch.ones(rows")
ANOTHER_SPLIT = ("tasks/navigation.py", '{**dense, "p_empty": 0.2}', '{**dense, "p_empty": 0.9}')


def old_package(folder, edits):
    """The package as it might have been: today's with some edits."""
    shutil.copytree(PACKAGE, folder / PACKAGE.name)
    for name, now, then in edits:
        file = folder / PACKAGE.name / name
        text = file.read_text(encoding="utf-8")
        assert text.count(now) == 1
        file.write_text(text.replace(now, then), encoding="utf-8")


def sources_with(folder, runs):
    """The hash of each run's sources, if they were the files of the package in a folder."""
    files = [[file.relative_to(PACKAGE) for file in sources.sources_of(run["config"])] for run in runs]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "PACKAGE", folder / PACKAGE.name)
        return [sources._hash_of(tuple(sources.PACKAGE / file for file in each)) for each in files]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Where the record of the two runs is, once they have been run."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def processes():
    """The process that has today's sources serves one test after another."""
    with contextlib.closing(confirm.ProcessPool(most=2)) as shared:
        yield shared


@pytest.fixture
def measured(mini, kept, processes, tmp_path, monkeypatch):
    """A record of two runs, of MapWM and RoPE, which ``edited`` makes that of earlier sources."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(confirm, "closing", lambda _: contextlib.nullcontext(processes))
    if not (kept / "mini.json").exists():
        run_recipe(mini, kept)
    file = tmp_path / "results" / "mini.json"
    file.parent.mkdir()

    def edited(*edits, recorded=None):
        old_package(tmp_path / "old", edits)
        record = json.loads((kept / "mini.json").read_text())
        hashes = sources_with(tmp_path / "old", record["runs"]) if recorded is None else [recorded] * 2
        for run, then in zip(record["runs"], hashes):
            run.update(sources=then, commit="0" * 40)
        file.write_text(json.dumps(record))
        monkeypatch.setattr(confirm, "unpack_commit", lambda name, folder: shutil.copytree(tmp_path / "old", folder))
        return file

    return edited


def runs(file):
    return json.loads(file.read_text())["runs"]


def test_a_run_is_of_the_new_sources_too_if_they_compute_the_same(measured, capsys):
    file = measured(AN_UNUSED_NAME)
    before = runs(file)
    assert [provenance.freshness(run) for run in before] == ["changed", "changed"]
    assert main(["confirm", "mini"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("the same weights and figures") == 2 and "2 of 2 runs" in printed
    after = runs(file)
    assert [provenance.freshness(run) for run in after] == ["current", "current"]
    assert [{k: v for k, v in run.items() if k != "confirmed"} for run in after] == before
    assert main(["confirm", "all", "--results", "results"]) == 0
    assert "0 of 0 runs" in capsys.readouterr().out


@pytest.mark.parametrize(("edit", "what"), [(ANOTHER_START, "and weights."), (ANOTHER_SPLIT, "in splits.")])
def test_a_run_stays_old_if_they_compute_something_else(measured, edit, what, capsys):
    """Also if only what is measured at the end has changed."""
    file = measured(edit)
    assert main(["confirm", "mini"]) == 1
    printed = capsys.readouterr().out
    assert printed.count(what) == 2 and "0 of 2 runs" in printed
    assert [provenance.freshness(run) for run in runs(file)] == ["changed", "changed"]


def test_each_run_is_judged_by_its_own_sources_and_needs_no_curve(measured, capsys):
    file = measured(AN_UNUSED_NAME, ANOTHER_ROPE)
    record = json.loads(file.read_text())
    for run in record["runs"]:
        run["curve"] = []
    file.write_text(json.dumps(record))
    assert main(["confirm", "mini"]) == 1
    assert "1 of 2 runs" in capsys.readouterr().out
    judged = {run["row"]: provenance.freshness(run) for run in runs(file)}
    assert judged == {"MapWM": "current", "RoPE (tiny)": "changed"}


def test_one_run_is_compared_for_all_that_differ_in_seed_and_rate_alone(measured, capsys):
    file = measured(AN_UNUSED_NAME)
    record = json.loads(file.read_text())
    first = record["runs"][0]
    for seed, change in ((1, {"lr": 0.5}), (2, {"batch_size": first["config"]["train"]["batch_size"] + 1})):
        config = {**first["config"], "seed": seed, "train": {**first["config"]["train"], **change}}
        record["runs"].append({**first, "seed": seed, "config": config})
    groups = confirm.alike(record["runs"])
    assert [[run["seed"] for run in group] for group in groups] == [[0, 1], [0], [2]]
    record["runs"] = record["runs"][:1] + record["runs"][2:3]
    file.write_text(json.dumps(record))
    assert main(["confirm", "mini"]) == 0
    printed = capsys.readouterr().out
    assert "seed 1 (by MapWM, 1D, seed 0): the same" in printed and "2 of 2 runs" in printed
    assert [provenance.freshness(run) for run in runs(file)] == ["current", "current"]


def test_a_commit_without_the_sources_that_were_measured_is_no_evidence(measured, capsys):
    measured(AN_UNUSED_NAME, recorded="0123456789abcdef")
    assert main(["confirm", "mini"]) == 1
    assert "changes that are in no commit" in capsys.readouterr().out


def test_what_cannot_be_compared_is_said(measured, capsys):
    file = measured(recorded="0123456789abcdef")
    record = json.loads(file.read_text())
    record["runs"][0]["config"]["model"]["layers"][0]["name"] = "gone"
    record["runs"][1]["commit"] = None
    file.write_text(json.dumps(record))
    assert main(["confirm", "mini"]) == 1
    printed = capsys.readouterr().out
    assert "gone" in printed and "names no commit" in printed and "0 of 2" in printed


ANSWERS = """
import json, os, sys
for line in sys.stdin:
    config = json.loads(line)["config"]
    if config == "killed":
        os.abort()
    print(json.dumps({"fault": config} if config == "wrong" else {"process": os.getpid()}), flush=True)
    if config == "wrong":
        break
"""


def test_a_process_is_used_again_for_the_same_sources_until_a_run_has_a_fault(tmp_path, monkeypatch):
    script = tmp_path / "answers.py"
    script.write_text(ANSWERS)
    monkeypatch.setattr(confirm.first_steps, "__file__", str(script))
    old, now = tmp_path / "old", tmp_path / "now"
    with contextlib.closing(confirm.ProcessPool(most=2)) as processes:

        def process_of(source, config="right"):
            return processes.first_steps({"config": config}, source)["process"]

        first, other = process_of(old), process_of(now)
        assert first != other and [process_of(old), process_of(now), process_of(old)] == [first, other, first]
        for config, reason in (("wrong", "wrong"), ("killed", f"exit code -{signal.SIGABRT:d}")):
            before = process_of(old)
            with pytest.raises(UserError, match=f"its first steps ended in: {reason}"):
                process_of(old, config)
            assert process_of(old) != before and process_of(now) == other
        process_of(tmp_path / "third")
        assert len(processes._idle) == 2
        left = [each._process for each in processes._idle]
    assert [process.poll() for process in left] == [0, 0]


def test_earlier_sources_come_from_the_checkout(tmp_path):
    if checkout.commit() is None:
        pytest.skip("the package does not run from a git checkout")
    checkout.unpack_commit("HEAD", tmp_path / "head")
    assert (tmp_path / "head" / "mapformers" / "model.py").is_file()
    with pytest.raises(UserError, match="does not have its commit"):
        checkout.unpack_commit("0" * 40, tmp_path / "none")


@pytest.mark.parametrize("asked", [["nothing"], ["mini", "--jobs", "0"], ["mini", "--results", "elsewhere"], []])
def test_wrong_questions(mini, asked, capsys):
    assert main(["confirm", *asked]) == 2
    assert capsys.readouterr().err.startswith("mapformers: ")
