"""Which keys may a query see? The one place where causality, documents and padding become a mask."""

from typing import NamedTuple

import torch
from torch import Tensor


class Visibility(NamedTuple):
    """The rule for one chunk of queries, whose first query is key number ``start``.

    A query sees the real tokens of its own document: up to itself, or strictly earlier without ``self_key``; with
    ``causal=False`` also later ones. A query that would see no key (a first token without ``self_key``, padding)
    sees itself, so no row of a mask is empty.
    """

    start: int = 0
    self_key: bool = True
    causal: bool = True
    documents: Tensor | None = None  # (B, S + L) the number of each key's document; None: all the same
    real: Tensor | None = None  # (B, S + L) False where a key is padding; None: no padding

    def of_heads(self, n_heads: int) -> "Visibility":
        """The same for batch × heads flattened into one dimension."""
        documents, real = (
            None if flag is None else flag.repeat_interleave(n_heads, dim=0) for flag in (self.documents, self.real)
        )
        return self._replace(documents=documents, real=real)

    @property
    def shows_all_to_one(self) -> bool:
        """Whether a single query, the last token there is, sees every key."""
        return self.documents is None and self.real is None and (self.self_key or self.start == 0)

    def mask(self, rows: slice, n_keys: int, device: torch.device | None = None, batch: slice | None = None) -> Tensor:
        """Rows of queries against the first ``n_keys`` keys: (rows, keys), or (B, rows, keys) with documents.

        ``batch`` picks some sequences.
        """
        device = next((flag.device for flag in (self.documents, self.real) if flag is not None), device)
        here = slice(self.start + rows.start, self.start + rows.stop)
        query = torch.arange(here.start, here.stop, device=device).unsqueeze(1)
        key = torch.arange(n_keys, device=device)
        if self.causal:
            allowed = key <= query if self.self_key else key < query
        else:
            allowed = torch.ones_like(key <= query) if self.self_key else key != query
        which = slice(None) if batch is None else batch
        if self.documents is not None:
            documents = self.documents[which]
            allowed = allowed & (documents[:, here, None] == documents[:, None, :n_keys])
        if self.real is not None:
            real = self.real[which]
            allowed = allowed & real[:, here, None] & real[:, None, :n_keys]
        return allowed | ((query == key) & ~allowed.any(dim=-1, keepdim=True))

    def head_mask(self, rows: slice, n_keys: int, device: torch.device | None = None) -> Tensor:
        """`mask` with a dimension for heads, (rows, keys) or (B, 1, rows, keys)."""
        mask = self.mask(rows, n_keys, device)
        return mask.unsqueeze(1) if mask.dim() == 3 else mask

    def n_keys(self, length: int, device: torch.device | None = None) -> Tensor:
        """How many keys each of ``length`` queries sees, (B or 1, length): the row sums of the mask, without it."""
        if self.documents is None and self.real is None:
            query = torch.arange(self.start, self.start + length, device=device).unsqueeze(0)
            seen = query + 1 if self.causal else torch.full_like(query, self.start + length)
            return (seen if self.self_key else seen - 1).clamp(min=1)
        # Numbers of documents only grow, so each is one stretch; count the real tokens in the part of it that is seen.
        real, here = self.real, slice(self.start, self.start + length)
        if real is None:
            assert self.documents is not None
            real = torch.ones_like(self.documents, dtype=torch.bool)
        before = torch.nn.functional.pad(real.long().cumsum(dim=1), (1, 0))
        if self.documents is None:
            first = torch.zeros_like(before[:, here])
            last = torch.full_like(first, real.shape[1])
        else:
            documents = self.documents.contiguous()
            first = torch.searchsorted(documents, documents[:, here].contiguous())
            last = torch.searchsorted(documents, documents[:, here].contiguous(), right=True)
        if self.causal:
            last = torch.arange(here.start + 1, here.stop + 1, device=last.device).expand_as(last)
        seen = before.gather(1, last) - before.gather(1, first)
        seen = seen if self.self_key else seen - 1
        return torch.where(real[:, here], seen, 1).clamp(min=1)
