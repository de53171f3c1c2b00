"""`start-dims`: how large the origins of MapEM start in 3D, a quarter of the budget, seeds 101 and 104 (to choose).

With the settings of table 2 both forms of MapEM often learn one or two of three axes. Walks are 512 tokens long here,
twice as long as there, so a batch of 16 has as many tokens as one of 32 there. And a match on one axis of three is
worth a third: attention starts nearly uniform over all keys, the key that matches gets hardly any gradient, and
movements grow until a step turns blocks by more than π, where opposite actions no longer find each other. Larger
origins make attention sharper from the first step.
"""

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import IID
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import CurveView, TableView

SPREADS = {"os": (0.4, 0.8, 1.2), "s": (0.8, 1.2, 1.6)}  # the first of each is that of table 2


def label(attend: str, spread: float) -> str:
    return f"MapEM-{attend}, origins {spread:g}"


def figures(attend: str) -> str:
    """Where the sentence of the recipe has the figures of a form."""
    return ", ".join(f"{{{label(attend, spread)} | 3D | iid}}" for spread in SPREADS[attend])


def spreads(attend: str) -> str:
    return ", ".join(f"{spread:g}" for spread in SPREADS[attend])


START_DIMS = register_recipe(
    Recipe(
        name="start-dims",
        task="navigation",
        worlds={"3D": {"dims": 3}},
        at_cpu={"3D": {"batch_size": 16, "sequences": 10_000}},
        rows=tuple(
            Row(label(attend, spread), "mapem", {"attend": attend, "origin_std": spread})
            for attend in SPREADS
            for spread in SPREADS[attend]
        ),
        seeds=(101, 104),
        measures=(Splits({IID: "IID"}), Curve()),
        views=(TableView(), CurveView(together=True)),
        finding=f"With origins of a spread of {spreads('os')} MapEM-os has {figures('os')} on iid sequences after a "
        f"quarter of the budget; with one of {spreads('s')} MapEM-s has {figures('s')}.",
    )
)
