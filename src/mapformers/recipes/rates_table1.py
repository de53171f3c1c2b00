"""`rates-table1`: each row of table 1 at three learning rates, on seed 100 and a quarter of the symbols (to choose).

With 128 symbols no row has learned anything within a fifth of its budget, so that nothing could be chosen there.
"""

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import IID, TURNS
from mapformers.recipes.rates_table2 import RATES
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.table1 import TABLE1
from mapformers.recipes.views import TableView

WORLD = "32 symbols"

RATES_TABLE1 = register_recipe(
    Recipe(
        name="rates-table1",
        task="selective-copy",
        worlds={WORLD: {"n_symbols": 32, "n_blanks": 32}},
        at_cpu={WORLD: {"sequences": 16_000}},
        rows=(*TABLE1.rows, Row("MapWM, ω_max 2π", "mapwm", TURNS)),
        seeds=(100,),
        sweep={"lr": RATES},
        measures=(Splits({IID: "IID"}), Curve()),
        views=(TableView(),),
        finding=f"At a rate of 3e-4, 1e-3 and 3e-3 RoPE has {{RoPE, lr=0.0003 | {WORLD} | iid}}, "
        f"{{RoPE, lr=0.001 | {WORLD} | iid}} and {{RoPE, lr=0.003 | {WORLD} | iid}} on iid sequences.",
    )
)
