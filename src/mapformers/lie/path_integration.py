"""Path integration: where on the map is each token? (eqs. additive_PI and lowrank_proj)

Rotations in SO(2)^n commute, so a product of rotations is the rotation by the sum of the angles. The sum is
taken over the r-dimensional Δ_in rather than over the n_b angles, cumsum(ω ⊙ W_out Δ_in) = ω ⊙ W_out cumsum(Δ_in):
the same angle for n_b/r times less work, which buys float64 and a coordinate that can be drawn.
"""

import math
from typing import Any

import torch
from torch import Tensor

ANGLES_TOGETHER = 2**17  # a megabyte of float64, which stays in the cache


def integrate(
    delta: Tensor, *, initial: Tensor | None = None, mask: Tensor | None = None, reset: Tensor | None = None
) -> Tensor:
    """The coordinate of every token: the inclusive running sum of ``delta`` along dimension 1, in float64.

    ``delta``   (B, L, ...) movement of each token; a token's own movement counts at its own position.
    ``initial`` (B, ...) coordinate before the first token (default: the origin).
    ``mask``    (B, L) bool, True where the token is real; elsewhere nothing moves.
    ``reset``   (B, L) bool, True where a new map begins: the token moves from the origin.

    On a device without float64 the sum is done on the host: Δ_in is small, and no precision is lost.
    """
    if delta.device.type == "mps":
        delta = delta.cpu()
        initial, mask, reset = (None if t is None else t.cpu() for t in (initial, mask, reset))
    delta = delta.to(torch.float64)
    if mask is not None:
        delta = delta.masked_fill(~_expand(mask, delta), 0.0)
    walked = delta.cumsum(dim=1)
    origin = torch.zeros_like(walked[:, 0]) if initial is None else initial.to(torch.float64)
    if reset is None:
        return walked + origin.unsqueeze(1)
    # The map in force at t began at the latest reset up to t; -1 where the sequence has had none yet.
    times = torch.arange(delta.shape[1], device=delta.device)
    began = torch.where(reset, times, -1).cummax(dim=1).values
    before = torch.cat((torch.zeros_like(walked[:, :1]), walked[:, :-1]), dim=1)
    index = _expand(began.clamp(min=0), delta).expand_as(delta)
    since_reset = walked - before.gather(1, index)
    return torch.where(_expand(began >= 0, delta), since_reset, walked + origin.unsqueeze(1))


def angles(coordinate: Tensor, w_out: Tensor, omega: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """θ = ω ⊙ W_out·coordinate, reduced to [−π, π] in float64 and only then rounded to ``dtype``.

    ``coordinate`` (B, L, H, r), ``w_out`` (H, r, n_b), ``omega`` (H, n_b); returns (B, H, L, n_b).
    """
    home = omega.device
    w_out, omega = (weight.to(coordinate.device, torch.float64) for weight in (w_out, omega))
    rate = w_out * omega.unsqueeze(1)
    if torch.compiler.is_compiling():  # a compiler fuses what is written out
        return wrap(torch.einsum("blhr,hrn->bhln", coordinate, rate)).to(dtype).to(home)
    theta: Tensor = _Angles.apply(coordinate, rate, dtype)
    return theta.to(home)


def wrap(theta: Tensor) -> Tensor:
    """θ mod 2π, in [−π, π]; the derivative is 1."""
    turns = torch.round(theta.detach() / (2 * math.pi))
    return theta - 2 * math.pi * turns


class _Angles(torch.autograd.Function):
    """wrap(rate·coordinate), a few sequences at a time in place, where autograd would make six float64 tensors of all.

    Only the angle needs float64: its gradient is summed in the precision in which it arrives.
    """

    @staticmethod
    def forward(ctx: Any, coordinate: Tensor, rate: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(coordinate, rate)
        batch, length, heads, _ = coordinate.shape
        theta = coordinate.new_empty(batch, heads, length, rate.shape[-1], dtype=dtype)
        together = max(1, ANGLES_TOGETHER // theta[0].numel()) if coordinate.device.type == "cpu" else batch
        for here, place in zip(theta.split(together), coordinate.split(together)):
            turns = torch.einsum("blhr,hrn->bhln", place, rate / (2 * math.pi))
            here.copy_(turns.sub_(turns.round()).mul_(2 * math.pi))
        return theta

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        coordinate, rate = ctx.saved_tensors
        d_coordinate = torch.einsum("bhln,hrn->blhr", grad, rate.to(grad.dtype))
        d_rate = torch.einsum("blhr,bhln->hrn", coordinate.to(grad.dtype), grad)
        return d_coordinate.to(coordinate.dtype), d_rate.to(rate.dtype), None


def _expand(flag: Tensor, like: Tensor) -> Tensor:
    """(B, L) -> (B, L, 1, ...) with as many dimensions as ``like``."""
    return flag.reshape(*flag.shape, *(1,) * (like.dim() - flag.dim()))
