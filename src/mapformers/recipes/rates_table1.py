"""`rates-table1`: each row of table 1 at three learning rates, on seed 100 and a quarter of the budget (to choose)."""

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import IID
from mapformers.recipes.rates_table2 import RATES
from mapformers.recipes.recipe import Recipe, register_recipe
from mapformers.recipes.table1 import TABLE1
from mapformers.recipes.views import TableView

RATES_TABLE1 = register_recipe(
    Recipe(
        name="rates-table1",
        task="selective-copy",
        worlds={"128 symbols": {"sequences": 8_000}},
        rows=TABLE1.rows,
        sweep={"lr": RATES},
        measures=(Splits({IID: "IID"}), Curve()),
        views=(TableView(),),
    )
)
