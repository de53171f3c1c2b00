"""The plain reference: rotations by `matrix_exp`, multiplied step by step, for autograd to go through."""

import torch
from torch import Tensor

from mapformers.lie.generators import skew


def rotations_in_order(theta: Tensor, n: int) -> Tensor:
    """P_t = W_t … W_1 of angles (K, G, S, T, B), as (n, n, G, S, T, B), by a loop over time."""
    steps, blocks = theta.shape[2:4]
    w = torch.linalg.matrix_exp(skew(theta, n).movedim((0, 1), (-2, -1)))  # (G, S, T, B, n, n)
    p, done = torch.eye(n, dtype=theta.dtype, device=theta.device), []
    for t in range(steps * blocks):
        p = w[:, t % steps, t // steps] @ p
        done.append(p)
    ordered = torch.stack(done, dim=1).unflatten(1, (blocks, steps)).transpose(1, 2)  # (G, S, T, B, n, n)
    return ordered.movedim((-2, -1), (0, 1))


def apply_in_order(theta: Tensor, x: Tensor, n: int, back: bool) -> Tensor:
    """P_t x_t, or P_tᵀ x_t (``back``), of vectors (n, V, G, S, T, B), or (n, V, G, 1, 1, 1) that stay the same."""
    rotations = rotations_in_order(theta, n)
    rotations = rotations.transpose(0, 1) if back else rotations
    return torch.einsum("ijgstb,jvgstb->ivgstb", rotations, x.expand(*x.shape[:3], *theta.shape[2:]))
