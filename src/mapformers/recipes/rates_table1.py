"""`rates-table1`: each row of table 1 at three learning rates, on seed 100 (to choose).

All 128 symbols, because a rate that suits fewer need not suit 128: what is summed along the sequence adds up its noise.
A quarter of the budget first. A short schedule favours a high rate, so a row of which the highest was best is run again
with all of its budget, and that decides. PathAtt learned little with a quarter at any rate, so its whole budget
decides, with batches of 32.
"""

from dataclasses import replace

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import IID, TURNS
from mapformers.recipes.rates_table2 import RATES
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.table1 import LARGER_BATCHES, TABLE1, TWICE, WORLD
from mapformers.recipes.views import TableView

WHOLE = f"{WORLD} (whole budget)"
RUN_AGAIN = ("MapWM", "TAPE")

RATES_TABLE1 = register_recipe(
    Recipe(
        name="rates-table1",
        task="selective-copy",
        worlds={WHOLE: {}, WORLD: {}},
        at_cpu={WORLD: {"sequences": 8_000}},
        rows=(
            *(
                replace(row, at_cpu={}, worlds=(WHOLE, WORLD) if row.label in RUN_AGAIN else (WORLD,))
                for row in TABLE1.rows
                if row.label != TWICE
            ),
            Row("PathAtt, batches of 32", "path", LARGER_BATCHES, worlds=(WHOLE,)),
            Row("MapWM, ω_max 2π", "mapwm", TURNS, worlds=(WORLD,)),
        ),
        seeds=(100,),
        sweep={"lr": RATES},
        measures=(Splits({IID: "IID"}), Curve()),
        views=(TableView(),),
        finding=f"At a rate of 3e-4, 1e-3 and 3e-3 and a quarter of the budget MapWM has "
        f"{{MapWM, lr=0.0003 | {WORLD} | iid}}, {{MapWM, lr=0.001 | {WORLD} | iid}} and "
        f"{{MapWM, lr=0.003 | {WORLD} | iid}} on iid sequences.",
    )
)
