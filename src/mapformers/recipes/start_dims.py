"""`start-dims`: how MapEM starts in three dimensions, with a quarter of the budget on seeds 103 and 105 (to choose).

With the settings of table 2 both forms of MapEM often learn one or two of three axes. Walks are 512 tokens long here,
twice as long as there, so a batch of 16 has as many tokens as one of 32 there. Attention starts nearly uniform over all
keys, and the one key that always matches is the query's own, which says nothing: larger origins make attention sharper
from the first step, and without the own key ("earlier keys") the best match is an earlier visit.
"""

from typing import Any

from mapformers.recipes.dims import AS_MANY_TOKENS, EARLIER, OS, S
from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import IID
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import TableView

ROWS: dict[str, dict[str, Any]] = {
    "MapEM-os, origins 0.4": {"attend": "os"},
    "MapEM-os, origins 0.8": OS,
    "MapEM-os, origins 0.8, earlier keys": {**OS, **EARLIER},
    "MapEM-s, origins 0.8": S,
    "MapEM-s, origins 0.8, earlier keys": {**S, **EARLIER},
}

START_DIMS = register_recipe(
    Recipe(
        name="start-dims",
        task="navigation",
        worlds={"3D": {"dims": 3}},
        at_cpu={"3D": {**AS_MANY_TOKENS, "sequences": 10_000}},
        rows=tuple(Row(label, "mapem", settings) for label, settings in ROWS.items()),
        seeds=(103, 105),
        measures=(Splits({IID: "IID"}), Curve()),
        views=(TableView(),),
        finding="After a quarter of the budget, on iid sequences: "
        + ", ".join(f"{label} {{{label} | 3D | iid}}" for label in ROWS)
        + ".",
    )
)
