"""One step of a recurrent network, forward and backward, for loops over time that keep no graph (`lstm`, `stack-rnn`).

A step works in place on buffers of the whole sequence. What a derivative needs that does not depend on later tokens,
its slopes, is computed for all tokens at once before the loop backward in time.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor


class Cell(Protocol):
    """z (B, gates·H) are the gates before their nonlinearity; h (B, H); c (B, H), or (B, 0) where there is none."""

    gates: int

    def step(self, z: Tensor, found: Tensor, c: Tensor, h: Tensor) -> None:
        """Write the gates over z, and the new c and h, from the c that is ``found``."""

    def slopes(self, gates: Tensor, found: Tensor, c: Tensor, h: Tensor) -> Sequence[Tensor]:
        """From the same of all tokens, (L, B, ·): what `back` takes, each to be indexed by time."""

    def back(self, slopes: Sequence[Tensor], dh: Tensor, dc: Tensor, dz: Tensor) -> None:
        """Write dz, and over dc the gradient of the c that was found."""


class TanhCell:
    """h = tanh(z)."""

    gates = 1

    def step(self, z: Tensor, found: Tensor, c: Tensor, h: Tensor) -> None:
        torch.tanh(z, out=h)

    def slopes(self, gates: Tensor, found: Tensor, c: Tensor, h: Tensor) -> Sequence[Tensor]:
        return [1 - h.square()]

    def back(self, slopes: Sequence[Tensor], dh: Tensor, dc: Tensor, dz: Tensor) -> None:
        torch.mul(dh, slopes[0], out=dz)


class LSTMCell:
    """c = σ(z_f) c + σ(z_i) tanh(z_g), h = σ(z_o) tanh(c); z = (z_i, z_f, z_g, z_o), as in `torch.nn.LSTM`."""

    gates = 4

    def step(self, z: Tensor, found: Tensor, c: Tensor, h: Tensor) -> None:
        size = h.shape[-1]
        i, f, g, o = z.split(size, dim=-1)
        z[:, : 2 * size].sigmoid_()
        g.tanh_()
        o.sigmoid_()
        torch.mul(f, found, out=c).addcmul_(i, g)
        torch.tanh(c, out=h).mul_(o)

    def slopes(self, gates: Tensor, found: Tensor, c: Tensor, h: Tensor) -> Sequence[Tensor]:
        """dz_{i,f,g} per dc, dz_o per dh, dc per dh, and dc of the c that was found per dc."""
        i, f, g, o = gates.chunk(4, dim=-1)
        squashed = c.tanh()
        per_c = torch.cat((g * i * (1 - i), found * f * (1 - f), i * (1 - g.square())), dim=-1)
        return [per_c.unflatten(-1, (3, -1)), squashed * o * (1 - o), o * (1 - squashed.square()), f]

    def back(self, slopes: Sequence[Tensor], dh: Tensor, dc: Tensor, dz: Tensor) -> None:
        per_c, per_h, through, kept = slopes
        dc.addcmul_(dh, through)
        size = dh.shape[-1]
        torch.mul(per_c, dc.unsqueeze(1), out=dz[:, : 3 * size].unflatten(-1, (3, size)))
        torch.mul(per_h, dh, out=dz[:, 3 * size :])
        dc.mul_(kept)


CELLS: dict[str, Cell] = {"rnn": TanhCell(), "lstm": LSTMCell()}


def found(start: Tensor, after: Tensor, keep: Tensor | None) -> Tensor:
    """(L, B, H) the state that each token finds, from that ``after`` each; ``keep`` (L, B, 1) is False at a reset."""
    before = torch.cat((start.unsqueeze(0), after[:-1]))
    return before if keep is None else before * keep


def cell_step(controller: str, z: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """(h, c) after one token, in plain torch: what the cells must equal."""
    if controller == "rnn":
        return z.tanh(), c
    i, f, g, o = z.chunk(4, dim=-1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c
