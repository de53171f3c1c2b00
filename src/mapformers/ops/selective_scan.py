"""Selective scans: h_t = a_t ⊙ h_{t−1} + b_t v_t, y_t = ⟨c_t, h_t⟩ with a step of its own for every channel.

a_t = exp(−|Δ_t|·rate + i·Δ_t·ω): Mamba has no ω, literal MAmPa no rate. Where they turn, the N numbers of a channel's
state are N/2 pairs; pair i is (h_i, h_{i+N/2}), as in `lie/plane_rotations.py`.

Autograd through the loop over time (`selective_loop`) keeps every state: a step takes eight times as long and ten
times the memory (`mapformers bench ops`, docs/results/bench-ops.md). The work itself is in chunked_recurrence.py.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from mapformers import lie
from mapformers.ops.chunked_recurrence import ChunkedRecurrence, chunk_size
from mapformers.ops.operator import gradients_of, in_forward_mode, is_plain_step


def selective_scan(
    delta: Tensor,
    rate: Tensor | None,
    omega: Tensor | None,
    v: Tensor,
    b: Tensor,
    c: Tensor,
    start: Tensor | None = None,
    reset: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """y (B, L, E) and the last state (B, N, E) of a recurrence in which every channel has its own step Δ.

    ``delta``, ``v`` (B, L, E) step and input of each channel; ``b``, ``c`` (B, L, N) what it writes and reads;
    ``rate`` (N, E), or (N/2, E) beside ``omega`` (N/2, E): how fast the state decays and turns per unit of Δ;
    ``start`` (B, N, E) the state before; ``reset`` (B, L) bool: the state is 0 before this token.

    O(√L) steps: tokens go in chunks of √L, all chunks step together, and what one hands to the next is carried along.
    """
    if in_forward_mode():
        return selective_loop(delta, rate, omega, v, b, c, start, reset)
    if start is None:
        start = v.new_zeros(v.shape[0], b.shape[-1], v.shape[-1])
    if is_plain_step(v.shape[1]):
        return _one_step(delta, rate, omega, v, b, c, start, reset)
    chunk = chunk_size(v, b.shape[-1])
    short = -v.shape[1] % chunk  # filled up with steps of Δ = 0 that write nothing
    if short:
        delta, v, b, c = (pad(t, (0, 0, 0, short)) for t in (delta, v, b, c))
        reset = None if reset is None else pad(reset, (0, short))
    y, last, _ = _scan(delta, rate, omega, v, b, c, start, reset, chunk)
    return y[:, : y.shape[1] - short], last


def _one_step(
    delta: Tensor,
    rate: Tensor | None,
    omega: Tensor | None,
    v: Tensor,
    b: Tensor,
    c: Tensor,
    h: Tensor,
    reset: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The same for a single token: no matrix, and no operator."""
    if reset is not None:
        h = h.masked_fill(reset.unsqueeze(-1), 0.0)
    if omega is not None:
        (cos, sin), (first, second) = ((delta * omega).cos(), (delta * omega).sin()), h.chunk(2, dim=1)
        h = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=1)
    if rate is not None:
        decay = (rate * -delta.abs()).exp()
        h = h * (decay if omega is None else torch.cat((decay, decay), dim=1))
    h = torch.addcmul(h, b.mT, v)
    return c @ h, h


def selective_loop(
    delta: Tensor,
    rate: Tensor | None,
    omega: Tensor | None,
    v: Tensor,
    b: Tensor,
    c: Tensor,
    start: Tensor | None = None,
    reset: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The reference of `selective_scan`: one real matrix, exp(Δ_t A), per token and channel."""
    h = v.new_zeros(v.shape[0], b.shape[-1], v.shape[-1]) if start is None else start
    outputs = []
    for t in range(v.shape[1]):
        if reset is not None:
            h = torch.where(reset[:, t, None, None], 0.0, h)
        h = _transition_matrix(delta[:, t], rate, omega) @ h.mT.unsqueeze(-1)  # (B, E, N, 1)
        h = h.squeeze(-1).mT + b[:, t, :, None] * v[:, t, None, :]
        outputs.append((c[:, t, :, None] * h).sum(dim=1))
    return torch.stack(outputs, dim=1), h


def _transition_matrix(delta: Tensor, rate: Tensor | None, omega: Tensor | None) -> Tensor:
    """(B, E, N, N): a diagonal decay, 2×2 rotations, or both, for steps (B, E)."""
    decay = None if rate is None else torch.exp(-delta.abs().unsqueeze(-1) * rate.T)
    if omega is None:
        assert decay is not None
        return torch.diag_embed(decay)
    turn = lie.rotation_matrix(delta.unsqueeze(-1) * omega.T)
    return turn if decay is None else turn * torch.cat((decay, decay), dim=-1).unsqueeze(-1)


@torch.library.custom_op("mapformers::selective_scan", mutates_args=())
def _scan(
    delta: Tensor,
    rate: Tensor | None,
    omega: Tensor | None,
    v: Tensor,
    b: Tensor,
    c: Tensor,
    start: Tensor,
    reset: Tensor | None,
    chunk: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """An operator, so that it compiles: y, the last state, and the states from which the backward pass sets out."""
    with torch.autocast(v.device.type, enabled=False):
        return ChunkedRecurrence(delta, rate, omega, v, b, c, reset, chunk).forward(start)


@torch.library.custom_op("mapformers::selective_scan_backward", mutates_args=())
def _scan_backward(
    grad: Tensor,
    grad_last: Tensor,
    before: Tensor,
    delta: Tensor,
    rate: Tensor | None,
    omega: Tensor | None,
    v: Tensor,
    b: Tensor,
    c: Tensor,
    reset: Tensor | None,
    chunk: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of Δ, rate, ω, v, b, c and the state at the start; those of an absent rate or ω are empty."""
    with torch.autocast(v.device.type, enabled=False):
        return ChunkedRecurrence(delta, rate, omega, v, b, c, reset, chunk).backward(grad, grad_last, before)


@_scan.register_fake
def _(delta, rate, omega, v, b, c, start, reset, chunk):  # type: ignore[no-untyped-def]
    found = start.new_empty(len(v), v.shape[1] // chunk, *start.shape[1:])
    return v.new_empty(v.shape), start.new_empty(start.shape), found


@_scan_backward.register_fake
def _(grad, grad_last, before, delta, rate, omega, v, b, c, reset, chunk):  # type: ignore[no-untyped-def]
    rates = (v.new_empty(0) if t is None else torch.empty_like(t) for t in (rate, omega))
    return delta.new_empty(delta.shape), *rates, *(t.new_empty(t.shape) for t in (v, b, c, grad_last))


def _save(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    *tensors, ctx.chunk = inputs
    ctx.save_for_backward(output[2], *tensors)


def _backward(ctx, grad, grad_last, _):  # type: ignore[no-untyped-def]
    before, *tensors = ctx.saved_tensors
    if torch.is_grad_enabled():
        return *gradients_of(selective_loop, tensors, ctx.needs_input_grad[:-1], (grad, grad_last)), None
    delta, rate, omega, v, b, c, _, reset = tensors
    grads = _scan_backward(grad, grad_last, before, delta, rate, omega, v, b, c, reset, ctx.chunk)
    d_delta, d_rate, d_omega, *others = grads
    return d_delta, None if rate is None else d_rate, None if omega is None else d_omega, *others, None, None


_scan.register_autograd(_backward, setup_context=_save)
