"""Collect: run folders alone give the record that reproduce wrote; what does not belong is said and left out."""

import json
import shutil

import pytest
from making import keys, run_recipe

import mapformers as mf
from mapformers.cli.main import main
from mapformers.recipes import RECIPES, collect
from mapformers.tasks.navigation import Navigation


@pytest.fixture
def ran(mini, tmp_path):
    return run_recipe(mini, tmp_path)


def folder_of(tmp_path, name):
    [folder] = tmp_path.glob(f"runs/mini/cpu/{name}*")
    return folder


def test_the_record_comes_back_whole(ran, tmp_path):
    collected = collect([tmp_path / "runs"])
    assert collected.records == {("mini", "cpu"): ran} and collected.skipped == {}
    assert list(collected.records["mini", "cpu"]["runs"][0]) == list(ran["runs"][0])


def test_folders_may_be_given_one_by_one_and_need_no_checkpoints(ran, tmp_path):
    folders = [folder_of(tmp_path, "MapWM"), folder_of(tmp_path, "RoPE")]
    for folder in folders:
        shutil.rmtree(folder / "checkpoints")
    assert collect(list(map(str, folders))).records["mini", "cpu"] == ran


def test_what_was_not_measured_yet_is_measured(ran, tmp_path):
    (folder_of(tmp_path, "MapWM") / "measures.json").unlink()
    assert collect([tmp_path / "runs"]).records["mini", "cpu"] == ran


def spoil(what, tmp_path, monkeypatch):
    folder = folder_of(tmp_path, "RoPE")
    cell = folder / "cell.json"
    if what == "no cell.json":
        cell.unlink()
    elif what == "not finished":
        (folder / "result.json").unlink()
    elif what == "no such row":
        cell.write_text(cell.read_text().replace("RoPE (tiny)", "RoPE"))
    elif what == "no such recipe":
        cell.write_text(cell.read_text().replace('"mini"', '"theirs"'))
    elif what == "not JSON":
        cell.write_text("{")
    elif what == "not a cell":
        cell.write_text("{}")
    elif what == "other settings":
        config = json.loads((folder / "config.json").read_text())
        config["train"]["lr"] = 0.5
        (folder / "config.json").write_text(json.dumps(config))
    elif what == "twice":
        shutil.copytree(folder_of(tmp_path, "MapWM"), tmp_path / "runs/mini/cpu/second")
        shutil.rmtree(folder)
        folder = tmp_path / "runs/mini/cpu/second"
    return folder


@pytest.mark.parametrize(
    ("what", "why"),
    {
        "no cell.json": "has no cell.json",
        "not finished": "has not come to its end",
        "no such row": "no row of 'mini' named 'RoPE'",
        "no such recipe": "no recipe named 'theirs'",
        "not JSON": "not readable JSON",
        "not a cell": "does not say recipe or scale",
        "other settings": "other settings than the recipe has now",
        "twice": "holds the same cell",
    }.items(),
)
def test_a_folder_that_does_not_belong_is_skipped_with_the_reason(ran, tmp_path, monkeypatch, what, why):
    folder = spoil(what, tmp_path, monkeypatch)
    collected = collect([tmp_path / "runs"])
    assert list(collected.skipped) == [folder] and why in collected.skipped[folder]
    assert keys(collected.records["mini", "cpu"]) == [("MapWM", "1D", 0)]


def test_the_command_writes_the_record_and_says_what_it_skipped(ran, tmp_path, capsys, monkeypatch):
    (folder_of(tmp_path, "RoPE") / "cell.json").unlink()
    assert main(["collect", str(tmp_path / "runs"), "--results", str(tmp_path / "new")]) == 0
    printed = capsys.readouterr().out
    assert "skipped" in printed and "has no cell.json" in printed and "1 runs of mini at cpu scale" in printed
    assert keys(json.loads((tmp_path / "new/mini.json").read_text())) == [("MapWM", "1D", 0)]


def test_runs_that_the_record_has_already_are_kept(ran, tmp_path, capsys):
    (tmp_path / "new").mkdir()
    (tmp_path / "new/mini.json").write_text(json.dumps(ran))
    shutil.rmtree(folder_of(tmp_path, "RoPE"))
    assert main(["collect", str(tmp_path / "runs"), "--results", str(tmp_path / "new")]) == 0
    assert json.loads((tmp_path / "new/mini.json").read_text()) == ran


def test_what_players_score_in_other_worlds_stays(ran, tmp_path):
    (tmp_path / "new").mkdir()
    other = {name: {**ran[name], "2D": {"random": {"iid": 0.5}}} for name in ("players", "players_in")}
    (tmp_path / "new/mini.json").write_text(json.dumps({**ran, **other}))
    assert main(["collect", str(tmp_path / "runs"), "--results", str(tmp_path / "new")]) == 0
    joined = json.loads((tmp_path / "new/mini.json").read_text())
    assert joined == {**ran, **other} and set(joined["players"]) == {"1D", "2D"}


def of_other_sources(folder):
    for name in ("cell.json", "result.json"):
        told = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**told, "sources": "0123456789abcdef"}))
    return folder


def test_of_two_folders_that_of_the_sources_as_they_are_now_is_taken(ran, tmp_path):
    newer = folder_of(tmp_path, "MapWM")
    older = of_other_sources(shutil.copytree(newer, newer.with_name("A-first-in-the-alphabet")))
    collected = collect([tmp_path / "runs"])
    assert collected.records["mini", "cpu"] == ran
    assert list(collected.skipped) == [older]


def test_a_current_run_of_the_record_is_not_replaced_by_one_of_other_sources(ran, tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new/mini.json").write_text(json.dumps(ran))
    of_other_sources(folder_of(tmp_path, "MapWM"))
    assert main(["collect", str(tmp_path / "runs"), "--results", str(tmp_path / "new")]) == 0
    assert json.loads((tmp_path / "new/mini.json").read_text()) == ran


def test_that_a_run_was_confirmed_stays_known(ran, tmp_path):
    (tmp_path / "new").mkdir()
    confirmed = {"sources": "0123456789abcdef", "commit": "0123456"}
    record = {**ran, "runs": [{**run, "confirmed": confirmed} for run in ran["runs"]]}
    (tmp_path / "new/mini.json").write_text(json.dumps(record))
    assert main(["collect", str(tmp_path / "runs"), "--results", str(tmp_path / "new")]) == 0
    assert json.loads((tmp_path / "new/mini.json").read_text()) == record


@pytest.mark.parametrize(
    ("folders", "sentence"),
    [([], "needs run folders"), (["nowhere"], "no folder nowhere"), (["empty"], "empty holds no run")],
    ids=str,
)
def test_wrong_folders_are_one_sentence(tmp_path, monkeypatch, capsys, folders, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert main(["collect", *folders]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1 and not (tmp_path / "results").exists()


def test_python_refuses_them_too(tmp_path):
    with pytest.raises(mf.UserError, match="no folder"):
        collect([tmp_path / "nowhere"])
    assert "mini" not in RECIPES and Navigation.name == "navigation"
