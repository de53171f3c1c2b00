"""`zero-mean-dims`: MapEM in three dimensions with the mean movement held at zero for longer (to choose).

When 250 steps were over, a run on seed 0 (MapEM-os with log n) had found no map yet, and then gave opposite actions the
same movement. A longer hold is no remedy: see `start-dims`.
"""

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import IID
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import TableView

ZERO_MEAN_DIMS = register_recipe(
    Recipe(
        name="zero-mean-dims",
        task="navigation",
        worlds={"3D": {"dims": 3}},
        rows=(Row("MapEM-os", "mapem"), Row("MapEM-s", "mapem", {"attend": "s"})),
        seeds=(100,),
        sweep={"zero_mean_steps": (250, 600, 1250)},
        measures=(Splits({IID: "IID"}), Curve()),
        views=(TableView(),),
        finding="With the mean held at zero for 250, 600 and all 1250 steps MapEM-os has "
        "{MapEM-os, zero_mean_steps=250 | 3D | iid}, {MapEM-os, zero_mean_steps=600 | 3D | iid} and "
        "{MapEM-os, zero_mean_steps=1250 | 3D | iid} on iid sequences, MapEM-s "
        "{MapEM-s, zero_mean_steps=250 | 3D | iid}, {MapEM-s, zero_mean_steps=600 | 3D | iid} and "
        "{MapEM-s, zero_mean_steps=1250 | 3D | iid}.",
    )
)
