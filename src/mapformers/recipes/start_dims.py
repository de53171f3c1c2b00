"""`start-dims`: the spread of MapEM's origins and the size of batches in three dimensions, on seed 101 (to choose).

With the settings of table 2 both forms of MapEM learn one or two of three axes on this seed. Walks are 512 tokens long
here, twice as long as in table 2, so a batch of 16 has as many tokens as one of 32 there. And a match on one axis of
three is worth a third: attention starts nearly uniform over all keys, and the key that matches gets hardly any
gradient. Larger origins make it sharper from the first step.
"""

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import IID
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import CurveView, TableView

BATCHES = (16, 32)
OS, LARGER, S = "MapEM-os, origins 0.4", "MapEM-os, origins 0.8", "MapEM-s, origins 0.8"


def figures(row: str) -> str:
    """Where the sentence of the recipe has the figures of a row."""
    return " and ".join(f"{{{row}, batch_size={size} | 3D | iid}}" for size in BATCHES)


START_DIMS = register_recipe(
    Recipe(
        name="start-dims",
        task="navigation",
        worlds={"3D": {"dims": 3}},
        rows=(
            Row(OS, "mapem", {"origin_std": 0.4}),
            Row(LARGER, "mapem", {"origin_std": 0.8}),
            Row(S, "mapem", {"attend": "s", "origin_std": 0.8}),
        ),
        seeds=(101,),
        sweep={"batch_size": BATCHES},
        measures=(Splits({IID: "IID"}), Curve()),
        views=(TableView(), CurveView(together=True)),
        finding="With batches of 16 and of 32 MapEM-os has "
        f"{figures(OS)} on iid sequences if its origins start as N(0, 0.4²), {figures(LARGER)} if they start as "
        f"N(0, 0.8²); MapEM-s, whose origins always start so, has {figures(S)}.",
    )
)
