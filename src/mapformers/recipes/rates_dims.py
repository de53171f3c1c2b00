"""`rates-dims`: MapEM-s in three dimensions at three learning rates, on seed 100 (to choose).

The other rows of `dims` have the rates of table 2. At those MapEM-s learned two of three axes.
"""

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import IID
from mapformers.recipes.rates_table2 import RATES
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import TableView

RATES_DIMS = register_recipe(
    Recipe(
        name="rates-dims",
        task="navigation",
        worlds={"3D": {"dims": 3}},
        rows=(Row("MapEM-s", "mapem", {"attend": "s"}),),
        seeds=(100,),
        sweep={"lr": RATES},
        measures=(Splits({IID: "IID"}), Curve()),
        views=(TableView(),),
        finding="At a rate of 3e-4, 1e-3 and 3e-3 MapEM-s has {MapEM-s, lr=0.0003 | 3D | iid}, "
        "{MapEM-s, lr=0.001 | 3D | iid} and {MapEM-s, lr=0.003 | 3D | iid} on iid sequences.",
    )
)
