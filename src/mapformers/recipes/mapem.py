"""Ours: does MapEM learn on every seed, with and without its own key, and what does that take?"""

from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.table2 import DENSE, IID, SPARSE, SPARSE_512

SPLITS = {IID: "IID", DENSE: "OOD-dense", SPARSE: "OOD-sparse", SPARSE_512: "OOD-sparse-512"}
EARLIER = {"self_key": False}

MAPEM = register_recipe(
    Recipe(
        name="mapem",
        summary="MapEM by what it attends to, with keys up to the query itself or strictly earlier (ours).",
        task="navigation",
        worlds={"2D": {"dims": 2}},
        splits=SPLITS,
        rows=(
            Row("MapEM-os", "mapem", {"attend": "os"}),
            Row("MapEM-os, earlier keys", "mapem", {"attend": "os", **EARLIER}),
            Row("MapEM-s", "mapem", {"attend": "s"}),
            Row("MapEM-s, earlier keys", "mapem", {"attend": "s", **EARLIER}),
        ),
        paper={},
        curves=True,
    )
)

# Half of the usual sequences: enough to tell the ways to start apart.
SHORT = {"sequences": 20_000}
AS_WRITTEN = {"origins": "independent", "qk_scale": 1.0}

MAPEM_START = register_recipe(
    Recipe(
        name="mapem-start",
        summary="MapEM-os from several starts: one thing changed in each, and as one would write it (ours).",
        task="navigation",
        worlds={"2D": {"dims": 2}},
        splits=SPLITS,
        rows=(
            Row("default", "mapem", {}, SHORT),
            Row("path free", "mapem", {}, {**SHORT, "driftless_steps": 0}),
            Row("origins independent", "mapem", {"origins": "independent"}, SHORT),
            Row("origins twice as large", "mapem", {"origin_std": 0.8}, SHORT),
            Row("W_q, W_k a fifth", "mapem", {"qk_scale": 0.1}, SHORT),
            Row("W_q, W_k twice", "mapem", {"qk_scale": 1.0}, SHORT),
            Row("as written", "mapem", AS_WRITTEN, {**SHORT, "driftless_steps": 0}),
            Row("as written, earlier keys", "mapem", {**AS_WRITTEN, **EARLIER}, {**SHORT, "driftless_steps": 0}),
        ),
        paper={},
        curves=True,
    )
)
