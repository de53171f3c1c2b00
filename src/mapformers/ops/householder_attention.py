"""Attention through products of Householder matrices: the fast path of `path` (PaTH, Yang 2026, sec. 3).

With H_t = I − β_t w_t w_tᵀ the logit of query i and key j is s_ij = k_jᵀ H_{j+1} … H_i q_i. Carrying a key through
tokens 1 … i takes from it Σ_t x_t w_t with x_t = β_t w_tᵀ(k_j − Σ_{s<t} x_s w_s): a unit-triangular system, so all
products of a chunk come from one solve (the UT transform) and none is ever formed. From chunk to chunk the keys
themselves are carried on, as when tokens are read one by one, so a sequence costs L² and not L³.

Documents need no mask here: s_ij has no factor outside j+1 … i, and a pair of two documents is never attended. Padding
needs β = 0, which makes H_t = I.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from mapformers.ops.visibility import Visibility

CHUNK = 32  # tokens. A larger chunk has more to solve, a smaller one carries keys more often


class Chunks(NamedTuple):
    """What the products of N·n chunks of C tokens do; each is (N·n, C, …)."""

    logits: Tensor  # (…, C) q_i against the keys of its own chunk; of no meaning above the diagonal
    queries: Tensor  # (…, D) q_i carried back to the chunk's beginning, for all keys before it
    keys: Tensor  # (…, D) k_j carried on to the chunk's end
    w: Tensor  # (…, D)
    y: Tensor  # (…, D) a key before the chunk is carried through all of it by k ← k − Wᵀ Y k


def ut_transform(q: Tensor, k: Tensor, w: Tensor, beta: Tensor) -> Chunks:
    """The products of chunks (…, C, D), each by itself; β is (…, C, 1).

    With L = stril(diag(β) W Wᵀ): X = (I + L)⁻¹ stril(diag(β) W Kᵀ) is what the tokens of a chunk take from its own
    keys, and Y = (I + L)⁻¹ diag(β) W what they take from any earlier vector.
    """
    size, dim = w.shape[-2:]
    w_beta = beta * w
    lower = torch.ones(size, size, dtype=w.dtype, device=w.device).tril()
    own = lower - torch.eye(size, dtype=w.dtype, device=w.device)
    # One product for the four that are needed: [βW; Q] [W; K]ᵀ. A token does not act on its own key, but on its query.
    gram = torch.bmm(torch.cat((w_beta, q), dim=1), torch.cat((w, k), dim=1).mT)
    masked = gram * torch.cat((own.repeat(1, 2), lower.repeat(1, 2)))
    (ww, wk), (qw, qk) = (half.split(size, dim=-1) for half in masked.split(size, dim=1))
    taken = torch.linalg.solve_triangular(ww, torch.cat((wk, w_beta), dim=-1), upper=False, unitriangular=True)
    x, y = taken.split((size, dim), dim=-1)
    logits, queries = torch.baddbmm(torch.cat((qk, q), dim=-1), qw, taken, alpha=-1).split((size, dim), dim=-1)
    return Chunks(logits, queries, torch.baddbmm(k, x.mT, w, alpha=-1), w, y)


def householder_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    w: Tensor,
    beta: Tensor,
    scale: float,
    visibility: Visibility,
    past_keys: Tensor | None = None,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """softmax(scale · s + mask) v, all keys (B, H, S + L, D) carried on to the end of this chunk, and the weights of
    some rows at a time.

    q, k, w are (B, H, L, D) and β (B, H, L), all of one dtype; ``past_keys`` (B, H, S, D) were carried on to where this
    chunk begins; ``v`` (B, H, S + L, D) has the past ones too.
    """
    batch, heads, length, dim = q.shape
    size = CHUNK if length > CHUNK else length  # not min(): a compiler would carry it along as an unknown
    n = len(range(0, length, size))
    blank = n * size - length  # tokens that do nothing, to make the last chunk full

    def cut(t: Tensor) -> Tensor:
        return pad(t.flatten(0, 1), (0, 0, 0, blank)).reshape(batch * heads * n, size, t.shape[-1])

    products = ut_transform(cut(q * scale), cut(k), cut(w), cut(beta.unsqueeze(-1)))
    chunks = [Chunks(*parts) for parts in zip(*(t.unflatten(0, (-1, n)).unbind(1) for t in products))]
    values = v.flatten(0, 1)
    hidden = ~visibility.of_heads(heads).mask(slice(0, length), v.shape[2], q.device)
    keys = q.new_zeros(batch * heads, 0, dim) if past_keys is None else past_keys.flatten(0, 1)
    mixed: list[Tensor] = []
    seen: list[Tensor] = []
    for index, chunk in enumerate(chunks):
        first, last = index * size, min((index + 1) * size, length)
        full = last - first
        logits = torch.cat((torch.bmm(chunk.queries[:, :full], keys.mT), chunk.logits[:, :full, :full]), dim=-1)
        reach = logits.shape[-1]
        weights = logits.masked_fill(hidden[..., first:last, :reach], -math.inf).softmax(dim=-1)
        mixed.append(torch.bmm(weights.to(v.dtype), values[:, :reach]))
        carried = torch.baddbmm(keys, torch.bmm(keys, chunk.y.mT), chunk.w, alpha=-1)
        keys = torch.cat((carried, chunk.keys[:, :full]), dim=1)
        seen.append(weights.unflatten(0, (batch, heads)))
    return torch.cat(mixed, dim=1).unflatten(0, (batch, heads)), keys.unflatten(0, (batch, heads)), seen
