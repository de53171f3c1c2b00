"""Token mixers, one file per row of the paper. Importing a file registers its layer; this is the list."""

from mapformers.mixers import cope, mamba, mampa, mapem, mapem_nc, mapwm, mapwm_nc, nope, path, rope, tape, tem_t
from mapformers.mixers.context import Context, Past
from mapformers.mixers.layer import LAYERS, Block, LayerEntry, LayerShape, register_layer

__all__ = [
    "LAYERS",
    "Block",
    "Context",
    "LayerEntry",
    "LayerShape",
    "Past",
    "cope",
    "mamba",
    "mampa",
    "mapem",
    "mapem_nc",
    "mapwm",
    "mapwm_nc",
    "nope",
    "path",
    "register_layer",
    "rope",
    "tape",
    "tem_t",
]
