"""A single step of a path, where the operators of whole paths would cost more than the work: exp(Σ_k θ_k S_k)."""

import functools

import torch
from torch import Tensor

from mapformers.lie.generators import n_generators, skew
from mapformers.ops.rotation_products import quaternions


def single_rotation(theta: Tensor, n: int) -> Tensor:
    """The rotations of angles (…, K) as matrices (…, n, n), in plain torch.

    For n = 3 and 4 by quaternions: x ↦ p x q̄ is the product of two matrices that are linear in p and in q.
    """
    if n not in (3, 4):
        return torch.linalg.matrix_exp(skew(theta.movedim(-1, 0), n).movedim((0, 1), (-2, -1)))
    half_angles, left, right = _maps(n, theta.dtype, theta.device)
    pure = (theta @ half_angles).unflatten(-1, (-1, 3))  # (…, 1 or 2, 3)
    size = torch.linalg.vector_norm(pure, dim=-1, keepdim=True)
    unit = torch.cat((size.cos(), pure * quaternions.sinc(size)), dim=-1)  # (…, 1 or 2, 4)
    turned = (unit[..., 0, :] @ left).unflatten(-1, (4, 4)) @ (unit[..., -1, :] @ right).unflatten(-1, (4, 4))
    return turned if n == 4 else turned[..., 1:, 1:]  # of pure quaternions, one rotates on both sides


@functools.cache
def _maps(n: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """θ ↦ its half angles (K, 3·streams), and p ↦ the matrices of x ↦ p x and of x ↦ x p̄, (4, 16) each."""
    with torch.inference_mode(False), torch.no_grad():
        eye = torch.eye(n_generators(n), dtype=dtype, device=device)
        half_angles = quaternions.half_angles(eye).permute(2, 1, 0).flatten(1).contiguous()
        p, x = (
            torch.eye(4, dtype=dtype, device=device).unsqueeze(2),
            torch.eye(4, dtype=dtype, device=device).unsqueeze(1),
        )
        left = quaternions.product(p, x).transpose(0, 1).flatten(1)
        right = quaternions.product(x, p, conjugate="b").transpose(0, 1).flatten(1)
        return half_angles, left, right
