"""`mapem-start`: MapEM-os from several starts on the torus, one thing changed in each, and as written (ours)."""

from mapformers.recipes.mapem import EARLIER
from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import NAVIGATION, TORUS, TURNS
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import CurveView, TableView

# Half of the usual sequences: enough to tell the ways to start apart.
SHORT = {"sequences": 20_000}
FREE = {**SHORT, "zero_mean_steps": 0}
AS_WRITTEN = {"origins": "independent", "qk_scale": 1.0, **FREE}

MAPEM_START = register_recipe(
    Recipe(
        name="mapem-start",
        task="navigation",
        worlds={"2D": {**TORUS, **TURNS}},
        rows=(
            Row("default", "mapem", SHORT),
            Row("mean free", "mapem", FREE),
            Row("origins independent", "mapem", {"origins": "independent", **SHORT}),
            Row("origins twice as large", "mapem", {"origin_std": 0.8, **SHORT}),
            Row("W_q, W_k a fifth", "mapem", {"qk_scale": 0.1, **SHORT}),
            Row("W_q, W_k twice", "mapem", {"qk_scale": 1.0, **SHORT}),
            Row("as written", "mapem", AS_WRITTEN),
            Row("as written, earlier keys", "mapem", {**AS_WRITTEN, **EARLIER}),
        ),
        measures=(Splits(NAVIGATION), Curve()),
        views=(TableView(), CurveView()),
        finding="From our start MapEM-os recalls {default | 2D | iid} on iid sequences after 20,000 of them, "
        "from the start as one would write it {as written | 2D | iid}.",
    )
)
