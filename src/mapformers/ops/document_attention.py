"""Causal attention within packed documents, without a mask: each document is attended to as a sequence of its own.

A mask of packed documents has B·L² entries, and fused attention keeps it for the backward pass. Here the documents of a
batch are sorted by length into a few groups, those of a group are filled up behind their ends to one length, and every
group is one call of causal attention. What fills up comes after all real tokens of its document, so none of them sees
it. Memory grows with L instead of L², and no work is done between documents. `reference` is the definition.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from mapformers.ops.visibility import Visibility

SHORTEST = 16  # documents up to this length are one group; those of each further group may be twice as long


class Group(NamedTuple):
    """n documents that are attended to in one call."""

    tokens: Tensor  # (n, P) where in the flattened batch each token is; behind the end of a document its last one again
    real: Tensor  # (N,) which of the n·P are tokens of their document


class DocumentLayout(NamedTuple):
    """Where the documents of a batch are."""

    groups: tuple[Group, ...]
    back: Tensor  # (B·L,) where each token of the batch is among the real tokens of all groups


def layout_of(reset: Tensor) -> DocumentLayout:
    """From (B, L) bool, True where a document begins; a row begins with one whatever it says there."""
    begins = reset.clone()
    begins[:, 0] = True
    first = begins.flatten().nonzero().squeeze(1)
    sizes = torch.diff(first, append=first.new_tensor([reset.numel()]))
    level = (sizes.clamp(min=SHORTEST) / SHORTEST).log2().ceil().long()
    groups = tuple(_group(first[level == number], sizes[level == number]) for number in level.unique().tolist())
    order = torch.cat([group.tokens.flatten()[group.real] for group in groups])
    return DocumentLayout(groups, torch.empty_like(order).scatter_(0, order, torch.arange(len(order)).to(order)))


def _group(first: Tensor, sizes: Tensor) -> Group:
    step = torch.arange(int(sizes.max()), device=first.device)
    real = step < sizes.unsqueeze(1)
    tokens = first.unsqueeze(1) + torch.minimum(step, sizes.unsqueeze(1) - 1)
    return Group(tokens, real.flatten().nonzero().squeeze(1))


def document_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float, layout: DocumentLayout, self_key: bool = True
) -> Tensor:
    """softmax(scale · q kᵀ) v over earlier tokens of the same document, (B, H, L, D) each."""
    flat = [t.transpose(1, 2).flatten(0, 1) for t in (q, k, v)]  # (B·L, H, D)
    parts = []
    for group in layout.groups:
        tokens = group.tokens.flatten()
        here = [t.index_select(0, tokens).unflatten(0, group.tokens.shape).transpose(1, 2) for t in flat]
        mixed = causal_attention(here[0], here[1], here[2], scale, self_key)  # (n, H, P, D)
        parts.append(mixed.transpose(1, 2).flatten(0, 1).index_select(0, group.real))
    mixed = torch.cat(parts).index_select(0, layout.back)
    return mixed.unflatten(0, (q.shape[0], q.shape[2])).transpose(1, 2)


def causal_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, self_key: bool = True) -> Tensor:
    """softmax(scale · q kᵀ) v over earlier tokens, and the token itself unless ``self_key`` is False."""
    if self_key:
        return scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    # Keys strictly earlier = the causal triangle between queries 1… and keys …L−1; the first sees itself.
    later = scaled_dot_product_attention(q[:, :, 1:], k[:, :, :-1], v[:, :, :-1], is_causal=True, scale=scale)
    return torch.cat((v[:, :, :1].to(later.dtype), later), dim=2)


def reference(q: Tensor, k: Tensor, v: Tensor, scale: float, reset: Tensor, self_key: bool = True) -> Tensor:
    """The same with the whole mask."""
    seen = Visibility(0, self_key, True, reset.long().cumsum(dim=1), torch.ones_like(reset))
    mask = seen.mask(slice(0, q.shape[2]), q.shape[2]).unsqueeze(1)
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
