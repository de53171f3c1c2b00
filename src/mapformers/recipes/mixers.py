"""Ours: every mixer on a small 2D navigation, beside the players; a map must beat the best player that has none."""

from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.table2 import BASELINE_TRAINING, DENSE, IID, SPARSE

MIXERS = register_recipe(
    Recipe(
        name="mixers",
        summary="Every mixer on a small 2D navigation (ours).",
        task="navigation",
        worlds={"2D, 64 steps": {"dims": 2, "steps": 64, "grid": 32}},
        splits={IID: "IID", DENSE: "OOD-dense", SPARSE: "OOD-sparse"},
        rows=(
            Row("NoPE", "nope", {}, BASELINE_TRAINING),
            Row("RoPE", "rope", {}, BASELINE_TRAINING),
            Row("CoPE", "cope", {}, BASELINE_TRAINING),
            Row("TAPE", "tape", {}, BASELINE_TRAINING),
            Row("PaTH", "path", {}, BASELINE_TRAINING),
            Row("Mamba", "mamba", {"d_state": 32}, BASELINE_TRAINING),
            Row("MAmPa", "mampa"),
            Row("TEM-t (told the actions)", "tem-t"),
            Row("MapWM", "mapwm"),
            Row("MapWM, fading", "mapwm", {"decay": True}),
            Row("MapWM-NC", "mapwm-nc"),
            Row("MapEM-os", "mapem"),
            Row("MapEM-s", "mapem", {"attend": "s"}),
            Row("MapEM-s, earlier keys", "mapem", {"attend": "s", "self_key": False}),
            Row("MapEM, gated", "mapem", {"attend": "gated"}),
            Row("MapEM-NC-os", "mapem-nc"),
            Row("MapEM-NC-s", "mapem-nc", {"attend": "s"}),
            Row("MapEM-NC-s, earlier keys", "mapem-nc", {"attend": "s", "self_key": False}),
        ),
        paper={},
        curves=True,
    )
)
