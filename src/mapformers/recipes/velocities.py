"""`velocities`: 2D navigation, 14,000 sequences, from three fastest velocities, on seeds 100 to 102 (to choose)."""

import math

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import IID
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import CurveView, TableView

TURN = 2 * math.pi

VELOCITIES = register_recipe(
    Recipe(
        name="velocities",
        task="navigation",
        worlds={"2D": {"dims": 2}},
        at_cpu={"2D": {"sequences": 14_000}},
        seeds=(100, 101, 102),
        rows=(
            Row("MapWM-r2, ω_max 1", "mapwm", {"omega_max": 1.0}),
            Row("MapWM-r2, ω_max π", "mapwm", {"omega_max": TURN / 2}),
            Row("MapWM-r2, ω_max 2π", "mapwm", {"omega_max": TURN}),
            Row("MapEM-os, ω_max 1", "mapem", {"omega_max": 1.0}),
            Row("MapEM-os, ω_max 2π", "mapem", {"omega_max": TURN}),
            Row("MapEM-s, ω_max 1", "mapem", {"attend": "s", "omega_max": 1.0}),
            Row("MapEM-s, ω_max 2π", "mapem", {"attend": "s", "omega_max": TURN}),
        ),
        measures=(Splits({IID: "IID"}), Curve()),
        views=(TableView(), CurveView()),
        finding="14,000 sequences give MapWM {MapWM-r2, ω_max 1 | 2D | iid} if its fastest velocity starts at 1, "
        "{MapWM-r2, ω_max π | 2D | iid} at π and {MapWM-r2, ω_max 2π | 2D | iid} at 2π.",
    )
)
