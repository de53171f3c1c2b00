"""`ranks-table1`: the map of table 1 with one inner dimension and with two, on seeds 100 and 101 (to choose).

To copy in order is to count symbols, which takes one dimension. A second one is free to count blanks too, which helps
while there are as many as in training. The paper names no rank here.
"""

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import IID, rate
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.table1 import SMALL_BATCHES, WORLD
from mapformers.recipes.views import TableView

RANKS_TABLE1 = register_recipe(
    Recipe(
        name="ranks-table1",
        task="selective-copy",
        worlds={WORLD: {}},
        at_cpu={WORLD: SMALL_BATCHES},
        rows=(
            Row("MapWM", "mapwm", at_cpu=rate(1e-3)),
            Row("MapEM-os", "mapem", {"attend": "os"}, at_cpu=rate(1e-3)),
        ),
        seeds=(100, 101),
        sweep={"rank": (1, 2)},
        measures=(Splits({IID: "IID"}), Curve()),
        views=(TableView(),),
        finding=f"With one inner dimension MapWM has {{MapWM, rank=1 | {WORLD} | iid}} on iid sequences, with two "
        f"{{MapWM, rank=2 | {WORLD} | iid}}; MapEM-os {{MapEM-os, rank=1 | {WORLD} | iid}} and "
        f"{{MapEM-os, rank=2 | {WORLD} | iid}}.",
    )
)
