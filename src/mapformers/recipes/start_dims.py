"""`start-dims`: how large the origins of MapEM start in three dimensions, on seed 101 (to choose).

With the origins of table 2 both forms of MapEM learn one or two of three axes on this seed. Walks are 512 tokens long
here, twice as long as in table 2, and a match on one axis of three is worth a third: attention starts nearly uniform over
all keys, and the key that matches gets hardly any gradient. Larger origins make it sharper from the first step.
"""

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import IID
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import CurveView, TableView

SPREADS = {"os": (0.4, 0.8, 1.2), "s": (0.8, 1.2)}  # the first of each is that of table 2


def label(attend: str, spread: float) -> str:
    return f"MapEM-{attend}, origins {spread:g}"


def figure(attend: str, spread: float) -> str:
    """Where the sentence of the recipe has the figure of a row."""
    return f"{{{label(attend, spread)} | 3D | iid}}"


START_DIMS = register_recipe(
    Recipe(
        name="start-dims",
        task="navigation",
        worlds={"3D": {"dims": 3}},
        rows=tuple(
            Row(label(attend, spread), "mapem", {"attend": attend, "origin_std": spread})
            for attend, spreads in SPREADS.items()
            for spread in spreads
        ),
        seeds=(101,),
        measures=(Splits({IID: "IID"}), Curve()),
        views=(TableView(), CurveView(together=True)),
        finding="With origins that start as N(0, 0.4²), N(0, 0.8²) and N(0, 1.2²) MapEM-os has "
        f"{figure('os', 0.4)}, {figure('os', 0.8)} and {figure('os', 1.2)} on iid sequences; with N(0, 0.8²) and "
        f"N(0, 1.2²) MapEM-s has {figure('s', 0.8)} and {figure('s', 1.2)}.",
    )
)
