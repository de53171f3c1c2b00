"""What can be looked at inside a layer: every name that layers note, its shape and its meaning, in one table."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from mapformers.modules.context import StreamState

AXES = {
    "B": "sequences",
    "L": "tokens read by this call",
    "K": "tokens read so far, those of the state included",
    "H": "heads",
    "D": "numbers of a head",
    "r": "inner dimensions of the movement (of a layer without a bottleneck: its rotations)",
    "m": "rotations of a head: one per block of 2, or one per generator and block",
    "n_b": "rotation blocks of a head",
    "n": "size of a rotation block",
    "2": "two",
    "E": "channels that step by themselves",
    "A": "actions of a stack",
    "S": "cells of a stack",
    "W": "numbers of a cell",
}


@dataclass(frozen=True)
class Observable:
    """A name that a layer may note, what it means, and its shape as names of `AXES`."""

    name: str
    axes: tuple[str, ...]
    meaning: str

    @property
    def shape(self) -> str:
        return f"({', '.join(self.axes)})"


def _table(*rows: tuple[str, str, str]) -> dict[str, Observable]:
    return {name: Observable(name, tuple(axes.split()), meaning) for name, axes, meaning in rows}


OBSERVABLES = _table(
    ("delta_in", "B L H r", "Δ_in, the movement that a token makes on the map"),
    ("delta_out", "B L H m", "Δ = W_out Δ_in, how long each rotation turns (without W_out: Δ_in)"),
    ("coordinate", "B L H r", "Σ Δ_in, where a token is on the map; its own movement counts"),
    ("theta", "B H L n_b", "the angle by which queries and keys are turned, ω ⊙ W_out·coordinate, modulo 2π"),
    ("rotation", "B L H n_b n n", "P_t = W_t … W_1, where a token is if rotations do not commute"),
    ("queries", "B H L D", "what a token asks for, before it is turned"),
    ("keys", "B H L D", "what a token answers to, before it is turned"),
    ("values", "B H L D", "what a token hands over to those that attend to it"),
    ("attention", "B H L K", "the share of each key, which sum to 1 (to 0 where nothing can be seen)"),
    ("attn_x", "B H L K", "logits of what was seen, A_X (CoPE: of the content; gated: b_X A_X + 1 − b_X)"),
    ("attn_p", "B H L K", "logits of where it was seen, A_P (CoPE: of the position; gated: b_P A_P + 1 − b_P)"),
    ("gates", "B H L 2", "how much a query asks for what (b_X) and for where (b_P)"),
    ("place", "B L H D", "e_t, where TEM-t is"),
    ("delta", "B L E", "Δ_t, the step of a state-space model"),
    ("actions", "B L H A", "how much of push, pop and no-op a stack does"),
    ("stack", "B L H S W", "the stack as a token finds it"),
)


class Observed(list[dict[str, Tensor]]):
    """What every layer noted, one mapping per layer by the names of `OBSERVABLES`.

    ``logits``  (B, L, vocab): what the model answered.
    ``state``   the state to go on from: ``model.observe(more, state=observed.state)``.
    """

    def __init__(self, notes: Sequence[dict[str, Tensor]], logits: Tensor, state: StreamState):
        super().__init__(notes)
        self.logits = logits
        self.state = state
