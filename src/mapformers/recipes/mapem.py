"""`mapem`: MapEM by what it attends to, with keys up to the query itself or strictly earlier, on the torus (ours)."""

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import NAVIGATION, TORUS, TURNS
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import CurveView, TableView

EARLIER = {"self_key": False}

MAPEM = register_recipe(
    Recipe(
        name="mapem",
        task="navigation",
        worlds={"2D": {**TORUS, **TURNS}},
        rows=(
            Row("MapEM-os", "mapem", {"attend": "os"}),
            Row("MapEM-os, earlier keys", "mapem", {"attend": "os", **EARLIER}),
            Row("MapEM-s", "mapem", {"attend": "s"}),
            Row("MapEM-s, earlier keys", "mapem", {"attend": "s", **EARLIER}),
        ),
        measures=(Splits(NAVIGATION), Curve()),
        views=(TableView(), CurveView()),
        finding="MapEM-os recalls {MapEM-os | 2D | iid} on iid sequences, {MapEM-os, earlier keys | 2D | iid} with "
        "strictly earlier keys; structure alone {MapEM-s | 2D | iid} and {MapEM-s, earlier keys | 2D | iid}.",
    )
)
