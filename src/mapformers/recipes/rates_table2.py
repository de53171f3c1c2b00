"""`rates-table2`: rows of table 2 at three learning rates, on seed 100 (to choose).

With one layer a run has its whole budget: a quarter of it favours a rate at which RoPE then learns nothing on other
seeds. With four layers it has a quarter, because nine whole runs would take four core-hours.
"""

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import DEEP, IID
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import TableView

RATES = (3e-4, 1e-3, 3e-3)
QUARTER = {"sequences": 10_000}

RATES_TABLE2 = register_recipe(
    Recipe(
        name="rates-table2",
        task="navigation",
        worlds={"2D": {"dims": 2}},
        rows=(
            Row("MapEM-o", "mapem", {"attend": "o"}),
            Row("RoPE (1L)", "rope"),
            Row("TAPE (1L)", "tape"),
            Row("CoPE (1L)", "cope"),
            Row("PathAtt (1L)", "path"),
            Row("MapWM-r2", "mapwm"),
            Row("MapEM-os", "mapem"),
            Row("RoPE (4L)", "rope", DEEP, at_cpu=QUARTER),
            Row("CoPE (4L)", "cope", DEEP, at_cpu=QUARTER),
            Row("TAPE (4L)", "tape", DEEP, at_cpu=QUARTER),
        ),
        seeds=(100,),
        sweep={"lr": RATES},
        measures=(Splits({IID: "IID"}), Curve()),
        views=(TableView(),),
        finding="At a rate of 3e-4, 1e-3 and 3e-3 RoPE (1L) has {RoPE (1L), lr=0.0003 | 2D | iid}, "
        "{RoPE (1L), lr=0.001 | 2D | iid} and {RoPE (1L), lr=0.003 | 2D | iid} on iid sequences.",
    )
)
