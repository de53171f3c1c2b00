"""Attention whose position is a count of gated keys, in blocks: the fast path of `cope` (Golovneva 2024, eqs. 3 to 5).

No fused kernel computes it: the position of a key depends on the gates of all keys between it and the query. So it is
computed tile by tile. Written out (`contextual_reference`), a step takes a quarter longer and three times the
memory (`mapformers bench ops`, docs/results/bench-ops.md).

Keys and values are taken in reverse, latest first. The gates from a key up to the query are then a plain running sum
along the row, small where positions are small: no L×L matrix is flipped, and none is a difference of large sums.
"""

import math
from typing import Any

import torch
from torch import Tensor

from mapformers.ops.operator import empty_like, in_forward_mode, is_plain_step, register_gradient
from mapformers.ops.tiles import Tile, tiles
from mapformers.ops.visibility import Visibility


def contextual_attention(
    q: Tensor, k: Tensor, v: Tensor, z: Tensor, scale: float, sharpness: Tensor, visibility: Visibility
) -> Tensor:
    """softmax(sharpness · (a + interpolate(z, p)) + mask) v with a = scale · q kᵀ and p the running sum of σ(a).

    ``q``, ``k``, ``v`` (B, H, L or S + L, D); ``z`` (B, H, L, npos + 1), the logit of each whole position, the last of
    which is given twice: beyond it nothing changes, in value or in gradient. ``sharpness`` (B, H, L, 1).
    """
    if is_plain_step(q.shape[2]):
        return _attend_once(q, k, v, z, scale, sharpness, visibility)
    start, self_key, _, documents, real = visibility.of_heads(q.shape[1])
    flat = (tensor.flatten(0, 1) for tensor in (q, k, v, z, sharpness))
    run = _plain if in_forward_mode() else _attend
    return run(*flat, documents, real, scale, start, self_key).unflatten(0, q.shape[:2])


def _attend_once(
    q: Tensor, k: Tensor, v: Tensor, z: Tensor, scale: float, sharpness: Tensor, visibility: Visibility
) -> Tensor:
    """The same for a single query: its logits are put in reverse, and no key is."""
    wide, n_keys = torch.promote_types(q.dtype, torch.float32), k.shape[2]
    hidden = ~visibility.head_mask(slice(0, 1), n_keys, q.device)
    content = ((q * scale) @ k.mT).to(wide).masked_fill_(hidden, -math.inf)
    position = content.sigmoid().flip(-1).cumsum(dim=-1).flip(-1).clamp_(max=z.shape[-1] - 2)
    low, step, way, _ = _interpolate(position, z.to(wide))
    logits = content.add_(low.addcmul_(step, way)).mul_(sharpness).masked_fill_(hidden, -math.inf)
    return logits.softmax(dim=-1).to(v.dtype) @ v


def contextual_reference(
    q: Tensor, k: Tensor, z: Tensor, scale: float, visibility: Visibility
) -> tuple[Tensor, Tensor, Tensor]:
    """The logits of content and of position (B, H, L, S + L) by their definitions, and the mask; ``z`` as above."""
    allowed = visibility.head_mask(slice(0, q.shape[2]), k.shape[2], q.device)
    content = q @ k.mT * scale
    gates = content.sigmoid().masked_fill(~allowed, 0.0)
    up_to_query = torch.ones(k.shape[2], k.shape[2], dtype=gates.dtype, device=gates.device).tril()  # [t, j]: t ≥ j
    p = (gates @ up_to_query).clamp(max=z.shape[-1] - 2)
    floor, ceiling = p.floor(), p.ceil()
    way = p - floor  # a floor has no gradient
    return content, way * z.gather(-1, ceiling.long()) + (1 - way) * z.gather(-1, floor.long()), allowed


def _latest_first(tile: Tile, n_keys: int) -> tuple[slice, slice]:
    """The heads and keys of a tile where keys are in reverse."""
    return tile.heads, slice(n_keys - tile.keys.stop, n_keys)


def _hide(tile: Tile, matrix: Tensor, value: float) -> Tensor:
    """Set what a tile may not see, in place."""
    matrix[:, :, : tile.hidden.shape[-1]].masked_fill_(tile.hidden.flip(-1), value)
    return matrix


def _count(tile: Tile, q: Tensor, k: Tensor, npos: int) -> tuple[Tensor, Tensor, Tensor]:
    """Content logits with −∞ where hidden, their gates (0 where hidden), and positions clamped at npos − 1."""
    wide = torch.promote_types(q.dtype, torch.float32)
    content = _hide(tile, torch.bmm(q, k.mT).to(wide), -math.inf)
    gates = content.sigmoid()
    return content, gates, gates.cumsum(dim=-1).clamp_(max=npos - 1)


def _interpolate(position: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """z at ⌊p⌋, the step from there to z at ⌊p⌋ + 1, the way p is along it, and ⌊p⌋. Uses up ``position``."""
    floor = position.long()
    low = z[..., :-1].gather(-1, floor)
    step = z[..., 1:].gather(-1, floor).sub_(low)
    return low, step, position.frac_(), floor


@torch.library.custom_op("mapformers::contextual_attention", mutates_args=())
def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    z: Tensor,
    sharpness: Tensor,
    documents: Tensor | None,
    real: Tensor | None,
    scale: float,
    start: int,
    self_key: bool,
) -> Tensor:
    """Queries (N, L, D), keys and values (N, S + L, D), N = batch × heads; the query of row 0 is key number S."""
    out = empty_like(q)
    k, v = k.flip(1), v.flip(1)
    for tile in tiles(q, k.shape[1], Visibility(start, self_key, True, documents, real)):
        here, there = (tile.heads, tile.rows), _latest_first(tile, k.shape[1])
        content, _, position = _count(tile, q[here] * scale, k[there], z.shape[-1] - 1)
        low, step, way, _ = _interpolate(position, z[here].to(content.dtype))
        logits = content.add_(low.addcmul_(step, way)).mul_(sharpness[here])
        weights = _hide(tile, logits, -math.inf).softmax(dim=-1)  # again: a sharpness of 0 makes −∞ no number
        out[here] = torch.bmm(weights.to(v.dtype), v[there])
    return out


@torch.library.custom_op("mapformers::contextual_attention_backward", mutates_args=())
def _attend_backward(
    grad: Tensor,
    out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    z: Tensor,
    sharpness: Tensor,
    documents: Tensor | None,
    real: Tensor | None,
    scale: float,
    start: int,
    self_key: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """With P the weights: dlogits = P ⊙ (dP − rowsum(P ⊙ dP)), the row sum being ⟨grad, out⟩, which needs no tile.
    The sharpness of a row gets its dlogits times the logits that it multiplies, summed.

    z gets it shared out between ⌊p⌋ and ⌊p⌋ + 1; p through the weights of the two alone, so dp = dlogits ⊙ step; and
    since a gate counts for every key before it, dg is the sum of dp over the rest of the row.
    """
    dq, dk, dv, d_sharpness = map(empty_like, (q, k, v, sharpness))
    dz = torch.zeros_like(z, dtype=torch.promote_types(z.dtype, torch.float32), memory_format=torch.contiguous_format)
    k, v = k.flip(1), v.flip(1)
    for tile in tiles(q, k.shape[1], Visibility(start, self_key, True, documents, real)):
        here, there = (tile.heads, tile.rows), _latest_first(tile, k.shape[1])
        q_here, grad_here = q[here] * scale, grad[here]
        content, gates, position = _count(tile, q_here, k[there], z.shape[-1] - 1)
        low, step, way, floor = _interpolate(position, z[here].to(content.dtype))
        logits, sharp = content.add_(low.addcmul_(step, way)), sharpness[here].to(content.dtype)
        weights = _hide(tile, logits * sharp, -math.inf).softmax(dim=-1)

        inner = (grad_here * out[here]).sum(dim=-1, keepdim=True)
        d_logits = torch.bmm(grad_here, v[there].mT).to(weights.dtype).sub_(inner).mul_(weights)
        d_sharpness[here] = (d_logits * _hide(tile, logits, 0.0)).sum(dim=-1, keepdim=True).to(sharpness.dtype)
        d_logits.mul_(sharp)
        d_gates = step.mul_(d_logits).flip(-1).cumsum(dim=-1).flip(-1)
        d_high = way.mul_(d_logits)
        dz[here][:, :, 1:].scatter_add_(-1, floor, d_high)
        dz[here][:, :, :-1].scatter_add_(-1, floor, torch.sub(d_logits, d_high))
        d_content = d_logits.add_(torch.ops.aten.sigmoid_backward(d_gates, gates)).to(q.dtype)

        dq[here] = torch.bmm(d_content, k[there]) * scale
        for total, tiled, row in ((dk, d_content, q_here), (dv, weights.to(v.dtype), grad_here)):
            part = torch.bmm(tiled.mT, row)
            if tile.rows.stop == q.shape[1]:  # the first tile of these heads, and it has every key
                total[there] = part
            else:
                total[there] += part
    return dq, dk.flip(1), dv.flip(1), dz.to(z.dtype), d_sharpness


@_attend.register_fake
def _(q: Tensor, *rest: object) -> Tensor:
    return empty_like(q)


def _plain(*inputs: Any) -> Tensor:
    """By `contextual_reference`, as the operator is called: each of the N is a batch of one head."""
    q, k, v, z, sharpness = (t.unsqueeze(1) for t in inputs[:5])
    documents, real, scale, start, self_key = inputs[5:]
    visibility = Visibility(start, self_key, True, documents, real)
    content, position, allowed = contextual_reference(q, k, z, scale, visibility)
    logits = ((content + position) * sharpness).masked_fill(~allowed, -math.inf)
    return (logits.softmax(dim=-1) @ v).squeeze(1)


register_gradient(_attend, _attend_backward, _plain, n_tensors=7, n_gradients=5)
