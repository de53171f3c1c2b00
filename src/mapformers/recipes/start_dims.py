"""`start-dims`: MapEM in three dimensions with faster velocities, on seed 101 (to choose).

With the settings of table 2 both forms of MapEM learn one or two of three axes on this seed: opposite actions have
movements that do not undo each other. The grid has 16 cells a side, so the slowest block starts at 2π/16, and with
ω_max 1 the fastest turns only two and a half times as far: velocities that are so close repeat themselves after a few
steps. (Table 2 has a grid of 64, where the fastest turns ten times as far as the slowest.)
"""

from typing import Any

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import IID
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import TableView

MODELS: dict[str, dict[str, Any]] = {"MapEM-os": {}, "MapEM-s": {"attend": "s"}}
FASTER = (2.0, 4.0)

START_DIMS = register_recipe(
    Recipe(
        name="start-dims",
        task="navigation",
        worlds={"3D": {"dims": 3}},
        rows=(
            *(Row(label, "mapem", own) for label, own in MODELS.items()),
            *(
                Row(f"{label}, ω_max {omega:g}", "mapem", {**own, "omega_max": omega})
                for omega in FASTER
                for label, own in MODELS.items()
            ),
        ),
        seeds=(101,),
        measures=(Splits({IID: "IID"}), Curve()),
        views=(TableView(),),
        finding="MapEM-os has {MapEM-os | 3D | iid} on iid sequences, with ω_max 2 {MapEM-os, ω_max 2 | 3D | iid}, "
        "with ω_max 4 {MapEM-os, ω_max 4 | 3D | iid}; MapEM-s {MapEM-s | 3D | iid}, {MapEM-s, ω_max 2 | 3D | iid} and "
        "{MapEM-s, ω_max 4 | 3D | iid}.",
    )
)
