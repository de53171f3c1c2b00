"""`ranks-table1`: the map of table 1 with one inner dimension and with two, and MapEM's origins (to choose).

To copy in order is to count symbols, which takes one dimension. A second one is free to count blanks too, which helps
while there are as many as in training. The paper names no rank here. And what is copied lies 127 symbols back, not at
the query's own place, where equal origins of queries and keys match best.
"""

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import IID, rate
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.table1 import WORLD
from mapformers.recipes.views import TableView

RANKS_TABLE1 = register_recipe(
    Recipe(
        name="ranks-table1",
        task="selective-copy",
        worlds={WORLD: {}},
        rows=(
            Row("MapWM", "mapwm", at_cpu=rate(1e-3), seeds={WORLD: (100, 101)}),
            Row("MapEM-os, equal origins", "mapem", {"attend": "os", "origins": "equal"}, at_cpu=rate(1e-3)),
            Row("MapEM-os", "mapem", {"attend": "os"}, at_cpu=rate(1e-3)),
        ),
        seeds=(100,),
        sweep={"rank": (1, 2)},
        measures=(Splits({IID: "IID"}), Curve()),
        views=(TableView(),),
        finding=f"With one inner dimension MapWM has {{MapWM, rank=1 | {WORLD} | iid}} on iid sequences, with two "
        f"{{MapWM, rank=2 | {WORLD} | iid}}; MapEM-os whose origins start independently has "
        f"{{MapEM-os, rank=1 | {WORLD} | iid}} and {{MapEM-os, rank=2 | {WORLD} | iid}}, and with equal origins "
        f"{{MapEM-os, equal origins, rank=1 | {WORLD} | iid}} and "
        f"{{MapEM-os, equal origins, rank=2 | {WORLD} | iid}}.",
    )
)
