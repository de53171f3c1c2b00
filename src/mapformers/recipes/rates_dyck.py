"""`rates-dyck`: each row of `dyck` at three learning rates, on seed 100 and a quarter of the budget (to choose).

The choice is by closer accuracy, with one layer, and holds for both depths: F1 is too lenient to tell rates apart. A
second layer costs much and decides only where one layer does not (RoPE).
"""

from mapformers.recipes.dyck import DYCK
from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import IID
from mapformers.recipes.rates_table2 import RATES
from mapformers.recipes.recipe import Recipe, register_recipe
from mapformers.recipes.views import TableView

RATES_DYCK = register_recipe(
    Recipe(
        name="rates-dyck",
        task="dyck",
        worlds=DYCK.worlds,
        at_cpu={name: {"sequences": 32_000} for name in DYCK.worlds},
        rows=[row for row in DYCK.rows if "loss" not in row.settings],
        seeds=(100,),
        sweep={"lr": RATES},
        measures=(Splits({IID: "IID"}, metric="closer_accuracy", also=("f1",)), Curve("closer_accuracy")),
        views=(TableView(),),
        finding="At a rate of 3e-4, 1e-3 and 3e-3 one layer of MapWM names {MapWM, lr=0.0003 | 1 layer | iid}, "
        "{MapWM, lr=0.001 | 1 layer | iid} and {MapWM, lr=0.003 | 1 layer | iid} of the closers on iid sequences.",
    )
)
