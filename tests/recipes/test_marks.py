"""Marks: what differs from the paper, what needs no map, and what had not converged, each explained under its table."""

import copy
import json
from dataclasses import replace

import pytest
from making import RECORD, a_record

from mapformers.cli.main import main
from mapformers.recipes import Curve, Splits, TableView
from mapformers.recipes.measures import is_converged
from mapformers.recipes.views.table import best_without_map
from mapformers.reports.marks import MARKS, MEANINGS, against, footnotes, marked

PLAYERS = {
    "1D": {
        "perfect": {"iid": 1.0, "ood-dense": 1.0},
        "best-lag": {"iid": 0.2, "ood-dense": None},
        "random": {"iid": 0.05, "ood-dense": 0.05},
    }
}


def rows(recipe, record):
    return {row[0]: row[1:] for row in TableView().table(recipe, record, "1D").rows}


@pytest.mark.parametrize(
    ("ours", "printed", "found"),
    [
        (0.94, 1.0, "below"),
        (0.95, 1.0, "near"),
        (0.9501, 1.0, "near"),
        (0.5, 0.45, "near"),
        (0.51, 0.45, "above"),
        (0.3, 0.3, "near"),
    ],
)
def test_a_difference_of_more_than_005_is_marked(ours, printed, found):
    assert against(ours, printed) == found


def test_every_mark_has_a_meaning_and_none_is_taken_for_text():
    assert set(MARKS.values()) == set(MEANINGS)
    assert marked("0.5 (0.4)", ["mapless", "above", "near"]) == "0.5 (0.4) ↑‡"
    assert [note[0] for note in footnotes(["0.5 (0.4) ↑‡", "x"])] == ["↑", "‡"]
    assert footnotes(["turned by 90°", "a † b", "°"]) == []


def test_a_line_below_the_best_player_without_a_map_is_marked_on_that_split(mini):
    record = {**RECORD, "players": PLAYERS}
    assert best_without_map(mini, record, "1D") == {"iid": 0.2, "ood-dense": 0.05}
    found = rows(mini, record)
    assert found["RoPE (tiny) °"] == ["1", "0.125 ‡", "0.062"]
    assert found["MapWM °"] == ["2", "0.625 ± 0.177 (0.75) ↓", "0.250 ± 0.000"]
    plain = TableView().table(mini, record, "1D", marks=False)
    assert plain.notes == [] and plain.rows[0] == ["RoPE (tiny)", "1", "0.125", "0.062"]


def test_of_a_metric_that_should_be_small_the_smallest_is_best(mini):
    lower = replace(mini, measures=(Splits(mini.splits, lower_is_better=True),))
    record = {**RECORD, "players": PLAYERS}
    assert best_without_map(lower, record, "1D")["iid"] == 0.05
    assert rows(lower, record)["RoPE (tiny) °"] == ["1", "0.125 ‡", "0.062 ‡"]


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([], None),
        ([0.5], None),
        ([0.2, 0.5], False),
        ([0.2, 0.995], True),  # at the goal
        ([0.5, 0.505], True),  # flat
        ([0.5, 0.3], True),  # it got worse: no more learning
        ([0.0] * 4 + [0.5, 0.51, 0.53, 0.54], False),
        ([0.0] * 4 + [0.5, 0.51, 0.51, 0.515], True),
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.99], True),
    ],
)
def test_a_run_has_converged_at_its_goal_or_where_its_curve_is_flat(values, found):
    assert is_converged(values, goal=0.99) is found


def test_a_loss_has_converged_where_it_falls_no_more():
    def run(*losses):
        return {"curve": [{"sequences": n, "loss": loss} for n, loss in enumerate(losses)]}

    curve = Curve("loss", lower_is_better=True)
    assert curve.converged(run(3.0, 2.0)) is False
    assert curve.converged(run(2.0, 1.995)) is True
    assert curve.converged(run(2.0, None)) is None  # one point is no curve


def test_a_line_of_which_a_seed_was_still_learning_is_marked(mini):
    record = copy.deepcopy(RECORD)
    record["runs"][0]["curve"][1]["accuracy"] = 0.3
    table = TableView().table(mini, record, "1D")
    assert [row[0] for row in table.rows] == ["RoPE (tiny) °", "MapWM ↗°"]
    assert any(note.startswith("↗ ") for note in table.notes)
    for run in record["runs"]:
        del run["curve"]
    assert "MapWM °" in rows(mini, record)  # unknown is not marked


@pytest.mark.parametrize("form", ["md", "markdown", "latex", "csv", "html", "terminal"])
def test_every_format_explains_its_marks(mini, tmp_path, capsys, form):
    record = {**a_record(("MapWM", 0, 0.1, 0.25), ("RoPE (tiny)", 0, 0.9, 0.9)), "players": PLAYERS}
    (tmp_path / "mini.json").write_text(json.dumps(record))
    assert main(["report", "mini", "--results", str(tmp_path), "--format", form]) == 0
    printed = capsys.readouterr().out
    marks = {"↓": "$\\downarrow$", "‡": "\\textdaggerdbl{}", "°": "\\textdegree{}"}
    for mark, latex in marks.items():
        assert f"{latex if form == 'latex' else mark} {MEANINGS[mark][:20]}" in printed


def test_further_metrics_stand_beside_the_main_one(mini):
    recipe = replace(mini, measures=(Splits(mini.splits, also=("accuracy_objects",)), Curve()))
    record = copy.deepcopy(RECORD)
    assert len(TableView().tables(recipe, record)) == 1  # no run has it
    for split in record["runs"][0]["splits"].values():
        split["accuracy_objects"] = {"value": 0.875, "count": 10}
    main_table, beside = TableView().tables(recipe, record)
    assert main_table == TableView().table(recipe, record, "1D")
    assert "accuracy_objects" in beside.title
    assert beside.rows == [["MapWM", "2", "0.875", "0.875"]]
    comparable = Splits(mini.splits, also=("accuracy_objects",), comparable=("accuracy_objects",))
    beside = TableView().tables(replace(recipe, measures=(comparable, Curve())), record)[1]
    assert beside.rows == [["MapWM", "2", "0.875 (0.75)", "0.875"]]
    assert all(measure.fits(measure.of(run)) for measure in recipe.measures for run in record["runs"])
