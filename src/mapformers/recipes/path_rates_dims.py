"""`path-rates-dims`: MapEM in three dimensions with another learning rate for the path alone (to choose).

A step of AdamW changes every entry of W_in by the rate, and Δ_in by up to the rate times √d·‖x‖ = d: at 3e-3 and d = 64
that is 0.2 rad in the fastest block, so that in some tens of steps a movement can pass a whole turn, from where no
gradient leads back. On seed 0 MapEM-s learned two of three axes at that rate, and so did MapEM-os with log n.
"""

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import IID
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import TableView

PATH_RATES_DIMS = register_recipe(
    Recipe(
        name="path-rates-dims",
        task="navigation",
        worlds={"3D": {"dims": 3}},
        rows=(Row("MapEM-os", "mapem"), Row("MapEM-s", "mapem", {"attend": "s"})),
        seeds=(100,),
        sweep={"path_lr": (0.1, 0.3, 1.0)},
        measures=(Splits({IID: "IID"}), Curve()),
        views=(TableView(),),
        finding="With a tenth of the rate for the path, three tenths and the same rate, MapEM-os has "
        "{MapEM-os, path_lr=0.1 | 3D | iid}, {MapEM-os, path_lr=0.3 | 3D | iid} and "
        "{MapEM-os, path_lr=1.0 | 3D | iid} on iid sequences, MapEM-s {MapEM-s, path_lr=0.1 | 3D | iid}, "
        "{MapEM-s, path_lr=0.3 | 3D | iid} and {MapEM-s, path_lr=1.0 | 3D | iid}.",
    )
)
