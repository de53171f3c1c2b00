"""`ablations`: 2D navigation with one thing changed at a time: start, velocities, keys, sharpness (ours)."""

import math

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import LOG_N, NAVIGATION, TURNS, rate
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import CurveView, TableView

STRUCTURE, EARLIER, ORDINARY = {"attend": "s"}, {"self_key": False}, {"init": "ordinary"}

ABLATIONS = register_recipe(
    Recipe(
        name="ablations",
        task="navigation",
        worlds={"2D": {"dims": 2}},
        rows=(
            Row("MapWM-r2", "mapwm"),
            Row("MapWM-r2, four times the budget", "mapwm", at_cpu={"sequences": 160_000}),
            Row("MapWM-r2, log n", "mapwm", LOG_N),
            Row("MapWM-r2, ordinary start", "mapwm", ORDINARY),
            Row("MapWM-r2, earlier keys", "mapwm", EARLIER),
            Row("MapWM-r2, ω fixed", "mapwm", {"learn_omega": False}),
            Row("MapWM-r2, ω_max 2π", "mapwm", TURNS),
            Row("MapWM-r2, ω_max π", "mapwm", {"omega_max": math.pi}),
            Row("MapWM-r2, mean free", "mapwm", {"zero_mean_steps": 0}),
            Row("MapEM-os", "mapem"),
            Row("MapEM-os, log n", "mapem", LOG_N),
            Row("MapEM-os, learned sharpness", "mapem", {"learn_sharpness": True}),
            Row("MapEM-os, ordinary start", "mapem", ORDINARY),
            Row("MapEM-os, one origin", "mapem", {"origins": "shared"}),
            Row("MapEM-os, independent origins", "mapem", {"origins": "independent"}),
            Row("MapEM-os, earlier keys", "mapem", EARLIER),
            Row("MapEM, gated", "mapem", {"attend": "gated"}),
            Row("MapEM-os, ω_max 2π", "mapem", TURNS),
            Row("MapEM-s", "mapem", STRUCTURE),
            Row("MapEM-s, log n", "mapem", {**STRUCTURE, **LOG_N}),
            Row("MapEM-s, ordinary start", "mapem", {**STRUCTURE, **ORDINARY}),
            Row("MapEM-s, earlier keys", "mapem", {**STRUCTURE, **EARLIER}),
            Row("RoPE (1L)", "rope", at_cpu=rate(1e-3)),
            Row("RoPE (1L), log n", "rope", LOG_N, at_cpu=rate(1e-3)),
            Row("RoPE (1L), ordinary start", "rope", ORDINARY, at_cpu=rate(1e-3)),
            Row("RoPE (1L), earlier keys", "rope", EARLIER, at_cpu=rate(1e-3)),
            Row("CoPE (1L)", "cope", at_cpu=rate(1e-3)),
            Row("CoPE (1L), log n", "cope", LOG_N, at_cpu=rate(1e-3)),
            Row("CoPE (1L), ordinary start", "cope", ORDINARY, at_cpu=rate(1e-3)),
            Row("TEM-t (told the actions)", "tem-t"),
        ),
        measures=(Splits(NAVIGATION, also=("accuracy_objects",), comparable=("accuracy_objects",)), Curve()),
        views=(TableView(), CurveView(together=True)),
        finding="On walks of 512 steps MapWM-r2 recalls {MapWM-r2 | 2D | ood-sparse-512}, with four times the budget "
        "{MapWM-r2, four times the budget | 2D | ood-sparse-512}, and with logits that grow with log n "
        "{MapWM-r2, log n | 2D | ood-sparse-512}; MapEM-os {MapEM-os | 2D | ood-sparse-512}, with log n "
        "{MapEM-os, log n | 2D | ood-sparse-512}, and with a learned sharpness "
        "{MapEM-os, learned sharpness | 2D | ood-sparse-512}.",
    )
)
