"""The mathematics with no learning in it: rotations, velocities ω, path integration."""

from mapformers.lie.plane_rotations import (
    angles,
    blocks_per_dimension,
    integrate,
    ladder,
    ladders,
    rope_ladder,
    rotate,
    rotation_matrix,
    wrap,
)

__all__ = [
    "angles",
    "blocks_per_dimension",
    "integrate",
    "ladder",
    "ladders",
    "rope_ladder",
    "rotate",
    "rotation_matrix",
    "wrap",
]
