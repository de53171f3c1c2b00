"""The learning rates of tables are those that the recipes made to choose them chose (docs/fidelity.md)."""

import json
from collections import defaultdict
from pathlib import Path

import pytest

from mapformers.recipes import RECIPES

RESULTS = Path(__file__).parents[2] / "results"
TABLES = {"rates-table1": "table1", "rates-table2": "table2", "rates-dyck": "dyck", "rates-ssm": "ssm"}
CLOSE = 0.005  # of two rates as near as this to the best the lower is taken


def best_rate(by_world: dict[str, dict[float, float]]) -> float:
    """The best on iid in the first world of the recipe; of several that are close the next world decides, if it was
    measured, or else the lower is taken."""
    tied = set(next(iter(by_world.values())))
    for scores in by_world.values():
        best = max(scores[rate] for rate in tied)
        tied = {rate for rate in tied if scores[rate] >= best - CLOSE}
    return min(tied)


def recorded(name: str) -> dict[str, dict[str, dict[float, float]]]:
    """Row -> world -> rate -> its score on iid."""
    file = RESULTS / f"{name}.json"
    if not file.exists():
        pytest.skip(f"{name} is not recorded")
    found: dict[str, dict[str, dict[float, float]]] = defaultdict(lambda: defaultdict(dict))
    metric = RECIPES[name].measures[0].metric
    for run in json.loads(file.read_text(encoding="utf-8"))["runs"]:
        found[run["row"]][run["world"]][run["sweep"]["lr"]] = run["splits"]["iid"][metric]["value"]
    return found


@pytest.mark.parametrize("rates, table", TABLES.items())
def test_rows_have_the_rate_that_was_best_on_a_seed_held_apart(rates, table):
    recipe, n_rates = RECIPES[table], len(RECIPES[rates].sweep["lr"])
    taken, chosen = {}, {}
    for row, by_world in recorded(rates).items():
        complete = {world: by_world[world] for world in RECIPES[rates].worlds if len(by_world[world]) == n_rates}
        if not complete or row not in [own.label for own in recipe.rows]:
            continue
        chosen[row] = best_rate(complete)
        taken[row] = recipe.cell(row, next(iter(recipe.worlds))).config("cpu").train.lr
    assert chosen and taken == chosen


def test_close_rates_are_told_apart_by_another_world_or_the_lower_is_taken():
    first = {3e-4: 0.5, 1e-3: 0.897, 3e-3: 0.9}
    assert best_rate({"one": first}) == 1e-3
    assert best_rate({"one": first, "two": {3e-4: 0.99, 1e-3: 0.8, 3e-3: 0.9}}) == 3e-3
    assert best_rate({"one": {3e-4: 0.5, 1e-3: 0.89, 3e-3: 0.9}}) == 3e-3
