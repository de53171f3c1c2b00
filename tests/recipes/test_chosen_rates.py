"""The learning rates of tables are those that the recipes made to choose them chose (docs/fidelity.md)."""

import json
import math
from collections import defaultdict
from pathlib import Path

import pytest

from mapformers.recipes import RECIPES
from mapformers.recipes.language import AS_ROPE, RATE_AS_IN_THE_PAPER, RATE_OF_ROPE, RATE_TUNED, SLOWER, TUNED
from mapformers.recipes.rates_lm import RATES, WORLD
from mapformers.recipes.rates_lm_whole import TRIED, label

RESULTS = Path(__file__).parents[2] / "results"
TABLES = {f"rates-{table}": table for table in ("table1", "table2", "dyck", "ssm")}
CLOSE = 0.005  # of two rates as near as this to the best the lower is taken


def best_rate(by_world: dict[str, dict[float, float]]) -> float:
    """The best on iid in the first world of the recipe; of several that are close the next world decides, if it was
    measured, or else the lower is taken."""
    tied = set(next(iter(by_world.values())))
    for scores in by_world.values():
        best = max((scores[rate] for rate in tied if rate in scores), default=-math.inf)
        tied = {rate for rate in tied if scores.get(rate, best) >= best - CLOSE}
    return min(tied)


def is_decided(scores: dict[float, float], n_rates: int) -> bool:
    """Whether all rates were tried, or one of them leaves nothing to gain."""
    return len(scores) == n_rates or max(scores.values(), default=0.0) >= 1 - CLOSE


def recorded(name: str, split: str = "iid") -> dict[str, dict[str, dict[float, float]]]:
    """Row -> world -> rate -> its score on the split that chooses, of which more is better."""
    file = RESULTS / f"{name}.json"
    if not file.exists():
        pytest.skip(f"{name} is not recorded")
    found: dict[str, dict[str, dict[float, float]]] = defaultdict(lambda: defaultdict(dict))
    metric = RECIPES[name].metric
    for run in json.loads(file.read_text(encoding="utf-8"))["runs"]:
        value = run["splits"][split][metric]["value"]
        found[run["row"]][run["world"]][run["sweep"].get("lr")] = -math.log(value) if metric == "perplexity" else value
    return found


@pytest.mark.parametrize("rates, table", TABLES.items())
def test_rows_have_the_rate_that_was_best_on_a_seed_held_apart(rates, table):
    recipe, n_rates = RECIPES[table], len(RECIPES[rates].sweep["lr"])
    taken, chosen = {}, {}
    for row, by_world in recorded(rates).items():
        decided = {w: by_world[w] for w in RECIPES[rates].worlds if is_decided(by_world[w], n_rates)}
        if not decided or row not in [own.label for own in recipe.rows]:
            continue
        chosen[row] = best_rate(decided)
        taken[row] = recipe.cell(row, next(iter(recipe.worlds))).config("cpu").train.lr
    assert chosen and taken == chosen


def test_rates_on_text_are_those_of_the_lowest_perplexity():
    """The whole budget decides among the best of half of it; of two whose perplexities differ by less than half a
    percent the lower rate is taken, and of two such paths the one that was in use stays."""
    short = {row: by_world[WORLD] for row, by_world in recorded("rates-lm", "val").items()}
    found = {row: by_world[WORLD] for row, by_world in recorded("rates-lm-whole", "val").items()}
    tried = {row: rates for row, (_, _, rates) in TRIED.items() if all(label(row, rate) in found for rate in rates)}
    whole = {row: {rate: found[label(row, rate)][None] for rate in rates} for row, rates in tried.items()}
    for row, scores in short.items():
        best = max(scores, key=scores.__getitem__)
        assert set(scores) == set(RATES) and best in whole[row], row
        assert min(whole[row]) < max(whole[row], key=whole[row].__getitem__), f"{row}: a lower rate may be better"
    chosen = {row: best_rate({WORLD: scores}) for row, scores in whole.items()}
    gain = max(whole["MapWM, slower path"].values()) - max(whole["MapWM, from RoPE"].values())
    row, settings = ("MapWM, slower path", SLOWER) if gain > CLOSE else ("MapWM, from RoPE", AS_ROPE)
    assert (chosen["RoPE"], chosen["MapWM, paper"]) == (RATE_OF_ROPE, RATE_AS_IN_THE_PAPER)
    assert (settings, chosen[row]) == (TUNED, RATE_TUNED)


def test_close_rates_are_told_apart_by_another_world_or_the_lower_is_taken():
    first = {3e-4: 0.5, 1e-3: 0.897, 3e-3: 0.9}
    assert best_rate({"one": first}) == 1e-3
    assert best_rate({"one": first, "two": {3e-4: 0.99, 1e-3: 0.8, 3e-3: 0.9}}) == 3e-3
    assert best_rate({"one": {3e-4: 0.5, 1e-3: 0.89, 3e-3: 0.9}}) == 3e-3


def test_a_rate_that_leaves_nothing_to_gain_ends_the_search():
    assert is_decided({1e-3: 0.996}, n_rates=3) and not is_decided({1e-3: 0.99}, n_rates=3)
    assert is_decided({3e-4: 0.1, 1e-3: 0.2, 3e-3: 0.3}, n_rates=3) and not is_decided({}, n_rates=3)
    assert best_rate({"whole": {1e-3: 0.996}, "quarter": {3e-4: 0.2, 1e-3: 0.3, 3e-3: 0.9}}) == 1e-3
