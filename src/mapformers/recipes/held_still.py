"""An ablation of ours: does holding the path still in the first steps decide whether a map is found?"""

from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.table2 import DENSE, IID, SPARSE, SPARSE_512

HELD_STILL = register_recipe(
    Recipe(
        name="held-still",
        summary="MapWM with and without holding the average movement at zero at first (an ablation of ours).",
        task="navigation",
        worlds={"2D": {"dims": 2}},
        splits={IID: "IID", DENSE: "OOD-dense", SPARSE: "OOD-sparse", SPARSE_512: "OOD-sparse-512"},
        rows=(
            Row("path held still", "mapwm", {"rank": 2}, {"driftless_steps": 250}),
            Row("path free", "mapwm", {"rank": 2}, {"driftless_steps": 0}),
        ),
        paper={},
    )
)
