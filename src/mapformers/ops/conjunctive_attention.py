"""softmax(A_X ⊙ A_P) v tile by tile: attention to what was seen times attention to where (sec. 3.2).

No fused kernel computes a product of two attentions. Written out (`conjunctive_reference`), it holds five L×L
matrices per head from the forward pass to the backward pass. A step takes as long at 256 tokens, but half as much
memory again there, and ever more on longer sequences (`mapformers bench ops`, docs/results/bench-ops.md).
"""

import math
from typing import Any

import torch
from torch import Tensor

from mapformers.ops.operator import empty_like, in_forward_mode, is_plain_step, register_gradient
from mapformers.ops.tiles import Tile, tiles
from mapformers.ops.visibility import Visibility


def conjunctive_attention(
    q: Tensor, k: Tensor, q_place: Tensor, k_place: Tensor, v: Tensor, scale: float, visibility: Visibility
) -> Tensor:
    """softmax(scale · (q kᵀ) ⊙ (q_place k_placeᵀ) + mask) v, all of (B, H, L or S + L, ·); pairs share their size."""
    if in_forward_mode():
        return conjunctive_reference(q, k, q_place, k_place, v, scale, visibility)
    if is_plain_step(q.shape[2]):
        return _attend_once(q, k, q_place, k_place, v, scale, visibility)
    start, self_key, causal, documents, real = visibility.of_heads(q.shape[1])
    flat = (tensor.flatten(0, 1) for tensor in (q, k, q_place, k_place, v))
    return _attend(*flat, documents, real, scale, start, self_key, causal).unflatten(0, q.shape[:2])


def conjunctive_reference(
    q: Tensor, k: Tensor, q_place: Tensor, k_place: Tensor, v: Tensor, scale: float, visibility: Visibility
) -> Tensor:
    """The same with every matrix written out: what `conjunctive_attention` must equal."""
    allowed = visibility.head_mask(slice(0, q.shape[2]), k.shape[2], q.device)
    logits = scale * (q @ k.mT) * (q_place @ k_place.mT)
    return logits.masked_fill(~allowed, -math.inf).softmax(dim=-1) @ v


def _attend_once(
    q: Tensor, k: Tensor, q_place: Tensor, k_place: Tensor, v: Tensor, scale: float, visibility: Visibility
) -> Tensor:
    """The same for a single query, which needs no tile."""
    heads = q.shape[:2]
    q, k, q_place, k_place, v = (tensor.flatten(0, 1) for tensor in (q, k, q_place, k_place, v))
    a_x, a_p = _factors(q * scale, k, q_place, k_place)
    logits = a_x.mul_(a_p).unflatten(0, heads)
    if not visibility.shows_all_to_one:
        logits.masked_fill_(~visibility.head_mask(slice(0, 1), k.shape[1], q.device), -math.inf)
    weights = logits.flatten(0, 1).softmax(dim=-1)
    return torch.bmm(weights if weights.dtype == v.dtype else weights.to(v.dtype), v).unflatten(0, heads)


def _factors(q: Tensor, k: Tensor, q_place: Tensor, k_place: Tensor) -> tuple[Tensor, Tensor]:
    """A_X and A_P of a tile as they are multiplied, in float32 or better."""
    wide = torch.promote_types(q.dtype, torch.float32)
    a_x, a_p = torch.bmm(q, k.mT), torch.bmm(q_place, k_place.mT)
    return (a_x, a_p) if q.dtype == wide else (a_x.to(wide), a_p.to(wide))


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
    causal: bool,
) -> Tensor:
    """Queries (N, L, ·), keys and values (N, S + L, ·), N = batch × heads; the query of row 0 is key number S."""
    out = v.new_empty(*q.shape[:2], v.shape[-1])
    for tile in tiles(q, k.shape[1], Visibility(start, self_key, causal, documents, real)):
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
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """With P the weights and S = scale · A_X ⊙ A_P: dS = P ⊙ (dP − rowsum(P ⊙ dP)), dA_X = dS ⊙ A_P and vice versa.

    The row sum is ⟨grad, out⟩, which needs no tile.
    """
    inputs = (q, k, q_place, k_place, v)
    dq, dk, dq_place, dk_place, dv = map(empty_like, inputs)
    for tile in tiles(q, k.shape[1], Visibility(start, self_key, causal, documents, real)):
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


def _plain(*inputs: Any) -> Tensor:
    """The reference as the operator is called: each of the N is a batch of one head."""
    q, k, q_place, k_place, v = (t.unsqueeze(1) for t in inputs[:5])
    documents, real, scale, start, self_key, causal = inputs[5:]
    visibility = Visibility(start, self_key, causal, documents, real)
    return conjunctive_reference(q, k, q_place, k_place, v, scale, visibility).squeeze(1)


register_gradient(_attend, _attend_backward, _plain, n_tensors=7, n_gradients=5)
