"""Ours: walks on a dihedral group, whose actions do not commute (D.2); rotations of a plane cannot hold its map."""

from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.table2 import BASELINE_TRAINING, DENSE, IID, SPARSE

STRUCTURE = {"attend": "s"}

NON_COMMUTING = register_recipe(
    Recipe(
        name="non-commuting",
        summary="Walks on the dihedral group of the 16-gon: maps that commute against maps that do not (ours).",
        task="graph",
        worlds={"dihedral": {"world": "dihedral", "steps": 64}},
        splits={IID: "IID", DENSE: "OOD-dense", SPARSE: "OOD-sparse"},
        rows=(
            Row("RoPE", "rope", {}, BASELINE_TRAINING),
            Row("MapWM", "mapwm", {"rank": 3}),
            Row("MapEM-os", "mapem", {"rank": 3}),
            Row("MapEM-s", "mapem", {"rank": 3, **STRUCTURE}),
            Row("MapWM-NC-4", "mapwm-nc"),
            Row("MapEM-NC-4-os", "mapem-nc"),
            Row("MapEM-NC-4-s", "mapem-nc", STRUCTURE),
        ),
        paper={},
        curves=True,
    )
)
