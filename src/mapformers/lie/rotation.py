"""Rotations in pairs: the group SO(2)^n acting on vectors (paper, A.2 and A.7).

A vector of size d holds n = d/2 pairs. Pair i is ``(x[i], x[i + n])``: the half-split layout, which
needs no strided access and is the one of Llama.  # paper: interleaved pairs (x[2i], x[2i+1]); here: half-split
"""

from typing import Any

import torch
from torch import Tensor


def rotate(theta: Tensor, *vectors: Tensor) -> tuple[Tensor, ...]:
    """R_θ x for every pair at once: ``x ⊙ cos + (−x₂, x₁) ⊙ sin`` (eq. rot_vec_prod, with its missing swap).

    ``theta`` (..., d/2) and each x (..., d) are broadcast against each other; a result has the dtype of its x.
    Queries and keys are turned together, because the gradient of the angle they share is then one sum.
    """
    if torch.compiler.is_compiling():  # a compiler fuses what is written out
        cos, sin = theta.cos(), theta.sin()
        return tuple(_turn(x, cos, sin) for x in vectors)
    return _Rotate.apply(theta, *vectors)


class _Rotate(torch.autograd.Function):
    """Left to itself, autograd would go through cos and sin and keep both halves of every product.

    With y = R_θ x: dx = R_θᵀ dy, and dθ = ⟨dy, J y⟩ pair by pair, J the quarter turn, so y is all that is kept.
    """

    @staticmethod
    def forward(ctx: Any, theta: Tensor, *vectors: Tensor) -> tuple[Tensor, ...]:
        cos, sin = theta.cos(), theta.sin()
        turned = tuple(_turn(x, cos, sin) for x in vectors)
        ctx.save_for_backward(cos, sin, *turned)
        ctx.shapes = [x.shape for x in vectors]
        return turned

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin, *turned = ctx.saved_tensors
        d_theta = None
        if ctx.needs_input_grad[0]:
            d_theta = sum((_along_turn(g, y, cos) for g, y in zip(grads, turned)), start=torch.zeros_like(cos))
        return d_theta, *(_turn(g, cos, -sin).sum_to_size(shape) for g, shape in zip(grads, ctx.shapes))


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """(x₁ cos − x₂ sin, x₂ cos + x₁ sin), formed in the precision of the angle."""
    first, second = x.to(cos.dtype).chunk(2, dim=-1)
    halves = torch.addcmul(first * cos, second, sin, value=-1), torch.addcmul(second * cos, first, sin)
    return torch.cat(halves, dim=-1).to(x.dtype)


def _along_turn(grad: Tensor, turned: Tensor, like: Tensor) -> Tensor:
    """⟨dy, J y⟩ of every pair, summed to the shape of the angle: how much the loss grows with it."""
    (g_first, g_second), (first, second) = (t.to(like.dtype).chunk(2, dim=-1) for t in (grad, turned))
    return torch.addcmul(g_second * first, g_first, second, value=-1).sum_to_size(like.shape)


def rotation_matrix(theta: Tensor) -> Tensor:
    """The explicit (..., d, d) matrix of :func:`rotate` for angles (..., d/2): the plain reference."""
    cos, sin = torch.diag_embed(theta.cos()), torch.diag_embed(theta.sin())
    return torch.cat((torch.cat((cos, -sin), dim=-1), torch.cat((sin, cos), dim=-1)), dim=-2)
