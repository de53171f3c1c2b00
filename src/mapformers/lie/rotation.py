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


def carried_origins(theta: Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Two vectors per token whose product is that of two fixed ones carried along the path, ⟨R_t q₀, R_s k₀⟩.

    Pair by pair that is (α cos θ_t + β sin θ_t) cos θ_s + (α sin θ_t − β cos θ_t) sin θ_s with α = q₁k₁ + q₂k₂ and
    β = q₁k₂ − q₂k₁: both origins can be the query's business, and the key is the pure phase (cos θ_s, sin θ_s).
    ``theta`` (B, H, L, d/2), ``query`` and ``key`` (H, 1, d); returns two of (B, H, L, d).
    """
    (q_first, q_second), (k_first, k_second) = query.chunk(2, dim=-1), key.chunk(2, dim=-1)
    alpha, beta = q_first * k_first + q_second * k_second, q_first * k_second - q_second * k_first
    if torch.compiler.is_compiling():  # a compiler fuses what is written out
        return _phases(theta.cos(), theta.sin(), alpha, beta)
    return _CarriedOrigins.apply(theta, alpha, beta)


def _phases(cos: Tensor, sin: Tensor, alpha: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    query = torch.addcmul(alpha * cos, beta, sin), torch.addcmul(alpha * sin, beta, cos, value=-1)
    return torch.cat(query, dim=-1), torch.cat((cos, sin), dim=-1)


class _CarriedOrigins(torch.autograd.Function):
    """Half of the tensors that autograd would make, all but two of them of half the size."""

    @staticmethod
    def forward(ctx: Any, theta: Tensor, alpha: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = theta.cos(), theta.sin()
        ctx.save_for_backward(cos, sin, alpha, beta)
        return _phases(cos, sin, alpha, beta)

    @staticmethod
    def backward(ctx: Any, d_query: Tensor, d_key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        cos, sin, alpha, beta = ctx.saved_tensors
        (first, second), (d_cos, d_sin) = d_query.chunk(2, dim=-1), d_key.chunk(2, dim=-1)
        d_cos = torch.addcmul(d_cos, alpha, first).addcmul_(beta, second, value=-1)
        d_sin = torch.addcmul(d_sin, beta, first).addcmul_(alpha, second)
        d_theta = d_sin.mul_(cos).addcmul_(d_cos, sin, value=-1)
        d_alpha = torch.addcmul(first * cos, second, sin).sum_to_size(alpha.shape)
        d_beta = torch.addcmul(first * sin, second, cos, value=-1).sum_to_size(beta.shape)
        return d_theta, d_alpha, d_beta


def rotation_matrix(theta: Tensor) -> Tensor:
    """The explicit (..., d, d) matrix of :func:`rotate` for angles (..., d/2): the plain reference."""
    cos, sin = torch.diag_embed(theta.cos()), torch.diag_embed(theta.sin())
    return torch.cat((torch.cat((cos, -sin), dim=-1), torch.cat((sin, cos), dim=-1)), dim=-2)
