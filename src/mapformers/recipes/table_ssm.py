"""`table-ssm`: state-space models on 2D navigation with 32 steps (A.6)."""

from mapformers.layers.mampa import LITERAL
from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.recipe import Paper, Recipe, Row, register_recipe
from mapformers.recipes.table2 import BASELINE, DENSE, IID, SPARSE
from mapformers.recipes.views import CurveView, TableView

WORLD = "2D, 32 steps"
PERFECT = ((1.00, 0.00),) * 3
PRINTED: dict[str, tuple[Paper, ...]] = {
    "Mamba": ((0.38, 0.02), (0.66, 0.03), (0.30, 0.01)),
    "MAmPa": ((0.84, 0.03), (0.96, 0.03), (0.71, 0.04)),
    "MapWM": PERFECT,
    "MapEM-os": PERFECT,
    "MapEM-s": PERFECT,
}
TABLE_SSM = register_recipe(
    Recipe(
        name="table-ssm",
        task="navigation",
        worlds={WORLD: {"dims": 2, "steps": 32}},
        rows=(
            Row("Mamba", "mamba", {"d_state": 32, **BASELINE}),
            Row("MAmPa, literal", "mampa", {**LITERAL, **BASELINE}),
            Row("MAmPa", "mampa"),
            Row("MapWM", "mapwm"),
            Row("MapEM-os", "mapem"),
            Row("MapEM-s", "mapem", {"attend": "s"}),
        ),
        measures=(Splits({IID: "IID", DENSE: "OOD-dense", SPARSE: "OOD-sparse"}), Curve()),
        views=(TableView(), CurveView()),
        paper={
            (row, WORLD, split): figure
            for row, figures in PRINTED.items()
            for split, figure in zip((IID, DENSE, SPARSE), figures)
        },
        finding=f"On fresh iid sequences Mamba recalls {{Mamba | {WORLD} | iid}}, MAmPa {{MAmPa | {WORLD} | iid}} and "
        f"MapWM {{MapWM | {WORLD} | iid}}.",
    )
)
