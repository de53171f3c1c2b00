"""Products of SO(n) rotations along a sequence, and vectors rotated by them, without a loop over time (paper, D.2)."""

from mapformers.ops.rotation_products.operators import accumulate, all_rotations, apply, rotation_at

__all__ = ["accumulate", "all_rotations", "apply", "rotation_at"]
