"""Tiles of attention: a few rows of queries of a few heads, against the keys they may see.

Attention that no fused kernel computes is computed tile by tile, and recomputed in the backward pass: the masked half
is never computed, a tile stays in the cache, and memory grows as L instead of L².
"""

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from mapformers.ops.visibility import Visibility

# (rows, logits) of a tile. On a CPU 2¹⁷ float32 logits are half a megabyte, so that the few tiles alive at once stay
# within the second-level cache; elsewhere tiles are large, because launching work costs more than fetching it.
CPU_TILE, DEVICE_TILE = (32, 2**17), (128, 2**25)


class Tile(NamedTuple):
    heads: slice
    rows: slice
    keys: slice  # from the first key to the last that any of the rows may see
    hidden: Tensor  # (rows, columns) or (heads, rows, columns): what may not be seen of the last columns


def tiles(like: Tensor, n_keys: int, visibility: Visibility) -> Iterator[Tile]:
    """All tiles of queries ``like`` (heads, L, D). The first tile of each group of heads has every key."""
    n_heads, length, _ = like.shape
    n_rows, n_logits = CPU_TILE if like.device.type == "cpu" else DEVICE_TILE
    n_together = max(1, n_logits // (n_rows * n_keys))
    blocks = [slice(first, min(first + n_rows, length)) for first in range(0, length, n_rows)][::-1]
    reach = [visibility.start + rows.stop if visibility.causal else n_keys for rows in blocks]
    divided = visibility.documents is not None or visibility.real is not None
    # Of one causal document only the square on the diagonal is partly hidden: every earlier key is seen.
    squares = [
        ~visibility._replace(documents=None, real=None).mask(rows, end, like.device)[
            :, visibility.start + rows.start if visibility.causal else 0 :
        ]
        for rows, end in zip(blocks, reach)
    ]
    for first in range(0, n_heads, n_together):
        heads = slice(first, min(first + n_together, n_heads))
        for rows, end, hidden in zip(blocks, reach, squares):
            yield Tile(heads, rows, slice(0, end), ~visibility.mask(rows, end, batch=heads) if divided else hidden)
