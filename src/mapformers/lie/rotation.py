"""Rotations in pairs: the group SO(2)^n acting on vectors (paper, A.2 and A.7).

A vector of size d holds n = d/2 pairs. Pair i is ``(x[i], x[i + n])``: the half-split layout, which
needs no strided access and is the one of Llama.  # paper: interleaved pairs (x[2i], x[2i+1]); here: half-split
"""

import torch
from torch import Tensor


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """R_θ x for every pair at once: ``x ⊙ cos + (−x₂, x₁) ⊙ sin`` (eq. rot_vec_prod, with its missing swap).

    ``x`` is (..., d), ``cos`` and ``sin`` are (..., d/2). The result has the dtype of ``x``.
    """
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


def rotation_matrix(theta: Tensor) -> Tensor:
    """The explicit (..., d, d) matrix of :func:`rotate` for angles (..., d/2): the plain reference."""
    cos, sin = torch.diag_embed(theta.cos()), torch.diag_embed(theta.sin())
    return torch.cat((torch.cat((cos, -sin), dim=-1), torch.cat((sin, cos), dim=-1)), dim=-2)
