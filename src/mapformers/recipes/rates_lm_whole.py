"""`rates-lm-whole`: the best rates of `rates-lm` with the whole budget of `lm`, on seed 100 (to choose).

A short schedule favours a high rate, so what is best with half of the budget is run again with all of it, and so are
lower rates until one is worse. A path that learns more slowly and one with weight decay, which `start-lm` has found no
worse, are run too.
"""

from typing import Any

from mapformers.recipes.language import AS_IN_THE_PAPER, AS_ROPE, SEQUENCES, SLOWER
from mapformers.recipes.rates_lm import BOOKS, CHOSEN, MEASURES, WORLD
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import TableView

TRIED: dict[str, tuple[str, dict[str, Any], tuple[float, ...]]] = {
    "RoPE": ("rope", {}, (5e-3, 8e-3, 1.2e-2)),
    "MapWM, paper": ("mapwm", AS_IN_THE_PAPER, (3e-3, 5e-3)),
    "MapWM, from RoPE": ("mapwm", AS_ROPE, (5e-3, 8e-3)),
    "MapWM, slower path": ("mapwm", SLOWER, (8e-3, 1.2e-2)),
    "MapWM, path with weight decay": ("mapwm", {**AS_ROPE, "path_decay": 1.0}, (8e-3,)),
}


def label(row: str, rate: float) -> str:
    return f"{row}, {rate:g}"


def in_a_sentence(row: str) -> str:
    """A row with the figure of every rate, for the sentence of the recipe."""
    return f"{row} " + ", ".join(f"{{{label(row, rate)} | {WORLD} | val}} ({rate:g})" for rate in TRIED[row][2])


RATES_LM_WHOLE = register_recipe(
    Recipe(
        name="rates-lm-whole",
        task="text",
        worlds={WORLD: {**BOOKS, "sequences": SEQUENCES}},
        rows=tuple(
            Row(label(row, rate), model, {**settings, "lr": rate})
            for row, (model, settings, rates) in TRIED.items()
            for rate in rates
        ),
        seeds=(100,),
        measures=MEASURES,
        chosen=CHOSEN,
        views=(TableView(),),
        finding=f"Perplexity, in brackets the rate: {'; '.join(map(in_a_sentence, TRIED))}.",
    )
)
