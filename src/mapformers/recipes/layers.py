"""`layers`: every layer on a small 2D torus, with the players (ours)."""

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import THREE, rate
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import CurveView, TableView

WORLD = "2D, 64 steps"

LAYERS_TABLE = register_recipe(
    Recipe(
        name="layers",
        task="navigation",
        worlds={WORLD: {"dims": 2, "steps": 64, "grid": 32, "edges": "torus"}},
        rows=(
            Row("NoPE", "nope", rate(1e-3)),
            Row("RoPE", "rope", rate(1e-3)),
            Row("CoPE", "cope", rate(1e-3)),
            Row("TAPE", "tape", rate(1e-3)),
            Row("PaTH", "path", rate(1e-3)),
            Row("Mamba", "mamba", {"d_state": 32, **rate(1e-3)}),
            Row("MAmPa", "mampa"),
            Row("TEM-t (told the actions)", "tem-t"),
            Row("MapWM", "mapwm"),
            Row("MapWM, fading", "mapwm", {"decay": True}),
            Row("MapWM-NC", "mapwm-nc"),
            Row("MapEM-os", "mapem"),
            Row("MapEM-s", "mapem", {"attend": "s"}),
            Row("MapEM-s, earlier keys", "mapem", {"attend": "s", "self_key": False}),
            Row("MapEM, gated", "mapem", {"attend": "gated"}),
            Row("MapEM-NC-os", "mapem-nc"),
            Row("MapEM-NC-s", "mapem-nc", {"attend": "s"}),
            Row("MapEM-NC-s, earlier keys", "mapem-nc", {"attend": "s", "self_key": False}),
        ),
        measures=(Splits(THREE), Curve()),
        views=(TableView(), CurveView()),
        finding=f"In larger and emptier worlds MapWM recalls {{MapWM | {WORLD} | ood-sparse}}, PaTH "
        f"{{PaTH | {WORLD} | ood-sparse}} and RoPE {{RoPE | {WORLD} | ood-sparse}}.",
    )
)
