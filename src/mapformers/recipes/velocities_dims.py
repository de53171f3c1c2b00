"""`velocities-dims`: MapEM in three dimensions from a slower velocity, on seeds 100 and 101 (to choose).

Opposite actions must undo each other in every block. Where a step turns a block by more than π, a sum of 2π does as
well for that block but for no other, and no gradient leads from there to a sum of zero.
"""

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import IID
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import TableView

VELOCITIES_DIMS = register_recipe(
    Recipe(
        name="velocities-dims",
        task="navigation",
        worlds={"3D": {"dims": 3}},
        rows=(Row("MapEM-os", "mapem"), Row("MapEM-s", "mapem", {"attend": "s"})),
        seeds=(100, 101),
        sweep={"omega_max": (0.5, 1.0)},
        measures=(Splits({IID: "IID"}), Curve()),
        views=(TableView(),),
        finding="From a fastest velocity of 0.5 and 1 MapEM-os has {MapEM-os, omega_max=0.5 | 3D | iid} and "
        "{MapEM-os, omega_max=1.0 | 3D | iid} on iid sequences, MapEM-s {MapEM-s, omega_max=0.5 | 3D | iid} and "
        "{MapEM-s, omega_max=1.0 | 3D | iid}.",
    )
)
