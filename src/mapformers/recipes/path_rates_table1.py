"""`path-rates-table1`: MapFormers of table 1 with another learning rate for the path alone (to choose).

What a symbol moves is summed over the 127 symbols that lie between an answer and its source, and so is the error that
one step of the optimiser makes in it. Half of the budget, on a seed that no table reports.
"""

from dataclasses import replace

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import IID
from mapformers.recipes.recipe import Recipe, register_recipe
from mapformers.recipes.table1 import TABLE1, WORLD
from mapformers.recipes.views import TableView

HALF = f"{WORLD} (half the budget)"
ROWS = ("MapWM", "MapEM-os")

PATH_RATES_TABLE1 = register_recipe(
    Recipe(
        name="path-rates-table1",
        task="selective-copy",
        worlds={HALF: {}},
        at_cpu={HALF: {"sequences": 16_000}},
        rows=tuple(replace(row, worlds=(HALF,), seeds={}) for row in TABLE1.rows if row.label in ROWS),
        seeds=(102,),
        sweep={"path_lr": (0.2, 1.0, 3.0)},
        measures=(Splits({IID: "IID"}), Curve()),
        views=(TableView(),),
        finding=f"With a fifth of the rate for the path, the same rate and three times the rate, MapWM has "
        f"{{MapWM, path_lr=0.2 | {HALF} | iid}}, {{MapWM, path_lr=1.0 | {HALF} | iid}} and "
        f"{{MapWM, path_lr=3.0 | {HALF} | iid}} on iid sequences, MapEM-os "
        f"{{MapEM-os, path_lr=0.2 | {HALF} | iid}}, {{MapEM-os, path_lr=1.0 | {HALF} | iid}} and "
        f"{{MapEM-os, path_lr=3.0 | {HALF} | iid}}.",
    )
)
