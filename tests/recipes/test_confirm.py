"""Recorded runs outlive a change to the sources if their first part, trained again, agrees to the last digit."""

import json

import pytest
from making import run_recipe

from mapformers.cli.main import main
from mapformers.runs import provenance


@pytest.fixture
def measured(mini, tmp_path, monkeypatch):
    """A record of two runs, after which the sources have changed."""
    monkeypatch.chdir(tmp_path)
    run_recipe(mini, tmp_path / "results")
    monkeypatch.setattr(provenance, "sources_hash", lambda config: "changed")
    monkeypatch.setattr("mapformers.launch.confirm.sources_hash", lambda config: "changed")
    return tmp_path / "results" / "mini.json"


def runs(file):
    return json.loads(file.read_text())["runs"]


def test_a_run_that_agrees_is_of_the_new_sources_too(measured, capsys):
    before = runs(measured)
    assert [provenance.freshness(run) for run in before] == ["changed", "changed"]
    assert main(["confirm", "mini"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("as recorded") == 2 and "2 of 2 runs" in printed
    after = runs(measured)
    assert [provenance.freshness(run) for run in after] == ["current", "current"]
    assert [{k: v for k, v in run.items() if k != "confirmed"} for run in after] == before
    assert main(["confirm", "all", "--results", "results"]) == 0
    assert "0 of 0 runs" in capsys.readouterr().out


def test_a_run_that_differs_in_the_last_digit_stays_old(measured, capsys):
    record = json.loads(measured.read_text())
    for point in record["runs"][0]["curve"]:
        point["accuracy"] = (point["accuracy"] or 0.5) * (1 + 2**-50)
    measured.write_text(json.dumps(record))
    assert main(["confirm", "mini"]) == 1
    printed = capsys.readouterr().out
    assert "1 of 2 runs" in printed and "recorded 0." in printed
    assert [provenance.freshness(run) for run in runs(measured)] == ["changed", "current"]


def test_a_figure_of_zero_tells_nothing(measured, capsys):
    """Both runs are compared where their figure is neither 0 nor 1, if there is such a point."""
    curves = [
        [point for point in run["curve"] if point["accuracy"] not in (0, 1)] or run["curve"] for run in runs(measured)
    ]
    assert main(["confirm", "mini"]) == 0
    printed = capsys.readouterr().out
    assert all(f"after {curve[0]['sequences']} sequences" in printed for curve in curves)


def test_what_cannot_be_compared_is_said(measured, capsys):
    record = json.loads(measured.read_text())
    record["runs"][0]["curve"] = []
    record["runs"][1]["config"]["model"]["layers"][0]["name"] = "gone"
    measured.write_text(json.dumps(record))
    assert main(["confirm", "mini"]) == 1
    printed = capsys.readouterr().out
    assert "no learning curve" in printed and "gone" in printed and "0 of 2" in printed


@pytest.mark.parametrize("asked", [["nothing"], ["mini", "--jobs", "0"], ["mini", "--results", "elsewhere"], []])
def test_wrong_questions(mini, asked, capsys):
    assert main(["confirm", *asked]) == 2
    assert capsys.readouterr().err.startswith("mapformers: ")
