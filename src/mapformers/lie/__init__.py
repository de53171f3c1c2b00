"""The mathematics with no learning in it: rotations, velocities ω, path integration."""

from mapformers.lie.frequencies import ladder, ladders, rope_ladder, shares
from mapformers.lie.path_integration import angles, integrate, wrap
from mapformers.lie.rotation import carried_origins, rotate, rotation_matrix

__all__ = [
    "angles",
    "carried_origins",
    "integrate",
    "ladder",
    "ladders",
    "rope_ladder",
    "rotate",
    "rotation_matrix",
    "shares",
    "wrap",
]
