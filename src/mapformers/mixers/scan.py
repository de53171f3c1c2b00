"""Linear recurrences h_t = a_t ⊙ h_{t−1} + b_t v_t, y_t = ⟨c_t, h_t⟩, without a loop over the length of the sequence.

Two kinds, each with the plain loop it must equal:

:func:`selective_scan`  a_t = exp(−|Δ_t|·rate + i·Δ_t·ω), with a Δ_t for every channel: Mamba (no ω), literal MAmPa.
:func:`attention_scan`  the channels of a head share a_t, so the sum is a product of masked matrices (A.5).

A state of N numbers per channel holds N/2 pairs where it turns; pair i is (h_i, h_{i+N/2}), as in `lie.rotation`.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mapformers import lie

# Numbers of state worked on at once, tokens × N × channels. On a CPU 2¹⁹ float32 are two megabytes, and the few such
# tensors alive stay within the cache; elsewhere launching work costs more than fetching it.
CPU_TILE, DEVICE_TILE = 2**19, 2**27
CHUNK = 64  # tokens whose masked products `attention_scan` writes out


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
    if start is None:
        start = v.new_zeros(v.shape[0], b.shape[-1], v.shape[-1])
    chunk = _chunk_size(v, b.shape[-1])
    short = -v.shape[1] % chunk  # filled up with steps of Δ = 0 that write nothing
    if short:
        delta, v, b, c = (torch.nn.functional.pad(t, (0, 0, 0, short)) for t in (delta, v, b, c))
        reset = None if reset is None else torch.nn.functional.pad(reset, (0, short))
    y, last, _ = _scan(delta, rate, omega, v, b, c, start, reset, chunk)
    return y[:, : y.shape[1] - short], last


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
    """The reference of :func:`selective_scan`: one real matrix, exp(Δ_t A), per token and channel."""
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


def attention_scan(
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
        q, k, v = (torch.nn.functional.pad(t, (0, 0, 0, short)) for t in (q, k, v))
        log_decay = None if log_decay is None else torch.nn.functional.pad(log_decay, (0, short))
        reset = None if reset is None else torch.nn.functional.pad(reset, (0, short))
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
    """h_t = R(θ_t) h_{t−1} + k_t v_tᵀ, y_t = q_tᵀ h_t with explicit matrices: what :func:`attention_scan` must equal.

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


def _most(v: Tensor) -> int:
    return CPU_TILE if v.device.type == "cpu" else DEVICE_TILE


def _chunk_size(v: Tensor, n_state: int) -> int:
    """√ of the tokens that are worked on at once: as many steps within a chunk as there are chunks."""
    together = max(1, min(v.shape[1], _most(v) // (n_state * v.shape[-1])))
    return math.isqrt(together - 1) + 1


class _Tile(NamedTuple):
    rows: slice
    chunks: slice


class _Recurrence:
    """The tensors of :func:`selective_scan` in chunks; where the state turns, a pair is one complex number.

    The backward pass goes through p with dL = Re(p·dh): p_t = c̄_t dy_t + a_{t+1} p_{t+1}. So no conjugate of a, h or p
    is ever taken, and decay and rotation, real and complex, are the same lines.
    """

    def __init__(
        self,
        delta: Tensor,
        rate: Tensor | None,
        omega: Tensor | None,
        v: Tensor,
        b: Tensor,
        c: Tensor,
        reset: Tensor | None,
        chunk: int,
    ):
        self.rate, self.omega = rate, omega
        self.delta, self.v = (t.unflatten(1, (-1, chunk)) for t in (delta, v))  # (B, K, chunk, E)
        self.b, self.c = (t.unflatten(1, (-1, chunk)) for t in (self.join(b), self.join(c, conjugate=True)))
        self.reset = None if reset is None else reset.unflatten(1, (-1, chunk))

    def join(self, halves: Tensor, dim: int = -1, conjugate: bool = False) -> Tensor:
        """(…, N, …) real to (…, N/2, …) complex; as it is where nothing turns."""
        if self.omega is None:
            return halves
        first, second = (half.contiguous() for half in halves.chunk(2, dim))
        return torch.complex(first, -second if conjugate else second)

    def part(self, pairs: Tensor, dim: int = -1, conjugate: bool = False) -> Tensor:
        """Back from complex pairs to two real halves."""
        if self.omega is None:
            return pairs
        return torch.cat((pairs.real, -pairs.imag if conjugate else pairs.imag), dim)

    def tiles(self) -> Iterator[list[_Tile]]:
        """For some rows at a time, the tiles along their sequences."""
        batch, n_chunks, chunk, channels = self.v.shape
        per_chunk = chunk * self.b.shape[-1] * (2 if self.b.is_complex() else 1) * channels
        n_rows, together = (max(1, _most(self.v) // size) for size in (n_chunks * per_chunk, per_chunk))
        for first in range(0, batch, n_rows):
            rows = slice(first, min(first + n_rows, batch))
            yield [_Tile(rows, slice(k, min(k + together, n_chunks))) for k in range(0, n_chunks, together)]

    def transitions(self, tile: _Tile) -> tuple[Tensor, Tensor]:
        """a_t of every token (R, K, chunk, N, E), and their product over each chunk (R, K, N, E)."""
        delta = self.delta[tile].unsqueeze(-2)
        steps, through = self._exp(delta.abs(), delta), self._exp(delta.abs().sum(dim=2), delta.sum(dim=2))
        if self.reset is not None:
            reset = self.reset[tile][..., None, None]
            steps.masked_fill_(reset, 0.0)
            through.masked_fill_(reset.any(dim=2), 0.0)
        return steps, through

    def _exp(self, size: Tensor, delta: Tensor) -> Tensor:
        decay = None if self.rate is None else (size * -self.rate).exp_()
        if self.omega is None:
            assert decay is not None
            return decay
        theta = delta * self.omega
        turn = torch.complex(theta.cos(), theta.sin_())
        return turn if decay is None else turn.mul_(decay)

    def written(self, tile: _Tile) -> Tensor:
        """b_t v_t of every token, (R, K, chunk, N, E)."""
        return self.b[tile].unsqueeze(-1) * self.v[tile].unsqueeze(-2)

    @staticmethod
    def advance(written: Tensor, a: Tensor, before: Tensor) -> Tensor:
        """h of every token in place of what it wrote, from the states ``before`` the chunks."""
        for a_t, h_t in zip(a.unbind(2), written.unbind(2)):
            before = h_t.addcmul_(a_t, before)
        return written


def _carry(state: Tensor, through: Sequence[Tensor], local: Sequence[Tensor], found: Sequence[Tensor]) -> Tensor:
    """From chunk to chunk: writes down the state each has ``found``, and returns the one that the last hands on."""
    for through_k, local_k, found_k in zip(through, local, found):
        found_k.copy_(state)
        state = torch.addcmul(local_k, through_k, state)
    return state


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
    """y, the last state, and the states before every chunk (B, K, N, E), from which the backward pass sets out."""
    with torch.autocast(v.device.type, enabled=False):
        r = _Recurrence(delta, rate, omega, v, b, c, reset, chunk)
        y = torch.empty_like(r.v, memory_format=torch.contiguous_format)
        last = r.join(start, dim=1).clone()
        before = last.new_empty(len(v), r.v.shape[1], *last.shape[1:])
        for tile in (tile for along in r.tiles() for tile in along):
            a, through = r.transitions(tile)
            h = r.written(tile)
            local = h[:, :, 0].clone()  # where each chunk would end if it began with 0
            for a_t, h_t in zip(a.unbind(2)[1:], h.unbind(2)[1:]):
                torch.addcmul(h_t, a_t, local, out=local)
            found = before[tile]
            last[tile.rows] = _carry(last[tile.rows], through.unbind(1), local.unbind(1), found.unbind(1))
            r.advance(h, a, found)
            y[tile] = _real(_times(r.c[tile], h))
        return y.flatten(1, 2), r.part(last, dim=1), r.part(before, dim=2)


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
        r = _Recurrence(delta, rate, omega, v, b, c, reset, chunk)
        before, grad = r.join(before, dim=2), grad.unflatten(1, (-1, chunk))
        d_delta, d_v = (torch.empty_like(t, memory_format=torch.contiguous_format) for t in (r.delta, r.v))
        d_b, d_c = (torch.empty_like(t, memory_format=torch.contiguous_format) for t in (r.b, r.c))
        d_rate, d_omega = (v.new_empty(0) if t is None else torch.zeros_like(t) for t in (rate, omega))
        later = r.join(grad_last, dim=1, conjugate=True).clone()  # p of the state that a tile hands on
        for tile in (tile for along in r.tiles() for tile in reversed(along)):
            a, through = r.transitions(tile)
            h = r.advance(r.written(tile), a, before[tile])
            dy, delta_here = grad[tile], r.delta[tile]
            p = r.c[tile].unsqueeze(-1) * dy.unsqueeze(-2)
            steps, ps = a.unbind(2)[::-1], p.unbind(2)[::-1]  # the last token of each chunk first
            local = ps[0].clone()
            for a_next, p_t in zip(steps, ps[1:]):
                torch.addcmul(p_t, a_next, local, out=local)
            local.mul_(steps[-1])
            found = torch.empty_like(local)
            backwards = (t.unbind(1)[::-1] for t in (through, local, found))
            later[tile.rows] = _carry(later[tile.rows], *backwards)
            ps[0].add_(found)
            for a_next, p_next, p_t in zip(steps, ps, ps[1:]):
                p_t.addcmul_(a_next, p_next)
            d_c[tile] = _times(dy.to(h.dtype), h.mT)
            d_b[tile] = _times(r.v[tile].to(p.dtype), p.mT)
            d_v[tile] = _real(_times(r.b[tile], p))
            a[:, :, 0].mul_(before[tile])
            a[:, :, 1:].mul_(h[:, :, :-1])
            d_log = a.mul_(p)  # dL = Re(d_log · d log a), log a = −|Δ|·rate + i·Δ·ω
            d_here = torch.zeros_like(delta_here)
            if rate is not None:
                d_here.addcmul_(delta_here.sign(), _real(_over_state(d_log, rate)), value=-1)
                d_rate.sub_(_real(_over_tokens(d_log, delta_here.abs())))
            if omega is not None:
                d_here.sub_(_over_state(d_log, omega).imag)
                d_omega.sub_(_over_tokens(d_log, delta_here).imag)
            d_delta[tile] = d_here
        d_delta, d_v, d_b, d_c = (t.flatten(1, 2) for t in (d_delta, d_v, d_b, d_c))
        return d_delta, d_rate, d_omega, d_v, r.part(d_b, conjugate=True), r.part(d_c), r.part(later, 1, conjugate=True)


def _over_state(x: Tensor, weight: Tensor) -> Tensor:
    """Σ_n x[…, n, e]·weight[n, e] in one passage over x."""
    weight = weight.to(x.dtype)
    total = x[..., 0, :] * weight[0]
    for x_n, weight_n in zip(x.unbind(-2)[1:], weight[1:]):
        total.addcmul_(x_n, weight_n)
    return total


def _over_tokens(x: Tensor, weight: Tensor) -> Tensor:
    """Σ_t x[t, n, e]·weight[t, e], the tokens t being the first three dimensions, in one passage over x."""
    weight = weight.to(x.dtype).unsqueeze(-2)
    total = x[:, :, 0] * weight[:, :, 0]
    for x_t, weight_t in zip(x.unbind(2)[1:], weight.unbind(2)[1:]):
        total.addcmul_(x_t, weight_t)
    return total.sum(dim=(0, 1))


def _times(row: Tensor, matrix: Tensor) -> Tensor:
    """Row vectors (…, n) times matrices (…, n, m); several times faster than matrices times columns."""
    return (row.unsqueeze(-2) @ matrix).squeeze(-2)


def _real(x: Tensor) -> Tensor:
    return x.real if x.is_complex() else x


@_scan.register_fake
def _(delta, rate, omega, v, b, c, start, reset, chunk):  # type: ignore[no-untyped-def]
    return torch.empty_like(v), torch.empty_like(start), start.new_empty(len(v), v.shape[1] // chunk, *start.shape[1:])


@_scan_backward.register_fake
def _(grad, grad_last, before, delta, rate, omega, v, b, c, reset, chunk):  # type: ignore[no-untyped-def]
    rates = (v.new_empty(0) if t is None else torch.empty_like(t) for t in (rate, omega))
    return torch.empty_like(delta), *rates, *(torch.empty_like(t) for t in (v, b, c, grad_last))


def _save(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    delta, rate, omega, v, b, c, _, reset, ctx.chunk = inputs
    ctx.save_for_backward(output[2], delta, rate, omega, v, b, c, reset)


def _backward(ctx, grad, grad_last, _):  # type: ignore[no-untyped-def]
    before, delta, rate, omega, v, b, c, reset = ctx.saved_tensors
    grads = _scan_backward(grad, grad_last, before, delta, rate, omega, v, b, c, reset, ctx.chunk)
    d_delta, d_rate, d_omega, *others = grads
    return d_delta, None if rate is None else d_rate, None if omega is None else d_omega, *others, None, None


_scan.register_autograd(_backward, setup_context=_save)
