"""`evaluate_grid` is `evaluate` at every pair of two settings, with holes where a pair cannot be had."""

import json
import math

import pytest
import torch

import mapformers as mf
import mapformers.players.dyck
from mapformers.evaluation.grid import Grid, evaluate_grid


@pytest.fixture
def task():
    return mf.build_task("dyck")


def openers(tokens):
    return torch.tensor([5.0, 5.0, -5.0, -5.0]).expand(*tokens.shape, 4)


def test_every_cell_is_what_evaluate_says(task):
    grid = evaluate_grid(openers, task, [8, 16, 32], [2, 4, 8], n_sequences=20, seed=3)
    assert (grid.names, grid.metric) == (("length", "depth"), "f1")
    for length in (8, 16, 32):
        for depth in (2, 4, 8):
            if 2 * depth > length:
                assert grid.at(length, depth) is None
                continue
            scores = mf.evaluate(openers, task, {"length": length, "depth": depth}, n_sequences=20, seed=3)
            assert grid.at(length, depth) == scores["f1"]
            assert grid.at(length, depth).count == 20 * (length - 1)


def test_impossible_pairs_are_nan_in_the_matrix_and_null_in_json(task):
    grid = evaluate_grid("perfect", task, (4, 8), (1, 4), n_sequences=4)
    assert grid.matrix()[1] == [1.0, 1.0]
    assert grid.matrix()[0][0] == 1.0 and math.isnan(grid.matrix()[0][1])
    assert json.loads(json.dumps(grid.to_dict(), allow_nan=False)) == {
        "axes": {"length": [4, 8], "depth": [1, 4]},
        "metric": "f1",
        "values": [[1.0, None], [1.0, 1.0]],
        "counts": [[12, 0], [28, 28]],
    }


def test_a_player_is_built_for_every_cell(task):
    """Bayes knows one length only."""
    learned = mf.build_task("dyck", loss="next-token")
    grid = evaluate_grid("bayes", learned, [8, 16], [2, 3], n_sequences=400)
    for length in (8, 16):
        for depth in (2, 3):
            best = learned.best_f1({"length": length, "depth": depth})
            assert grid.at(length, depth) == pytest.approx(best, abs=0.02)


def test_other_tasks_settings_and_metrics():
    task = mf.build_task("navigation", dims=2)
    grid = evaluate_grid(
        lambda tokens: torch.nn.functional.one_hot(torch.full_like(tokens, task.empty_id), task.vocab_size).float(),
        task,
        [16, 32],
        [0.0, 1.0],
        names=("steps", "p_empty"),
        split={"grid": 4},
        metric="accuracy_all_revisits",
        n_sequences=8,
    )
    assert grid.matrix() == [[0.0, 1.0], [0.0, 1.0]]
    nothing = evaluate_grid("perfect", task, [16], [1.0], names=("steps", "p_empty"), n_sequences=8)
    assert nothing.to_dict()["values"] == [[None]] and nothing.at(16, 1.0).count == 0


def test_the_rest_is_as_in_the_split(task):
    grid = evaluate_grid(openers, task, [2], [16], names=("types", "depth"), split="ood-long", n_sequences=8)
    assert grid.at(2, 16).count == 8 * 127


def test_the_table_has_a_line_for_each_row(task):
    lines = str(evaluate_grid("perfect", task, [4, 128], [1, 12], n_sequences=2)).splitlines()
    assert lines[0] == "f1"
    assert lines[1].split() == ["length", "\\", "depth", "1", "12"]
    assert [line.split() for line in lines[2:]] == [["4", "1.000"], ["128", "1.000", "1.000"]]
    assert len({len(line) for line in lines[1:]}) == 1


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"rows": [3, 5]}, "length must be even"),
        ({"rows": []}, "at least one value of length and one of depth"),
        ({"names": ("depth", "depth")}, "two different settings, not 'depth' twice"),
        ({"names": ("lenght", "depth")}, "did you mean 'length'"),
        ({"split": "ood-lon"}, "did you mean 'ood-long'"),
        ({"split": {"depth": 0}}, "depth must be at least 1"),
        ({"metric": "accuracy"}, "no metric 'accuracy' of task 'dyck', only f1, precision, recall, closer_accuracy"),
        ({"model": "prefect"}, "did you mean 'perfect'"),
    ],
    ids=["all impossible", "no values", "twice", "setting", "split", "settings of split", "metric", "player"],
)
def test_what_is_wrong_everywhere_is_refused_in_one_sentence(task, asked, sentence):
    asked = {"model": openers, "rows": [8, 16], "columns": [2], "n_sequences": 2, **asked}
    with pytest.raises(mf.UserError, match=sentence):
        evaluate_grid(task=task, **asked)


def test_a_grid_is_plain_data():
    grid = Grid(("a", "b"), (1,), (2,), "f1", ((mf.Metric(0.5, 4),),))
    assert grid.at(1, 2) == 0.5
    with pytest.raises(ValueError):
        grid.at(2, 2)
