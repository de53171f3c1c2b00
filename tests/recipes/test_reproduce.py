"""Reproduce: runs that are done are not repeated, what was measured is kept, and nothing else is lost."""

import json
from dataclasses import replace

import pytest
from making import TINY, keys, quiet, run_recipe

import mapformers as mf
from mapformers.launch import reproduce as running
from mapformers.recipes import GridMeasure
from mapformers.runs.folder import RunFolder
from mapformers.runs.provenance import freshness, is_stale, sources_hash
from mapformers.tasks.navigation import Navigation
from mapformers.training import loop


def test_reproduce_keeps_what_each_run_measured(mini, tmp_path):
    record = run_recipe(mini, tmp_path, seeds=2)
    assert json.loads((tmp_path / "results.json").read_text()) == record
    assert keys(record) == [(row, "1D", seed) for row in ("MapWM", "RoPE (tiny)") for seed in (0, 1)]
    for run in record["runs"]:
        name = f"{run['row'].replace(' (tiny)', '-tiny-')}-1D-seed{run['seed']}-*"
        [path] = (tmp_path / "runs/mini/cpu").glob(name.replace("--", "-"))
        folder, config = RunFolder.open(path)
        assert run["config"] == config.to_dict()
        measured = mf.evaluate(folder.load_model(config)[0], config.build_task(), "iid", n_sequences=4)
        assert run["splits"]["iid"]["accuracy"] == measured["accuracy"].to_dict()
        assert [point["sequences"] for point in run["curve"]] == [8, 16]
        assert {"seed", "versions", "hardware", "wall_seconds", "command", "commit", "sources"} <= set(run)
        assert "step 4/4" in (folder.path / "log.txt").read_text()
        told = json.loads((path / "cell.json").read_text())
        place = {"row": run["row"], "world": "1D", "seed": run["seed"], "sweep": {}}
        assert told == {"recipe": "mini", "scale": "cpu", **place, "sources": sources_hash(config)}


def test_runs_that_are_done_are_not_repeated(mini, tmp_path, monkeypatch):
    first = run_recipe(mini, tmp_path)
    written = (tmp_path / "results.json").read_bytes()
    monkeypatch.setattr(running, "run_cell", lambda *args: pytest.fail("a run was repeated"))
    console = quiet()
    assert run_recipe(mini, tmp_path, console=console) == first
    assert "0 runs to do, 2 done" in console.file.getvalue()
    assert (tmp_path / "results.json").read_bytes() == written


def test_only_what_is_missing_is_run(mini, tmp_path, monkeypatch):
    run_recipe(mini, tmp_path, rows=["MapWM"])
    asked, original = [], running.run_cell
    monkeypatch.setattr(running, "run_cell", lambda cell, *rest: asked.append(cell) or original(cell, *rest))
    record = run_recipe(mini, tmp_path, seeds=2)
    cells = sorted((cell["row"], cell["world"], cell["seed"]) for cell in asked)
    assert cells == [("MapWM", "1D", 1), ("RoPE (tiny)", "1D", 0), ("RoPE (tiny)", "1D", 1)]
    assert len(keys(record)) == len(set(keys(record))) == 4


def test_a_run_with_other_settings_is_done_again(mini, tmp_path, monkeypatch):
    run_recipe(mini, tmp_path)
    monkeypatch.setattr(Navigation, "training", lambda self, scale: {**TINY, "sequences": 24})
    record = run_recipe(mini, tmp_path, rows=["MapWM"])
    assert keys(record) == [("MapWM", "1D", 0), ("RoPE (tiny)", "1D", 0)]
    assert [run["sequences"] for run in record["runs"]] == [24, 16]


def test_a_cell_whose_settings_have_changed_starts_in_another_folder(mini, tmp_path, monkeypatch):
    cell = mini.cell("MapWM", "1D").to_dict("cpu")
    running.run_cell(cell, tmp_path, 1)
    monkeypatch.setattr(Navigation, "training", lambda self, scale: {**TINY, "sequences": 8})
    run = running.run_cell(cell, tmp_path, 1)
    assert [point["sequences"] for point in run["curve"]] == [8]
    checkpoints = {path.parent.parent.name: path.name for path in tmp_path.glob("mini/cpu/*/checkpoints/step-*")}
    assert sorted(checkpoints.values()) == ["step-00000002", "step-00000004"] and len(checkpoints) == 2


def test_a_measure_that_is_new_is_taken_of_the_run_there_is(mini, tmp_path, monkeypatch):
    first = run_recipe(mini, tmp_path, rows=["MapWM"])
    more = replace(mini, measures=(*mini.measures, GridMeasure("steps", (4, 6), "grid", (3, 4))))
    monkeypatch.setitem(running.cell_of.__globals__["RECIPES"]._entries, "mini", more)
    monkeypatch.setattr(running, "start_run", lambda *args: pytest.fail("it was trained anew"))
    record = run_recipe(more, tmp_path, rows=["MapWM"])
    assert record["runs"][0]["splits"] == first["runs"][0]["splits"]
    assert record["runs"][0]["measures"]["steps x grid"]["axes"] == {"steps": [4, 6], "grid": [3, 4]}


def test_an_interrupted_cell_goes_on_where_it_stopped(mini, tmp_path, monkeypatch):
    monkeypatch.setattr(Navigation, "training", lambda self, scale: {**TINY, "checkpoint_every": 1})
    expected = run_recipe(mini, tmp_path / "whole", rows=["MapWM"])
    original, calls = loop.set_learning_rate, []

    def interrupted(optimizer, step, config):
        calls.append(step)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(optimizer, step, config)

    monkeypatch.setattr(loop, "set_learning_rate", interrupted)
    (tmp_path / "stopped").mkdir()
    with pytest.raises(KeyboardInterrupt):
        run_recipe(mini, tmp_path / "stopped", rows=["MapWM"])
    record = run_recipe(mini, tmp_path / "stopped", rows=["MapWM"])
    assert calls == [0, 1, 2, 2, 3]
    for key in ("splits", "curve", "config"):
        assert record["runs"][0][key] == expected["runs"][0][key]


def test_a_cell_that_fails_leaves_the_others_alone(mini, tmp_path, monkeypatch):
    original = running.start_run

    def failing(config, *rest):
        if config.model_name == "rope":
            raise RuntimeError("no luck")
        return original(config, *rest)

    monkeypatch.setattr(running, "start_run", failing)
    with pytest.raises(mf.UserError, match=r"1 of 2 runs failed: RoPE \(tiny\), 1D, seed 0 \(RuntimeError: no luck"):
        run_recipe(mini, tmp_path)
    assert keys(json.loads((tmp_path / "results.json").read_text())) == [("MapWM", "1D", 0)]
    [log] = tmp_path.glob("runs/mini/cpu/RoPE*/log.txt")
    assert "Traceback" in log.read_text() and "no luck" in log.read_text()


def test_a_run_is_stale_once_its_sources_have_changed(mini, tmp_path):
    run = run_recipe(mini, tmp_path, rows=["MapWM"])["runs"][0]
    assert run["sources"] == sources_hash(run["config"])
    assert freshness(run) == "current" and not is_stale(run)
    assert is_stale({**run, "sources": "0123456789abcdef"})
    assert freshness({**run, "sources": None}) == "unrecorded"


def test_a_run_resumed_with_other_sources_is_never_current(mini, tmp_path):
    run_recipe(mini, tmp_path, rows=["MapWM"])
    [cell] = tmp_path.glob("runs/mini/cpu/*/cell.json")
    cell.write_text(json.dumps({**json.loads(cell.read_text()), "sources": "0123456789abcdef"}))
    (tmp_path / "results.json").unlink()
    run = run_recipe(mini, tmp_path, rows=["MapWM"])["runs"][0]
    assert run["sources"].startswith("0123456789abcdef, then ") and is_stale(run)
