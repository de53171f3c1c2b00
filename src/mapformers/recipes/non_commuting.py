"""`non-commuting`: walks on the dihedral group of the 16-gon, whose actions do not commute (ours; D.2)."""

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import THREE, rate
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import CurveView, TableView

STRUCTURE = {"attend": "s"}

NON_COMMUTING = register_recipe(
    Recipe(
        name="non-commuting",
        task="graph",
        worlds={"dihedral": {"world": "dihedral", "steps": 64}},
        rows=(
            Row("RoPE", "rope", at_cpu=rate(1e-3)),
            Row("MapWM", "mapwm", {"rank": 3}),
            Row("MapEM-os", "mapem", {"rank": 3}),
            Row("MapEM-s", "mapem", {"rank": 3, **STRUCTURE}),
            Row("MapWM-NC-4", "mapwm-nc"),
            Row("MapEM-NC-4-os", "mapem-nc"),
            Row("MapEM-NC-4-s", "mapem-nc", STRUCTURE),
        ),
        measures=(Splits(THREE), Curve()),
        views=(TableView(), CurveView()),
        finding="On iid sequences MapWM, whose movements commute, recalls {MapWM | dihedral | iid}, MapWM-NC, whose "
        "movements need not, {MapWM-NC-4 | dihedral | iid}.",
    )
)
