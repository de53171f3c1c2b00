"""`start-dims`: MapEM in three dimensions with faster velocities, on seed 101 (to choose).

With the settings of table 2 both forms of MapEM learn one or two of three axes on this seed: opposite actions have
movements that do not undo each other. The grid has 16 cells a side, so the slowest block starts at 2π/16, and with
ω_max 1 the fastest turns only two and a half times as far: velocities that are so close repeat themselves after a few
steps. (Table 2 has a grid of 64, where the fastest turns ten times as far as the slowest.)
"""

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import IID
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import TableView

START_DIMS = register_recipe(
    Recipe(
        name="start-dims",
        task="navigation",
        worlds={"3D": {"dims": 3}},
        rows=(Row("MapEM-os", "mapem"), Row("MapEM-s", "mapem", {"attend": "s"})),
        seeds=(101,),
        sweep={"omega_max": (1.0, 2.0, 4.0)},
        measures=(Splits({IID: "IID"}), Curve()),
        views=(TableView(),),
        finding="With ω_max 1, 2 and 4 MapEM-os has {MapEM-os, omega_max=1.0 | 3D | iid}, "
        "{MapEM-os, omega_max=2.0 | 3D | iid} and {MapEM-os, omega_max=4.0 | 3D | iid} on iid sequences, MapEM-s "
        "{MapEM-s, omega_max=1.0 | 3D | iid}, {MapEM-s, omega_max=2.0 | 3D | iid} and "
        "{MapEM-s, omega_max=4.0 | 3D | iid}.",
    )
)
