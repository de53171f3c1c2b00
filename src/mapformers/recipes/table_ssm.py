"""The table of A.6: state-space models on 2D navigation with 32 steps; MAmPa as written, and as it learns best."""

from mapformers.mixers.mampa import LITERAL
from mapformers.recipes.recipe import Paper, Recipe, Row, register_recipe
from mapformers.recipes.table2 import BASELINE_TRAINING, DENSE, IID, SPARSE

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
        summary="State-space models on 2D navigation with 32 steps (A.6).",
        task="navigation",
        worlds={WORLD: {"dims": 2, "steps": 32}},
        splits={IID: "IID", DENSE: "OOD-dense", SPARSE: "OOD-sparse"},
        rows=(
            Row("Mamba", "mamba", {"d_state": 32}, BASELINE_TRAINING),
            Row("MAmPa, literal", "mampa", LITERAL, BASELINE_TRAINING),
            Row("MAmPa", "mampa"),
            Row("MapWM", "mapwm"),
            Row("MapEM-os", "mapem"),
            Row("MapEM-s", "mapem", {"attend": "s"}),
        ),
        paper={
            (row, WORLD, split): figure
            for row, figures in PRINTED.items()
            for split, figure in zip((IID, DENSE, SPARSE), figures)
        },
        curves=True,
    )
)
