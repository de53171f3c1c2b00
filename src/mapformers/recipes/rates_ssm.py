"""`rates-ssm`: each row of `ssm` at three learning rates, on seed 100 and half the budget (to choose)."""

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import IID
from mapformers.recipes.rates_table2 import RATES
from mapformers.recipes.recipe import Recipe, register_recipe
from mapformers.recipes.ssm import SSM, WORLD
from mapformers.recipes.views import TableView

RATES_SSM = register_recipe(
    Recipe(
        name="rates-ssm",
        task="navigation",
        worlds=SSM.worlds,
        at_cpu={WORLD: {"sequences": 20_000}},
        rows=SSM.rows,
        seeds=(100,),
        sweep={"lr": RATES},
        measures=(Splits({IID: "IID"}), Curve()),
        views=(TableView(),),
        finding=f"At a rate of 3e-4, 1e-3 and 3e-3 Mamba has {{Mamba, lr=0.0003 | {WORLD} | iid}}, "
        f"{{Mamba, lr=0.001 | {WORLD} | iid}} and {{Mamba, lr=0.003 | {WORLD} | iid}} on iid sequences.",
    )
)
