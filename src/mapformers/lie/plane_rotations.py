"""Rotations in pairs, the group SO(2)^n: how they act, how fast they turn, and how they add up along a path.

A vector of size d holds n = d/2 pairs. Pair i is ``(x[i], x[i + n])``: the half-split layout, which needs no strided
access and is the one of Llama (A.2, A.7).  # paper: interleaved pairs (x[2i], x[2i+1]); here: half-split

Rotations in SO(2)^n commute, so a product of rotations is the rotation by the sum of the angles. The sum is taken over
the r-dimensional Δ_in rather than over the n_b angles, cumsum(ω ⊙ W_out Δ_in) = ω ⊙ W_out cumsum(Δ_in) (sec.
3.1, 3.2): the same angle for n_b/r times less work, which buys float64 and a coordinate that can be drawn. The
velocities ω say at which scales a map is written (A.8).
"""

import math

import torch
from torch import Tensor


def rotate(theta: Tensor, *vectors: Tensor) -> tuple[Tensor, ...]:
    """R_θ x for every pair at once: ``x ⊙ cos + (−x₂, x₁) ⊙ sin`` (A.7, whose printed vector lacks the swap).

    ``theta`` (..., d/2) and each x (..., d) are broadcast against each other. It is formed in the precision of the
    angle; a result has the dtype of its x.
    """
    cos, sin = theta.cos(), theta.sin()
    if theta.shape[-2:-1] == (1,) and all(x.shape == vectors[0].shape for x in vectors):  # one token: all at once
        together = torch.stack(vectors)
        if theta.dim() > vectors[0].dim():
            missing = (1,) * (theta.dim() - vectors[0].dim())
            together = together.reshape(len(vectors), *missing, *vectors[0].shape)
        return _rotate(together, cos, sin).unbind(0)
    return tuple(_rotate(x, cos, sin) for x in vectors)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.to(cos.dtype).chunk(2, dim=-1)
    halves = torch.addcmul(first * cos, second, sin, value=-1), torch.addcmul(second * cos, first, sin)
    return torch.cat(halves, dim=-1).to(x.dtype)


def rotation_matrix(theta: Tensor) -> Tensor:
    """The explicit (..., d, d) matrix of `rotate` for angles (..., d/2): the plain reference."""
    cos, sin = torch.diag_embed(theta.cos()), torch.diag_embed(theta.sin())
    return torch.cat((torch.cat((cos, -sin), dim=-1), torch.cat((sin, cos), dim=-1)), dim=-2)


def ladder(n_blocks: int, omega_max: float = 2 * math.pi, base: float = 64.0) -> Tensor:
    """``n_blocks`` velocities in geometric progression from ``omega_max`` down to 2π/``base``, both included.

    ω_i = ω_max · Δ_max^(−i/(m−1)) with Δ_max = base · ω_max / 2π: the slowest block closes its circle after
    ``base`` steps, the fastest tells 2π/ω_max apart. A ladder of one block is ω_max.
    # paper: the printed exponent is +i/n_b, which grows; here: it decays and reaches both ends
    """
    if n_blocks == 1:
        return torch.tensor([omega_max], dtype=torch.float64)
    delta_max = base * omega_max / (2 * math.pi)
    exponent = torch.arange(n_blocks, dtype=torch.float64) / (n_blocks - 1)
    return omega_max * delta_max**-exponent


def blocks_per_dimension(n_blocks: int, rank: int) -> list[int]:
    """How many blocks each inner dimension starts with: equal shares, the remainder to the first ones."""
    return [n_blocks // rank + (i < n_blocks % rank) for i in range(rank)]


def ladders(n_blocks: int, rank: int, omega_max: float = 2 * math.pi, base: float = 64.0) -> tuple[Tensor, Tensor]:
    """ω (n_blocks,) and W_out (rank, n_blocks) at the start: one ladder per inner dimension (A.8, last line).

    Inner dimension i drives its own share of the blocks with weight 1 and the others with 0; training is
    free to mix them, because W_out is dense.
    """
    sizes = blocks_per_dimension(n_blocks, rank)
    omega = torch.cat([ladder(size, omega_max, base) for size in sizes])
    return omega, torch.block_diag(*(torch.ones(1, size, dtype=torch.float64) for size in sizes))


def rope_ladder(n_blocks: int, base: float = 10000.0) -> Tensor:
    """RoPE's velocities, base^(−i/n_blocks) for i = 0 … n_blocks−1: from 1 down to just above 1/base."""
    return base ** -(torch.arange(n_blocks, dtype=torch.float64) / n_blocks)


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
    if delta.shape[1] == 1:
        return _one_step(delta, initial, reset)
    summed = delta.cumsum(dim=1)
    origin = torch.zeros_like(summed[:, 0]) if initial is None else initial.to(torch.float64)
    if reset is None:
        return summed + origin.unsqueeze(1)
    # The map in force at t began at the latest reset up to t; -1 where the sequence has had none yet.
    times = torch.arange(delta.shape[1], device=delta.device)
    began = torch.where(reset, times, -1).cummax(dim=1).values
    before = torch.cat((torch.zeros_like(summed[:, :1]), summed[:, :-1]), dim=1)
    index = _expand(began.clamp(min=0), delta).expand_as(delta)
    since_reset = summed - before.gather(1, index)
    return torch.where(_expand(began >= 0, delta), since_reset, summed + origin.unsqueeze(1))


def _one_step(delta: Tensor, initial: Tensor | None, reset: Tensor | None) -> Tensor:
    """Of a single token: there is nothing to sum."""
    if initial is None:
        return delta
    before = initial.to(torch.float64).unsqueeze(1)
    return delta + (before if reset is None else before.masked_fill(_expand(reset, before), 0.0))


def angles(coordinate: Tensor, w_out: Tensor, omega: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """θ = ω ⊙ W_out·coordinate, reduced to [−π, π] in float64 and only then rounded to ``dtype``.

    ``coordinate`` (B, L, H, r), ``w_out`` (H, r, n_b), ``omega`` (H, n_b); returns (B, H, L, n_b). In float64 a single
    token's is not reduced: its sine and cosine are as exact without.
    """
    if coordinate.shape[1] == 1 and dtype == torch.float64 and coordinate.device == omega.device:
        return coordinate.transpose(1, 2) @ (w_out * omega.to(dtype).unsqueeze(1))
    home = omega.device
    w_out, omega = (weight.to(coordinate.device, torch.float64) for weight in (w_out, omega))
    rate = w_out * omega.unsqueeze(1)
    return wrap(torch.einsum("blhr,hrn->bhln", coordinate, rate)).to(dtype).to(home)


def wrap(theta: Tensor) -> Tensor:
    """θ mod 2π, in [−π, π]; the derivative is 1."""
    turns = torch.round(theta.detach() / (2 * math.pi))
    return theta - 2 * math.pi * turns


def _expand(flag: Tensor, like: Tensor) -> Tensor:
    """(B, L) -> (B, L, 1, ...) with as many dimensions as ``like``."""
    return flag.reshape(*flag.shape, *(1,) * (like.dim() - flag.dim()))
