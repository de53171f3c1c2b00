"""Reproduce: runs that are done are not repeated, what was measured is kept, and nothing else is lost."""

import json
from dataclasses import replace

import pytest
from making import TINY, keys, quiet, run_recipe

import mapformers as mf
from mapformers.launch import cell as running
from mapformers.launch import local
from mapformers.recipes import RECIPES, GridMeasure
from mapformers.runs.folder import RunFolder
from mapformers.runs.provenance import freshness, is_stale, sources_hash
from mapformers.tasks.navigation import Navigation
from mapformers.training import loop


def test_reproduce_keeps_what_each_run_measured(mini, tmp_path):
    record = run_recipe(mini, tmp_path, seeds=2)
    assert json.loads((tmp_path / "mini.json").read_text()) == record
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
    written = (tmp_path / "mini.json").read_bytes()
    monkeypatch.setattr(local, "start_process", lambda work: pytest.fail("a run was repeated"))
    console = quiet()
    assert run_recipe(mini, tmp_path, console=console) == first
    assert "0 runs to do, 2 done" in console.file.getvalue()
    assert (tmp_path / "mini.json").read_bytes() == written


def test_only_what_is_missing_is_run(mini, tmp_path, monkeypatch):
    run_recipe(mini, tmp_path, rows=["MapWM"])
    asked, original = [], local.start_process
    monkeypatch.setattr(local, "start_process", lambda work: asked.append(work.cell) or original(work))
    record = run_recipe(mini, tmp_path, seeds=2)
    cells = sorted((cell.row.label, cell.world, cell.seed) for cell in asked)
    assert cells == [("MapWM", "1D", 1), ("RoPE (tiny)", "1D", 0), ("RoPE (tiny)", "1D", 1)]
    assert len(keys(record)) == len(set(keys(record))) == 4


def test_a_run_with_other_settings_is_done_again(mini, tmp_path, monkeypatch):
    run_recipe(mini, tmp_path)
    monkeypatch.setattr(Navigation, "training", lambda self, scale: {**TINY, "sequences": 24})
    record = run_recipe(mini, tmp_path, rows=["MapWM"])
    assert keys(record) == [("MapWM", "1D", 0), ("RoPE (tiny)", "1D", 0)]
    assert [run["sequences"] for run in record["runs"]] == [24, 16]


def test_a_cell_whose_settings_have_changed_starts_in_another_folder(mini, tmp_path, monkeypatch):
    run_recipe(mini, tmp_path, rows=["MapWM"])
    monkeypatch.setattr(Navigation, "training", lambda self, scale: {**TINY, "sequences": 8})
    console = quiet()
    run = run_recipe(mini, tmp_path, rows=["MapWM"], console=console)["runs"][0]
    assert "repeated because their settings changed: 1" in console.file.getvalue()
    assert [point["sequences"] for point in run["curve"]] == [8]
    checkpoints = {path.parent.parent.name: path.name for path in tmp_path.glob("runs/mini/cpu/*/checkpoints/step-*")}
    assert sorted(checkpoints.values()) == ["step-00000002", "step-00000004"] and len(checkpoints) == 2


def test_it_is_said_before_how_many_runs_leave_the_record(mini, tmp_path, monkeypatch):
    """Other seeds of a line that now has other settings are no seeds of it."""
    run_recipe(mini, tmp_path, seeds=3)
    monkeypatch.setattr(Navigation, "training", lambda self, scale: {**TINY, "sequences": 8})
    console = quiet()
    record = run_recipe(mini, tmp_path, rows=["MapWM"], console=console)
    assert "on seeds that are not run now: 2; they leave the record." in console.file.getvalue()
    assert keys(record) == [("MapWM", "1D", 0), *(("RoPE (tiny)", "1D", seed) for seed in range(3))]
    again = quiet()
    run_recipe(mini, tmp_path, rows=["MapWM"], seeds=2, console=again)
    assert "leave the record" not in again.file.getvalue()


def test_what_is_missing_of_players_is_measured_though_nothing_is_to_run(mini, tmp_path):
    record = run_recipe(mini, tmp_path)
    file = tmp_path / "mini.json"
    file.write_text(json.dumps({name: value for name, value in record.items() if "players" not in name}))
    assert run_recipe(mini, tmp_path) == record == json.loads(file.read_text())


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff"])
def test_damaged_measures_are_taken_again_and_stop_no_other_cell(mini, tmp_path, content):
    record = run_recipe(mini, tmp_path)
    (tmp_path / "mini.json").unlink()
    for file in tmp_path.glob("runs/mini/cpu/*/measures.json"):
        file.write_bytes(content)
    assert run_recipe(mini, tmp_path)["runs"] == record["runs"]


def test_a_cell_that_is_being_measured_belongs_to_the_command_that_measures_it(mini, tmp_path, monkeypatch):
    measure, seen = running.measure_run, []

    def watched(recipe, folder):
        seen.append(RunFolder(folder).is_locked())
        return measure(recipe, folder)

    monkeypatch.setattr(running, "measure_run", watched)
    run_recipe(mini, tmp_path, rows=["MapWM"])
    assert seen == [True]


def test_a_grid_of_more_sequences_is_measured_again():
    grid = GridMeasure("steps", (4,), "grid", (3,), n_sequences=8)
    kept = {"axes": {"steps": [4], "grid": [3]}, "metric": "accuracy", "values": [[0.5]]}
    assert grid.fits(kept) and grid.fits({**kept, "n_sequences": 8})  # older records do not say how many
    assert not grid.fits({**kept, "n_sequences": 4})
    assert replace(grid, n_sequences=None).fits({**kept, "n_sequences": 4})


def test_a_measure_that_is_new_is_taken_of_the_run_there_is(mini, tmp_path, monkeypatch):
    first = run_recipe(mini, tmp_path, rows=["MapWM"])
    more = replace(mini, measures=(*mini.measures, GridMeasure("steps", (4, 6), "grid", (3, 4))))
    monkeypatch.setitem(RECIPES._entries, "mini", more)
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


def test_a_cell_that_fails_is_tried_again_named_and_leaves_the_others_alone(mini, tmp_path, monkeypatch):
    original, attempts = running.start_run, []

    def failing(config, *rest):
        attempts.append(config.model_name)
        if config.model_name == "rope":
            raise RuntimeError("no luck")
        return original(config, *rest)

    monkeypatch.setattr(running, "start_run", failing)
    console = quiet()
    with pytest.raises(mf.UserError, match=r"1 of 2 runs failed: RoPE \(tiny\), 1D, seed 0 \(RuntimeError: no luck"):
        run_recipe(mini, tmp_path, console=console)
    assert attempts == ["rope", "mapwm", "rope"]  # the second attempt after all others
    assert "it is tried once more" in console.file.getvalue()
    assert keys(json.loads((tmp_path / "mini.json").read_text())) == [("MapWM", "1D", 0)]
    [log] = tmp_path.glob("runs/mini/cpu/RoPE*/log.txt")
    assert log.read_text().count("Traceback") == 2 and "no luck" in log.read_text()
    assert "no luck" in (log.parent / "failure.txt").read_text()


def test_a_cell_that_fails_once_is_a_cell_like_others(mini, tmp_path, monkeypatch):
    original, attempts = running.start_run, []

    def failing_once(config, *rest):
        attempts.append(config.model_name)
        if attempts == ["rope"]:
            raise OSError("a full disk")
        return original(config, *rest)

    monkeypatch.setattr(running, "start_run", failing_once)
    assert keys(run_recipe(mini, tmp_path)) == [("MapWM", "1D", 0), ("RoPE (tiny)", "1D", 0)]
    assert not list(tmp_path.glob("runs/mini/cpu/*/failure.txt"))


def test_a_run_is_stale_once_its_sources_have_changed(mini, tmp_path):
    run = run_recipe(mini, tmp_path, rows=["MapWM"])["runs"][0]
    assert run["sources"] == sources_hash(run["config"])
    assert freshness(run) == "current" and not is_stale(run)
    assert is_stale({**run, "sources": "0123456789abcdef"})
    assert freshness({**run, "sources": None}) == "unrecorded"


def with_other_sources(file, sources):
    """A record, cell.json or result.json as it would be had other sources made it."""
    plain = json.loads(file.read_text())
    for each in plain.get("runs", [plain]):
        each["sources"] = sources
    file.write_text(json.dumps(plain))


def test_a_run_whose_sources_have_changed_is_repeated_in_a_folder_of_its_own(mini, tmp_path):
    run_recipe(mini, tmp_path, rows=["MapWM"])
    [old] = tmp_path.glob("runs/mini/cpu/*")
    for file in (tmp_path / "mini.json", old / "cell.json", old / "result.json"):
        with_other_sources(file, "0123456789abcdef")
    console = quiet()
    kept = run_recipe(mini, tmp_path, rows=["MapWM"], keep_old=True, console=console)
    assert kept["runs"][0]["sources"] == "0123456789abcdef"
    assert "0 runs to do, 1 done" in console.file.getvalue() and "have changed: 1." in console.file.getvalue()
    record = run_recipe(mini, tmp_path, rows=["MapWM"], console=console)
    assert "repeated because their sources changed: 1 (--keep-old" in console.file.getvalue()
    assert freshness(record["runs"][0]) == "current" and len(list(tmp_path.glob("runs/mini/cpu/*"))) == 2
    again = quiet()
    assert run_recipe(mini, tmp_path, rows=["MapWM"], console=again) == record
    assert "0 runs to do, 1 done" in again.file.getvalue()


def test_runs_from_before_sources_were_recorded_are_kept_and_said_to_be(mini, tmp_path):
    run_recipe(mini, tmp_path, rows=["MapWM"])
    with_other_sources(tmp_path / "mini.json", None)
    console = quiet()
    assert run_recipe(mini, tmp_path, rows=["MapWM"], console=console)["runs"][0]["sources"] is None
    assert "0 runs to do, 1 done" in console.file.getvalue() and "not recorded which sources" in console.file.getvalue()


@pytest.fixture
def unfinished(mini, tmp_path):
    """The folder of a run that other sources began, stopped before its end."""
    run_recipe(mini, tmp_path, rows=["MapWM"])
    [folder] = tmp_path.glob("runs/mini/cpu/*")
    for file in (folder / "result.json", folder / "measures.json", tmp_path / "mini.json"):
        file.unlink()
    with_other_sources(folder / "cell.json", "0123456789abcdef")
    return folder


def test_an_unfinished_run_of_other_sources_is_not_gone_on_with(mini, tmp_path, unfinished):
    run = run_recipe(mini, tmp_path, rows=["MapWM"])["runs"][0]
    assert freshness(run) == "current"
    assert not (unfinished / "result.json").exists() and len(list(unfinished.parent.iterdir())) == 2


def test_a_run_resumed_with_other_sources_is_never_current(mini, tmp_path, unfinished):
    run = run_recipe(mini, tmp_path, rows=["MapWM"], keep_old=True)["runs"][0]
    assert run["sources"].startswith("0123456789abcdef, then ") and is_stale(run)
    assert [folder.name for folder in unfinished.parent.iterdir()] == [unfinished.name]


def test_sources_that_change_while_a_command_runs_are_not_mixed(mini, tmp_path, unfinished):
    """Its worker was told the folder before they changed."""
    work = running.Work(mini.cell("MapWM", "1D"), "cpu", unfinished)
    assert "sources changed after this command was given" in running.run_work(work.to_dict())


def test_several_commands_may_add_to_one_record(mini, tmp_path, monkeypatch):
    """What another command has written meanwhile stays."""
    original = local.start_process

    def meanwhile(work):
        if work.cell.row.label == "RoPE (tiny)":
            monkeypatch.setattr(local, "start_process", original)
            run_recipe(mini, tmp_path, rows=["MapWM"])
        return original(work)

    monkeypatch.setattr(local, "start_process", meanwhile)
    record = run_recipe(mini, tmp_path, rows=["RoPE (tiny)"])
    assert keys(record) == [("MapWM", "1D", 0), ("RoPE (tiny)", "1D", 0)]


def test_seeds_and_worlds_may_be_chosen(mini, tmp_path):
    assert keys(run_recipe(mini, tmp_path, rows=["MapWM"], seeds=[100, 4])) == [("MapWM", "1D", s) for s in (4, 100)]
    with pytest.raises(mf.UserError, match="no world of 'mini' named '2D'"):
        run_recipe(mini, tmp_path, worlds=["2D"])


def test_a_recipe_that_workers_cannot_know_is_refused(mini, tmp_path):
    with pytest.raises(mf.UserError, match="register it in a file"):
        run_recipe(replace(mini, name="other"), tmp_path)
    with pytest.raises(mf.UserError, match="own file says other settings"):
        run_recipe(replace(mini, worlds={"1D": {"dims": 1, "steps": 6, "grid": 5}}), tmp_path)
