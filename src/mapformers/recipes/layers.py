"""`layers`: every layer on a small 2D torus, with the players (ours)."""

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import THREE, TORUS, TURNS, rate
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import CurveView, TableView

WORLD = "2D, 64 steps"

LAYERS_TABLE = register_recipe(
    Recipe(
        name="layers",
        task="navigation",
        worlds={WORLD: {**TORUS, "steps": 64, "grid": 32}},
        rows=(
            Row("NoPE", "nope", at_cpu=rate(1e-3)),
            Row("RoPE", "rope", at_cpu=rate(1e-3)),
            Row("CoPE", "cope", at_cpu=rate(1e-3)),
            Row("TAPE", "tape", at_cpu=rate(1e-3)),
            Row("PaTH", "path", at_cpu=rate(1e-3)),
            Row("Mamba", "mamba", {"d_state": 32}, at_cpu=rate(1e-3)),
            Row("MAmPa", "mampa", TURNS),
            Row("TEM-t (told the actions)", "tem-t"),
            Row("MapWM", "mapwm", TURNS),
            Row("MapWM, fading", "mapwm", {**TURNS, "decay": True}),
            Row("MapWM-NC", "mapwm-nc", TURNS),
            Row("MapEM-os", "mapem", TURNS),
            Row("MapEM-s", "mapem", {**TURNS, "attend": "s"}),
            Row("MapEM-s, earlier keys", "mapem", {**TURNS, "attend": "s", "self_key": False}),
            Row("MapEM, gated", "mapem", {**TURNS, "attend": "gated"}),
            Row("MapEM-NC-os", "mapem-nc", TURNS),
            Row("MapEM-NC-s", "mapem-nc", {**TURNS, "attend": "s"}),
            Row("MapEM-NC-s, earlier keys", "mapem-nc", {**TURNS, "attend": "s", "self_key": False}),
        ),
        measures=(Splits(THREE), Curve()),
        views=(TableView(), CurveView()),
        finding=f"In larger and emptier worlds MapWM recalls {{MapWM | {WORLD} | ood-sparse}}, PaTH "
        f"{{PaTH | {WORLD} | ood-sparse}} and RoPE {{RoPE | {WORLD} | ood-sparse}}.",
    )
)
