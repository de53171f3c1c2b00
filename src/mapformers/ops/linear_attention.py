"""Attention without softmax, and the recurrence that it is: linear MapWM is a rotation SSM (A.5).

The channels of a head share their transitions, so Σ_s ⟨c_t, A_{s→t} b_s⟩ v_s is a product of masked matrices.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from mapformers import lie

CHUNK = 64  # tokens whose masked products are written out


def linear_attention(
    q: Tensor, k: Tensor, v: Tensor, start: Tensor, log_decay: Tensor | None = None, reset: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """y_t = Σ_{s≤t} decay(s→t) ⟨q_t, k_s⟩ v_s, (B, H, L, P), and the last state Σ_s decay(s→L) k_s v_sᵀ, (B, H, N, P).

    ``q``, ``k`` (B, H, L, N), ``v`` (B, H, L, P), ``start`` (B, H, N, P); ``log_decay`` ≤ 0 (B, H, L): the state
    shrinks by its exponential *before* this token is written; ``reset`` (B, L) bool: the state is 0 before this token.

    With q and k turned back by their angles, R(θ_t)ᵀ c_t and R(θ_s)ᵀ b_s, it is the rotation SSM (A.5): a rotation is
    undone exactly, so the state can be kept in the frame of the origin. Within a chunk, attention without softmax;
    between chunks, the state. Decays enter as exponentials of differences, none above 1.
    """
    length = q.shape[2]
    size = min(CHUNK, length)
    short = -length % size
    if short:
        q, k, v = (pad(t, (0, 0, 0, short)) for t in (q, k, v))
        log_decay = None if log_decay is None else pad(log_decay, (0, short))
        reset = None if reset is None else pad(reset, (0, short))
    q, k, v = (t.unflatten(2, (-1, size)) for t in (q, k, v))  # (B, H, chunks, size, ·)
    flow = _flow(log_decay, reset, size, like=q)
    written = (k if flow.to_end is None else k * flow.to_end).mT @ v  # (B, H, chunks, N, P)
    states = [start]
    for i, new in enumerate(written.unbind(2)):
        kept = states[-1] if flow.through is None else states[-1] * flow.through[:, :, i]
        states.append(kept + new)
    scores = q @ k.mT
    scores = scores.tril() if flow.between is None else scores * flow.between
    arrived = (q if flow.from_start is None else q * flow.from_start) @ torch.stack(states[:-1], dim=2)
    return (scores @ v + arrived).flatten(2, 3)[:, :, :length], states[-1]


class _Flow(NamedTuple):
    """How much of what is in a chunk reaches where; None: all of it."""

    between: Tensor | None = None  # (B, H or 1, chunks, size, size) from the column's token to the row's
    from_start: Tensor | None = None  # (B, H or 1, chunks, size, 1) from the start of the chunk to each token
    to_end: Tensor | None = None  # (B, H or 1, chunks, size, 1) from each token to the end of the chunk
    through: Tensor | None = None  # (B, H or 1, chunks, 1, 1) from start to end


def _flow(log_decay: Tensor | None, reset: Tensor | None, size: int, like: Tensor) -> _Flow:
    if log_decay is None and reset is None:
        return _Flow()
    shape = (like.shape[0], 1, like.shape[2], size)
    done = like.new_zeros(shape) if log_decay is None else log_decay.unflatten(2, (-1, size)).cumsum(dim=-1)
    document = like.new_zeros(shape) if reset is None else reset.reshape(shape).cumsum(dim=-1)
    causal = torch.ones(size, size, dtype=torch.bool, device=like.device).tril()
    same = (document.unsqueeze(-1) == document.unsqueeze(-2)) & causal
    between = (done.unsqueeze(-1) - done.unsqueeze(-2)).masked_fill(~same, -math.inf).exp()
    first = done.masked_fill(document > 0, -math.inf).exp()
    return _Flow(between, first.unsqueeze(-1), between[..., -1, :].unsqueeze(-1), first[..., -1, None, None])


def rotation_loop(
    theta: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    start: Tensor,
    log_decay: Tensor | None = None,
    reset: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """h_t = R(θ_t) h_{t−1} + k_t v_tᵀ, y_t = q_tᵀ h_t with explicit matrices: what `linear_attention` must equal.

    ``theta`` (B, H, L, N/2) is the angle of each step; the state (B, H, N, P) here turns with the path.
    """
    h, outputs = start, []
    for t in range(v.shape[2]):
        if reset is not None:
            h = torch.where(reset[:, t, None, None, None], 0.0, h)
        if log_decay is not None:
            h = h * log_decay[:, :, t, None, None].exp()
        h = lie.rotation_matrix(theta[:, :, t]) @ h + k[:, :, t, :, None] * v[:, :, t, None, :]
        outputs.append((q[:, :, t, None, :] @ h).squeeze(-2))
    return torch.stack(outputs, dim=2), h
