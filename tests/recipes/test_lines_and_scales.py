"""What holds at which scale, which seeds a recipe has, and that a line of a table is of one set of settings."""

import copy
from dataclasses import replace

import pytest

import mapformers as mf
from mapformers.recipes import RECIPES, At, Claim, TableView
from mapformers.recipes.claims import check
from mapformers.recipes.record import empty_record, players_note, with_players_of, with_run
from mapformers.runs.config import TrainConfig


@pytest.mark.parametrize("name", ["table2", "ssm", "dims", "family", "ablations"])
def test_at_the_papers_scale_every_row_has_the_papers_rate_and_budget(name):
    for cell in RECIPES[name].cells():
        train = cell.config("paper").train
        assert (train.sequences, train.batch_size, train.lr) == (700_000, 128, 3e-4), cell.title


def test_what_was_chosen_for_cpu_holds_there_alone():
    rope = RECIPES["table2"].cell("RoPE (4L)", "2D")
    assert [rope.config(scale).train.lr for scale in ("smoke", "cpu", "paper")] == [TrainConfig.lr, 1e-3, 3e-4]
    five = RECIPES["dims"].cell("MapWM", "5D")
    assert [five.config(scale).train.sequences for scale in ("smoke", "cpu", "paper")] == [320, 240_000, 700_000]


def test_recipes_that_choose_have_seeds_that_no_table_reports():
    choose = {name for name in RECIPES if RECIPES[name].chooses}
    assert choose == {
        "rates-table1",
        "rates-table2",
        "rates-dyck",
        "rates-ssm",
        "zero-mean-dims",
        "start-dims",
        "rates-lm",
        "rates-lm-whole",
        "ranks-table1",
        "path-rates-table1",
        "start-lm",
        "velocities",
    }
    assert all(cell.seed >= 100 for name in choose for cell in RECIPES[name].cells())


def test_the_papers_non_commuting_rows_have_no_bottleneck():
    for n in (3, 4, 6, 8):
        options = RECIPES["family"].cell(f"MapEM-NC-{n}", "fresh trees").config("cpu").model.layers[0].options
        assert (options.block, options.rank) == (n, None)


def entry(recipe, seed, value=0.5, **settings):
    cell = recipe.cell("MapWM-r2", "2D", seed)
    config = replace(cell, row=replace(cell.row, settings={**cell.row.settings, **settings})).config("smoke")
    splits = {split: {"accuracy": {"value": value, "count": 9}} for split in recipe.splits}
    return {**cell.place(), "config": config.to_dict(), "splits": splits}


def test_runs_with_other_settings_are_no_other_seeds_of_a_line():
    recipe, record = RECIPES["table2"], {"recipe": "table2", "scale": "smoke", "runs": []}
    for seed in (0, 1):
        record = with_run(record, entry(recipe, seed))
    assert [run["seed"] for run in record["runs"]] == [0, 1]
    record = with_run(record, entry(recipe, 2, edges="torus"))
    assert [run["seed"] for run in record["runs"]] == [2]
    record = with_run(record, {**entry(recipe, 5), "world": "1D"})
    assert [run["seed"] for run in record["runs"]] == [5, 2], "another world is another line"


def test_players_are_measured_again_when_they_or_their_world_change(monkeypatch):
    recipe = replace(RECIPES["ssm"], claims=())
    names = mf.players.names(recipe.build_task("2D, 32 steps"))
    measured = []
    monkeypatch.setattr(
        "mapformers.recipes.record.scores_of_players",
        lambda recipe, world, n_sequences: measured.append(n_sequences) or {name: {} for name in names},
    )
    record = with_players_of(recipe, {"scale": "cpu", "runs": []}, "2D, 32 steps")
    assert with_players_of(recipe, copy.deepcopy(record), "2D, 32 steps") == record and len(measured) == 1
    torus = replace(recipe, worlds={"2D, 32 steps": {**recipe.worlds["2D, 32 steps"], "edges": "torus"}})
    with_players_of(torus, record, "2D, 32 steps")
    assert len(measured) == 2
    with_players_of(recipe, {**record, "scale": "smoke"}, "2D, 32 steps")
    assert measured == [512, 512, 16], "as many sequences as the runs of that scale"
    del record["players_in"]["2D, 32 steps"]["sequences"]  # a record from before they were written down
    assert with_players_of(recipe, record, "2D, 32 steps") == record
    del record["players"]["2D, 32 steps"]["random"]  # a record from before there was such a player
    with_players_of(recipe, record, "2D, 32 steps")
    assert len(measured) == 4


def test_the_cases_of_players_are_recorded_and_a_table_says_why_they_differ():
    recipe, world = RECIPES["ssm"], "2D, 32 steps"
    record = with_players_of(recipe, empty_record(recipe, "smoke"), world)
    task = recipe.build_task(world)
    cases = {split: mf.evaluate(mf.players.build("random", task, split), task, split, n_sequences=16)["accuracy"].count
             for split in recipe.splits}  # fmt: skip
    assert record["players_in"][world]["cases"] == cases and record["players_in"][world]["sequences"] == 16
    cell = recipe.cell(recipe.rows[0].label, world)
    entry = {**cell.place(), "splits": {}, "config": cell.config("smoke").to_dict()}
    assert players_note({**record, "runs": [entry]}, world) is None
    entry["config"]["train"]["final_sequences"] = 64
    note = "Models are measured on 64 sequences of each split, players on 16."
    assert players_note({**record, "runs": [entry]}, world) == note
    assert note in TableView().table(recipe, {**record, "runs": [entry]}, world).notes


def test_a_claim_may_be_about_a_player():
    recipe, record = RECIPES["table2"], {"recipe": "table2", "scale": "smoke", "runs": []}
    record = with_run(record, entry(recipe, 0, value=0.95))
    near = Claim("near", At("MapWM-r2", "2D", "iid"), At("player: perfect", "2D", "iid"), margin=-0.1)
    assert check(near, recipe, record).verdict == "not measured"
    record["players"] = {"2D": {"perfect": {"iid": 1.0}}}
    assert check(near, recipe, record).holds is True
    assert check(replace(near, margin=-0.01), recipe, record).holds is False
