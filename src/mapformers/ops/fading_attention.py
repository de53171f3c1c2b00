"""Attention to keys that fade: softmax(Σ_b e^{−(c_i − c_j)_b} ⟨q_i, k_j⟩_b) v, each block b at a rate of its own.

Written as ⟨e^{−c_i} q_i, e^{c_j} k_j⟩ it is an ordinary product, but e^{c_j} overflows on a long sequence. So c is
counted from the first of a few rows of queries: what is earlier than them shrinks, what is among them grows by at most
``ROWS · MAX_FADING`` in the exponent, which float32 holds.
"""

import torch
from torch import Tensor

from mapformers.ops.visibility import Visibility

ROWS = 32
MAX_FADING = 2.0  # that c may grow from one token to the next


def fading_attention(
    q: Tensor, k: Tensor, v: Tensor, faded: Tensor, scale: float, visibility: Visibility
) -> tuple[Tensor, list[Tensor]]:
    """The result (B, H, L, D), and the attention weights of some rows at a time.

    ``q`` (B, H, L, D), ``k`` and ``v`` (B, H, S + L, D), ``faded`` = c of every key (B, H, S + L, D/2), float64.
    """
    start, length, n_keys = visibility.start, q.shape[2], k.shape[2]
    allowed = visibility.head_mask(slice(0, length), n_keys, q.device)
    mixed, seen = [], []
    for first in range(0, length, ROWS):
        stop = min(first + ROWS, length)
        since = faded[:, :, : start + stop] - faded[:, :, start + first, None]
        # Exponentials in float32 or better; both components of a pair have the exponent of their block.
        grown = torch.cat((since, since), dim=-1).to(torch.promote_types(q.dtype, torch.float32))
        queries = q[:, :, first:stop] * grown[:, :, start + first :].neg().exp()
        keys = k[:, :, : start + stop] * grown.exp()
        logits = (queries * scale) @ keys.mT
        hidden = ~allowed[..., first:stop, : start + stop]
        weights = logits.masked_fill(hidden, -torch.inf).softmax(dim=-1)
        seen.append(weights)
        mixed.append(weights.to(v.dtype) @ v[:, :, : start + stop])
    return torch.cat(mixed, dim=2), seen
