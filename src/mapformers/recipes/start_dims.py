"""`start-dims`: MapEM in three dimensions with smaller batches or faster velocities, on seeds 100 and 101 (to choose).

With the settings of table 2 some runs in three dimensions learn one or two axes: opposite actions have movements that
do not undo each other. Which runs do differs from seed to seed. Batches of 16 give as many sequences twice the steps.
"""

from typing import Any

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import IID
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import TableView

MODELS: dict[str, dict[str, Any]] = {"MapEM-os": {}, "MapEM-s": {"attend": "s"}}

START_DIMS = register_recipe(
    Recipe(
        name="start-dims",
        task="navigation",
        worlds={"3D": {"dims": 3}},
        rows=(
            *(Row(label, "mapem", own) for label, own in MODELS.items()),
            *(Row(f"{label}, batches of 16", "mapem", {**own, "batch_size": 16}) for label, own in MODELS.items()),
            *(Row(f"{label}, ω_max 2", "mapem", {**own, "omega_max": 2.0}) for label, own in MODELS.items()),
        ),
        seeds=(100, 101),
        measures=(Splits({IID: "IID"}), Curve()),
        views=(TableView(),),
        finding="MapEM-os has {MapEM-os | 3D | iid} on iid sequences, with batches of 16 "
        "{MapEM-os, batches of 16 | 3D | iid}, with ω_max 2 {MapEM-os, ω_max 2 | 3D | iid}; MapEM-s "
        "{MapEM-s | 3D | iid}, {MapEM-s, batches of 16 | 3D | iid} and {MapEM-s, ω_max 2 | 3D | iid}.",
    )
)
