"""`zero-mean`: MapWM with and without holding the mean movement at zero at first, on the torus (ours)."""

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import NAVIGATION, TORUS, TURNS
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import TableView

ZERO_MEAN = register_recipe(
    Recipe(
        name="zero-mean",
        task="navigation",
        worlds={"2D": {**TORUS, **TURNS}},
        rows=(
            Row("mean held at zero", "mapwm", {"rank": 2, "zero_mean_steps": 250}),
            Row("mean free", "mapwm", {"rank": 2, "zero_mean_steps": 0}),
        ),
        measures=(Splits(NAVIGATION), Curve()),
        views=(TableView(),),
        finding="With the mean movement held at zero in the first 250 steps MapWM recalls "
        "{mean held at zero | 2D | iid} on iid sequences, without {mean free | 2D | iid}.",
    )
)
