"""Learned gates on what was seen and on where, token by token (A.7 leaves them for later).

Each factor of A_X ⊙ A_P is mixed with 1, which asks for nothing: (b_X A_X + 1 − b_X) ⊙ (b_P A_P + 1 − b_P), b_X and
b_P between 0 and 1 for every query and head. Its corners are the three models of the paper: (1, 1) is `os`, (0, 1) is
`s`, (1, 0) is `o`. It needs no other attention: a constant is joined to queries and keys as one more component.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from mapformers.modules.context import Context
from mapformers.modules.mixer import LayerShape

BIAS_AT_START = 2.0  # sigmoid(2) = 0.88: nearly `os`, and not so near that no gradient comes through


class WhatWhereGate(nn.Module):
    """x_t → (b_X, b_P) = sigmoid(W_b x_t + bias), for every head."""

    def __init__(self, shape: LayerShape):
        super().__init__()
        self.n_heads = shape.n_heads
        self.project = nn.Linear(shape.d_model, 2 * shape.n_heads)
        nn.init.zeros_(self.project.weight)
        nn.init.constant_(self.project.bias, BIAS_AT_START)

    def forward(self, x: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """(B, L, d_model) -> b_X and b_P of (B, H, L, 1)."""
        gates = self.project(x).sigmoid().unflatten(-1, (2, self.n_heads)).permute(2, 0, 3, 1)
        context.note(gates=gates.movedim(0, -1))
        of_what, of_where = gates.unsqueeze(-1)
        return of_what, of_where


def gated_query(q: Tensor, b: Tensor) -> Tensor:
    """[b q, (1 − b)√D], so that with `gated_key` the scaled product is b ⟨q, k⟩/√D + 1 − b."""
    return torch.cat((b * q, (1 - b) * q.shape[-1] ** 0.5), dim=-1)


def gated_key(k: Tensor) -> Tensor:
    """[k, 1]."""
    return pad(k, (0, 1), value=1.0)
