"""softmax(A_X ⊙ A_P) v in blocks: the fast path of `mapem` with ``attend="os"`` (eq. absolute_pe).

No fused kernel knows a product of two attentions. Written out, it holds five L×L matrices per head from the forward
pass to the backward pass. Here a few rows of queries of a few heads are worked on at a time, against the keys up to
the last of them, so the masked half is never computed and a tile stays in the cache. The backward pass makes the
tiles anew from the inputs: memory grows as L.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from mapformers.mixers.context import Context, visible_keys

# (rows, logits) of a tile. On a CPU 2¹⁷ float32 logits are half a megabyte, so that the few tiles alive at once stay
# within the second-level cache; elsewhere tiles are large, because launching work costs more than fetching it.
CPU_TILE, DEVICE_TILE = (32, 2**17), (128, 2**25)


def conjunctive_attention(
    q: Tensor, k: Tensor, q_place: Tensor, k_place: Tensor, v: Tensor, scale: float, context: Context, self_key: bool
) -> Tensor:
    """softmax(scale · (q kᵀ) ⊙ (q_place k_placeᵀ) + mask) v, all of (B, H, L or S + L, ·); pairs share their size."""
    documents = real = None
    if not context.is_undivided:
        documents, real = (flag.repeat_interleave(q.shape[1], dim=0) for flag in (context.documents(), context.real()))
    flat = (tensor.flatten(0, 1) for tensor in (q, k, q_place, k_place, v))
    out = _attend(*flat, documents, real, scale, context.past.length, self_key)
    return out.unflatten(0, q.shape[:2])


class Tile(NamedTuple):
    heads: slice
    rows: slice
    keys: slice  # those up to the last row
    hidden: Tensor  # (rows, columns) or (heads, rows, columns): what may not be seen of the last columns


def tiles(like: Tensor, documents: Tensor | None, real: Tensor | None, start: int, self_key: bool) -> Iterator[Tile]:
    """All tiles, the last rows of some heads first: theirs is the tile that has every key."""
    n_heads, length, _ = like.shape
    n_rows, n_logits = CPU_TILE if like.device.type == "cpu" else DEVICE_TILE
    n_together = max(1, n_logits // (n_rows * (start + length)))
    blocks = [slice(first, min(first + n_rows, length)) for first in range(0, length, n_rows)][::-1]
    # Of one document only the square on the diagonal is partly hidden: every earlier key is seen.
    squares = [~visible_keys(rows, start, self_key, device=like.device)[:, start + rows.start :] for rows in blocks]
    for first in range(0, n_heads, n_together):
        heads = slice(first, min(first + n_together, n_heads))
        for rows, hidden in zip(blocks, squares):
            keys = slice(0, start + rows.stop)
            if documents is not None and real is not None:
                hidden = ~visible_keys(rows, start, self_key, documents[heads], real[heads])
            yield Tile(heads, rows, keys, hidden)


def _factors(q: Tensor, k: Tensor, q_place: Tensor, k_place: Tensor) -> tuple[Tensor, Tensor]:
    """A_X and A_P of a tile as they are multiplied, in float32 or better."""
    wide = torch.promote_types(q.dtype, torch.float32)
    return torch.bmm(q, k.mT).to(wide), torch.bmm(q_place, k_place.mT).to(wide)


def _weights(logits: Tensor, tile: Tile) -> Tensor:
    """The attention weights of a tile, from its logits, which are masked in place."""
    logits[:, :, logits.shape[-1] - tile.hidden.shape[-1] :].masked_fill_(tile.hidden, -math.inf)
    return logits.softmax(dim=-1)


@torch.library.custom_op("mapformers::conjunctive_attention", mutates_args=())
def _attend(
    q: Tensor,
    k: Tensor,
    q_place: Tensor,
    k_place: Tensor,
    v: Tensor,
    documents: Tensor | None,
    real: Tensor | None,
    scale: float,
    start: int,
    self_key: bool,
) -> Tensor:
    """Queries (N, L, ·), keys and values (N, S + L, ·), N = batch × heads; the query of row 0 is key number S."""
    out = v.new_empty(*q.shape[:2], v.shape[-1])
    for tile in tiles(q, documents, real, start, self_key):
        here, there = (tile.heads, tile.rows), (tile.heads, tile.keys)
        a_x, a_p = _factors(q[here] * scale, k[there], q_place[here], k_place[there])
        weights = _weights(a_x.mul_(a_p), tile)
        out[here] = torch.bmm(weights.to(v.dtype), v[there])
    return out


@torch.library.custom_op("mapformers::conjunctive_attention_backward", mutates_args=())
def _attend_backward(
    grad: Tensor,
    out: Tensor,
    q: Tensor,
    k: Tensor,
    q_place: Tensor,
    k_place: Tensor,
    v: Tensor,
    documents: Tensor | None,
    real: Tensor | None,
    scale: float,
    start: int,
    self_key: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """With P the weights and S = scale · A_X ⊙ A_P: dS = P ⊙ (dP − rowsum(P ⊙ dP)), dA_X = dS ⊙ A_P and vice versa.

    The row sum is ⟨grad, out⟩, which needs no tile.
    """
    inputs = (q, k, q_place, k_place, v)
    dq, dk, dq_place, dk_place, dv = (torch.empty_like(t, memory_format=torch.contiguous_format) for t in inputs)
    for tile in tiles(q, documents, real, start, self_key):
        here, there = (tile.heads, tile.rows), (tile.heads, tile.keys)
        q_here, place_here, grad_here = q[here] * scale, q_place[here], grad[here]
        a_x, a_p = _factors(q_here, k[there], place_here, k_place[there])
        weights = _weights(a_x * a_p, tile)
        inner = (grad_here * out[here]).sum(dim=-1, keepdim=True)
        d_logits = torch.bmm(grad_here, v[there].mT).to(weights.dtype).sub_(inner).mul_(weights)
        d_ax, d_ap = (a.mul_(d_logits).to(q.dtype) for a in (a_p, a_x))
        dq[here] = torch.bmm(d_ax, k[there]) * scale
        dq_place[here] = torch.bmm(d_ap, k_place[there])
        for total, tiled, row in (
            (dk, d_ax, q_here),
            (dk_place, d_ap, place_here),
            (dv, weights.to(v.dtype), grad_here),
        ):
            part = torch.bmm(tiled.mT, row)
            if tile.rows.stop == q.shape[1]:  # the first tile of these heads, and it has every key
                total[there] = part
            else:
                total[there] += part
    return dq, dk, dq_place, dk_place, dv


@_attend.register_fake
def _(q: Tensor, k: Tensor, q_place: Tensor, k_place: Tensor, v: Tensor, *rest: object) -> Tensor:
    return v.new_empty(*q.shape[:2], v.shape[-1])


@_attend_backward.register_fake
def _(grad: Tensor, out: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(t, memory_format=torch.contiguous_format) for t in inputs[:5])


def _save(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    *tensors, ctx.scale, ctx.start, ctx.self_key = inputs
    ctx.save_for_backward(output, *tensors)


def _backward(ctx, grad):  # type: ignore[no-untyped-def]
    settings = (ctx.scale, ctx.start, ctx.self_key)
    grads = _attend_backward(grad, *ctx.saved_tensors, *settings)
    return *grads, None, None, None, None, None


_attend.register_autograd(_backward, setup_context=_save)
