"""What can be asked of `mapformers reproduce`: seeds, worlds, rows of one's own, a dry run; and what is refused."""

import json
import shutil

import pytest
from making import keys, run_recipe

import mapformers as mf
from mapformers.cli.main import main
from mapformers.cli.rows import parse_row, parse_seeds
from mapformers.recipes import Row, collect


@pytest.fixture
def here(mini, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def record(folder, name="results/mini.json"):
    return json.loads((folder / name).read_text())


@pytest.mark.parametrize(
    ("words", "seeds"),
    {
        "3": [0, 1, 2],
        "1": [0],
        "100-102": [100, 101, 102],
        "0 4 100": [0, 4, 100],
        "7-7": [7],
        "1 0-2": [1, 0, 2],
    }.items(),
)
def test_seeds_are_a_number_or_named(words, seeds):
    assert parse_seeds(words.split()) == seeds


@pytest.mark.parametrize(
    ("text", "row"),
    {
        "MapWM-r3=mapwm rank=3 lr=1e-3": Row("MapWM-r3", "mapwm", {"rank": 3, "lr": 1e-3}),
        "RoPE (4L)=rope n-layers=4 init=ordinary": Row("RoPE (4L)", "rope", {"n_layers": 4, "init": "ordinary"}),
        "plain=mapem self_key=true": Row("plain", "mapem", {"self_key": True}),
        "both=mapem+mapwm:rank=4 d_model=32": Row(
            "both", None, {"d_model": 32}, [("mapem", {}), ("mapwm", {"rank": 4})]
        ),
    }.items(),
)
def test_a_row_is_a_label_a_model_and_settings(text, row):
    assert parse_row(text) == row


def test_a_row_of_ones_own_is_in_the_record_and_survives(here, capsys):
    line = ["reproduce", "mini", "--seeds", "2", "--row", "Wide=mapwm rank=1 d_model=32"]
    assert main(line) == 0
    table = capsys.readouterr().out
    lines = [line.split("│")[1].strip() for line in table.splitlines() if line.startswith("│")]
    assert lines[:3] == ["RoPE (tiny)", "MapWM", "Wide"]  # after the recipe's own
    assert len(keys(record(here))) == 6
    assert [run["added"] for run in record(here)["runs"] if run["row"] == "Wide"] == [
        {"model": "mapwm", "settings": {"rank": 1, "d_model": 32}, "layers": None}
    ] * 2
    assert main(["report", "mini"]) == 0
    assert capsys.readouterr().out == table

    assert main(["collect", "runs", "--results", "again"]) == 0
    assert record(here, "again/mini.json") == record(here)
    capsys.readouterr()
    assert main(["reproduce", "mini", "--rows", "Wide", "--seeds", "3"]) == 0  # known by name now
    assert "1 runs to do, 2 done" in capsys.readouterr().err


def test_a_row_may_be_given_another_meaning(here, capsys):
    for width in (32, 48):
        assert main(["reproduce", "mini", "--rows", "Wide", "--row", f"Wide=mapwm rank=1 d_model={width}"]) == 0
    assert [run["config"]["model"]["d_model"] for run in record(here)["runs"]] == [48]
    assert "repeated because their settings changed: 1" in capsys.readouterr().err


def test_a_hybrid_from_the_command_line_comes_back_from_its_folder(here):
    assert main(["reproduce", "mini", "--rows", "both", "--row", "both=mapem+mapwm:rank=1 d_model=16"]) == 0
    assert collect([here / "runs"]).records["mini", "cpu"] == record(here)
    assert [layer["name"] for layer in record(here)["runs"][0]["config"]["model"]["layers"]] == ["mapem", "mapwm"]


def test_a_row_in_five_lines_of_python(mini, tmp_path):
    table = mini.with_rows(Row("Wide", "mapwm", {"rank": 1, "d_model": 32}))
    found = run_recipe(table, tmp_path, rows=["Wide", "MapWM"])
    assert keys(found) == [("MapWM", "1D", 0), ("Wide", "1D", 0)]
    assert ["added" in run for run in found["runs"]] == [False, True]


def test_what_several_machines_measured_is_joined(here, capsys):
    for seed in ("0-0", "1-1"):
        assert main(["reproduce", "mini", "--seeds", seed, "--runs", f"machine-{seed}", "--results", "there"]) == 0
    assert main(["collect", "machine-0-0", "machine-1-1"]) == 0
    assert record(here) == record(here, "there/mini.json")
    shutil.rmtree(here / "results")
    for folder in ("machine-1-1", "machine-0-0"):  # one after the other is the same
        assert main(["collect", folder]) == 0
    assert record(here) == record(here, "there/mini.json")


def test_a_dry_run_says_what_would_be_run_and_writes_nothing(here, capsys):
    assert main(["reproduce", "mini", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "MapWM, 1D, seed 0" in printed and "2 runs" in printed and "32" in printed
    assert "is recorded for 2 of them" in " ".join(printed.split()) and list(here.iterdir()) == []
    assert main(["reproduce", "mini", "--rows", "MapWM"]) == 0
    capsys.readouterr()
    assert main(["reproduce", "mini", "--seeds", "2", "--dry-run"]) == 0
    printed = " ".join(capsys.readouterr().out.split())  # however the note is broken into lines
    assert "is recorded for 2 of them" in printed  # RoPE's; of MapWM one is left, and known


def test_a_run_that_another_table_has_is_taken_from_there(here, capsys, monkeypatch):
    from mapformers.recipes import RECIPES

    rows = (Row("Same", "mapwm", {"d_model": 16, "rank": 1}), Row("Other", "mapwm", {"d_model": 16, "rank": 2}))
    twin = {**vars(RECIPES["mini"]), "name": "twin", "rows": rows, "finding": "", "paper": {}}
    monkeypatch.setitem(RECIPES._entries, "twin", mf.recipes.Recipe(**twin))
    assert main(["reproduce", "mini", "--rows", "MapWM"]) == 0
    assert main(["reproduce", "twin"]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert "twin at cpu scale: 1 runs to do" in told and "where the same run is: 1." in told
    taken, trained = sorted(record(here, "results/twin.json")["runs"], key=lambda run: run["row"], reverse=True)
    mini = record(here)["runs"][0]
    assert {**taken, "row": "MapWM"} == {**mini, "taken_from": "mini"} and taken["row"] == "Same"
    assert "taken_from" not in trained and len(list((here / "runs/twin/cpu").iterdir())) == 1
    assert main(["reproduce", "twin"]) == 0
    assert "0 runs to do, 2 done" in capsys.readouterr().err


def test_all_is_every_recipe_with_a_record_each(here, capsys, monkeypatch):
    from mapformers.recipes import RECIPES

    monkeypatch.setattr(type(RECIPES), "names", lambda self: ["mini", "twin"])
    monkeypatch.setitem(RECIPES._entries, "twin", mf.recipes.Recipe(**{**vars(RECIPES["mini"]), "name": "twin"}))
    assert main(["reproduce", "all"]) == 0
    assert "(4/4)" in capsys.readouterr().err
    assert len(record(here)["runs"]) == len(record(here, "results/twin.json")["runs"]) == 2


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (["--worlds", "2D"], "no world of 'mini' named '2D'; choose one of: 1D."),
        (["--rows", "MapWN"], "no row of 'mini' named 'MapWN'; did you mean 'MapWM'?"),
        (["--row", "X=mapmw"], "no model named 'mapmw'; did you mean 'mapwm'?"),
        (["--row", "X=mapwm rnk=3"], "named 'rnk'; did you mean 'rank'?"),
        (["--row", "X=mapwm rank=0"], "rank"),
        (["--row", "X=mapwm rank=two"], "rank must be a whole number"),
        (["--row", "MapWM=mapwm"], "already has a row 'MapWM'; choose another label."),
        (["--row", "X=mapwm", "X=rope"], "already has a row 'X'; choose another label."),
        (["--row", "mapwm"], "A row is given as LABEL=MODEL"),
        (["--row", "X=mapwm rank"], "takes settings as NAME=VALUE, not 'rank'."),
        (["--row", "X=mapwm 'rank"], "cannot be read: no closing quotation."),
        (["--seeds", "2-1"], "--seeds 2-1 is empty; write 1-2."),
        (["--seeds", "0", "x"], "--seeds takes a whole number"),
        (["--slurm", "time=1"], "add --cluster slurm."),
        (["--cluster", "local", "--slurm", "time=1"], "add --cluster slurm."),
        (["--cluster", "pbs"], "local"),
    ],
    ids=str,
)
def test_what_cannot_be_is_one_sentence(here, capsys, line, sentence):
    assert main(["reproduce", "mini", *line]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("mapformers: ") and sentence in error
    assert not (here / "results/mini.json").exists()


def test_all_takes_no_rows_of_one(here, capsys):
    assert main(["reproduce", "all", "--rows", "MapWM"]) == 2
    assert "name it instead of all" in capsys.readouterr().err
