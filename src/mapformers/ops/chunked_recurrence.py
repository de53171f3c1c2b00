"""The work of a selective scan, forward and backward: chunks of tokens that step together, tiles that fit a cache."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mapformers.ops.rotation_products.time_blocks import root

# Numbers of state worked on at once, tokens × N × channels. On a CPU 2¹⁹ float32 are two megabytes, and the few such
# tensors alive stay within the cache; elsewhere launching work costs more than fetching it.
CPU_TILE, DEVICE_TILE = 2**19, 2**27


def chunk_size(v: Tensor, n_state: int) -> int:
    """√ of the tokens that are worked on at once: as many steps within a chunk as there are chunks."""
    together = max(1, min(v.shape[1], _most(v) // (n_state * v.shape[-1])))
    return root(together)


class Gradients(NamedTuple):
    """Those of an absent rate or ω are empty."""

    delta: Tensor
    rate: Tensor
    omega: Tensor
    v: Tensor
    b: Tensor
    c: Tensor
    start: Tensor


class _Tile(NamedTuple):
    rows: slice
    chunks: slice


class ChunkedRecurrence:
    """The tensors of a selective scan in chunks; where the state turns, a pair is one complex number.

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

    def forward(self, start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """y (B, L, E), the last state (B, N, E), and the states before every chunk (B, K, N, E)."""
        y = torch.empty_like(self.v, memory_format=torch.contiguous_format)
        last = self.join(start, dim=1).clone(memory_format=torch.contiguous_format)
        before = last.new_empty(*self.v.shape[:2], *last.shape[1:])
        for tile in (tile for along in self.tiles() for tile in along):
            a, through = self.transitions(tile)
            h = self.written(tile)
            local = h[:, :, 0].clone()  # where each chunk would end if it began with 0
            for a_t, h_t in zip(a.unbind(2)[1:], h.unbind(2)[1:]):
                torch.addcmul(h_t, a_t, local, out=local)
            found = before[tile]
            last[tile.rows] = _carry(last[tile.rows], through.unbind(1), local.unbind(1), found.unbind(1))
            self.advance(h, a, found)
            y[tile] = _real(_times(self.c[tile], h))
        return y.flatten(1, 2), self.part(last, dim=1), self.part(before, dim=2)

    def backward(self, grad: Tensor, grad_last: Tensor, before: Tensor) -> Gradients:
        """From the gradients of y and of the last state, and the states ``before`` every chunk."""
        before, grad = self.join(before, dim=2), grad.unflatten(1, (-1, self.v.shape[2]))
        d_delta, d_v = (torch.empty_like(t, memory_format=torch.contiguous_format) for t in (self.delta, self.v))
        d_b, d_c = (torch.empty_like(t, memory_format=torch.contiguous_format) for t in (self.b, self.c))
        d_rate, d_omega = (grad.new_empty(0) if t is None else torch.zeros_like(t) for t in (self.rate, self.omega))
        # p of the state that a tile hands on
        later = self.join(grad_last, dim=1, conjugate=True).clone(memory_format=torch.contiguous_format)
        for tile in (tile for along in self.tiles() for tile in reversed(along)):
            a, through = self.transitions(tile)
            h = self.advance(self.written(tile), a, before[tile])
            dy, delta = grad[tile], self.delta[tile]
            p = self.c[tile].unsqueeze(-1) * dy.unsqueeze(-2)
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
            d_b[tile] = _times(self.v[tile].to(p.dtype), p.mT)
            d_v[tile] = _real(_times(self.b[tile], p))
            a[:, :, 0].mul_(before[tile])
            a[:, :, 1:].mul_(h[:, :, :-1])
            d_log = a.mul_(p)  # dL = Re(d_log · d log a), log a = −|Δ|·rate + i·Δ·ω
            d_here = torch.zeros_like(delta)
            if self.rate is not None:
                d_here.addcmul_(delta.sign(), _real(_over_state(d_log, self.rate)), value=-1)
                d_rate.sub_(_real(_over_tokens(d_log, delta.abs())))
            if self.omega is not None:
                d_here.sub_(_over_state(d_log, self.omega).imag)
                d_omega.sub_(_over_tokens(d_log, delta).imag)
            d_delta[tile] = d_here
        d_delta, d_v, d_b, d_c = (t.flatten(1, 2) for t in (d_delta, d_v, d_b, d_c))
        d_b, d_start = self.part(d_b, conjugate=True), self.part(later, dim=1, conjugate=True)
        return Gradients(d_delta, d_rate, d_omega, d_v, d_b, self.part(d_c), d_start)

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


def _most(v: Tensor) -> int:
    return CPU_TILE if v.device.type == "cpu" else DEVICE_TILE


def _carry(state: Tensor, through: Sequence[Tensor], local: Sequence[Tensor], found: Sequence[Tensor]) -> Tensor:
    """From chunk to chunk: writes down the state each has ``found``, and returns the one that the last hands on."""
    for through_k, local_k, found_k in zip(through, local, found):
        found_k.copy_(state)
        state = torch.addcmul(local_k, through_k, state)
    return state


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
