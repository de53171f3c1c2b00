"""`rates-table1`: each row of table 1 at three learning rates, on seed 100 and a fifth of the budget (to choose)."""

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
        worlds=TABLE1.worlds,
        at_cpu={"128 symbols": {"sequences": 6_000}},
        rows=TABLE1.rows,
        seeds=(100,),
        sweep={"lr": RATES},
        measures=(Splits({IID: "IID"}), Curve()),
        views=(TableView(),),
        finding="At a rate of 3e-4, 1e-3 and 3e-3 RoPE has {RoPE, lr=0.0003 | 128 symbols | iid}, "
        "{RoPE, lr=0.001 | 128 symbols | iid} and {RoPE, lr=0.003 | 128 symbols | iid} on iid sequences.",
    )
)
