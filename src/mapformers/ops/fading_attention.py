"""Attention to keys that fade: softmax(Σ_b e^{−(c_i − c_j)_b} ⟨q_i, k_j⟩_b) v, each block b at a rate of its own.

Written as ⟨e^{−c_i} q_i, e^{c_j} k_j⟩ it is an ordinary product, but e^{c_j} overflows on a long sequence. So c is
counted from the first of some rows of queries: what is earlier than them shrinks, what is among them grows by as much
as c grows over the rows. Few enough rows that this is at most ``MOST_GROWTH`` then go through fused attention at once:
usually all of them. ``ROWS`` never are too many, since c grows by at most ``MAX_FADING`` from one token to the next.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from mapformers.ops.operator import is_readable
from mapformers.ops.visibility import Visibility

ROWS = 32
MAX_FADING = 2.0  # that c may grow from one token to the next
MOST_GROWTH = 32.0  # of c over rows that are chosen by what c is: e^32 · e^LEAST is still far from where float32 ends
LEAST = -50.0  # of an exponent: e^−50 is nothing beside any other key, and slower numbers (denormal) are not reached


def rows_at_once(faded: Tensor, start: int) -> int:
    """How many rows of queries may be counted from one place; ``faded`` (B, H, S + L, n_b), S = ``start``."""
    length = faded.shape[2] - start
    if length > ROWS and not is_readable():
        return ROWS
    rows, here = length, faded.detach()[:, :, start:]
    while rows > ROWS:
        first = torch.arange(0, length, rows, device=faded.device)
        last = (first + rows - 1).clamp(max=length - 1)
        if float((here[:, :, last] - here[:, :, first]).amax()) <= MOST_GROWTH:
            break
        rows = -(-rows // 2)
    return rows


def counted_from(first: int, q: Tensor, k: Tensor, faded: Tensor) -> tuple[Tensor, Tensor]:
    """e^{−c} q and e^{c} k, with c counted from key number ``first``, where ``q`` begins; q·k then has faded.

    float16 ends at e^11: it becomes float32, in which attention must then be computed.
    """
    since = (faded - faded[:, :, first, None]).to(torch.promote_types(q.dtype, torch.float32)).clamp(min=LEAST)
    wanted = torch.float32 if q.dtype == torch.float16 else q.dtype

    def times(x: Tensor, factor: Tensor) -> Tensor:  # both components of a pair have the factor of their block
        return (x.unflatten(-1, (2, -1)) * factor.unsqueeze(-2)).flatten(-2).to(wanted)

    return times(q, since[:, :, first:].neg().exp()), times(k, since.exp())


def fading_attention(
    q: Tensor, k: Tensor, v: Tensor, faded: Tensor, scale: float, visibility: Visibility, rows: int = ROWS
) -> Tensor:
    """The result (B, H, L, D), ``rows`` rows of queries at a time.

    ``q`` (B, H, L, D), ``k`` and ``v`` (B, H, S + L, D), ``faded`` = c of every key (B, H, S + L, D/2), float64.
    """
    mixed = []
    for queries, keys, mask in _pieces(q, k, faded, visibility, rows):
        values = v[:, :, : keys.shape[2]].to(keys.dtype)
        mixed.append(scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=scale))
    return torch.cat(mixed, dim=2)


def fading_weights(
    q: Tensor, k: Tensor, faded: Tensor, scale: float, visibility: Visibility, rows: int = ROWS
) -> list[Tensor]:
    """The attention weights, some rows at a time, each against the keys up to its last row."""
    pieces = _pieces(q, k, faded, visibility, rows)
    logits = ((queries @ keys.mT * scale).masked_fill(~mask, -torch.inf) for queries, keys, mask in pieces)
    return [rows_of_logits.softmax(dim=-1) for rows_of_logits in logits]


def _pieces(
    q: Tensor, k: Tensor, faded: Tensor, visibility: Visibility, rows: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Some rows of queries, all keys up to the last of them, each counted from the first row, and the mask of both."""
    start, length = visibility.start, q.shape[2]
    allowed = visibility.head_mask(slice(0, length), k.shape[2], q.device)
    for first in range(0, length, rows):
        stop = min(first + rows, length)
        end = start + stop
        pair = counted_from(start + first, q[:, :, first:stop], k[:, :, :end], faded[:, :, :end])
        yield *pair, allowed[..., first:stop, :end]
