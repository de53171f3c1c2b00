"""What a layer is told about the sequence besides its activations: documents, padding, the past."""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from mapformers.errors import describe, require


class Past(NamedTuple):
    """The bookkeeping of tokens already streamed: all that a later chunk must know of them."""

    length: int
    document: Tensor | None  # (B, length) number of the document each token is in; None: one document so far
    real: Tensor | None  # (B, length) False where it was padding; None: no padding so far


EMPTY_PAST = Past(0, None, None)


@dataclass
class Context:
    """One chunk of a sequence as layers see it. Built by the decoder, read by every layer.

    ``reset`` (B, L): a new document, and so a new map, starts here. ``padding_mask`` (B, L): real token here.
    ``tokens`` (B, L): the ids, for layers that are told which tokens act.
    ``recording``: when it is a dict, layers note what can be looked at in it (see :meth:`note`).
    """

    tokens: Tensor
    reset: Tensor | None = None
    padding_mask: Tensor | None = None
    past: Past = EMPTY_PAST
    recording: dict[str, Tensor] | None = None
    _masks: dict[bool, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, flag in (("reset", self.reset), ("padding_mask", self.padding_mask)):
            if flag is not None:
                fits = isinstance(flag, Tensor) and flag.dtype == torch.bool and flag.shape == self.tokens.shape
                shape = tuple(self.tokens.shape)
                require(fits, f"{name} must be a bool tensor of the tokens' shape {shape}, not {describe(flag)}.")

    def note(self, **seen: Tensor) -> None:
        """Keep named tensors for whoever looks inside the model; does nothing unless recording."""
        if self.recording is not None:
            self.recording.update({name: tensor.detach() for name, tensor in seen.items()})

    @property
    def is_plain(self) -> bool:
        """One unpadded document from its first token on: the mask is the causal triangle and nothing else."""
        return self.past.length == 0 and self.is_undivided

    @property
    def is_undivided(self) -> bool:
        """One unpadded document, whether or not it began in an earlier chunk."""
        return all(flag is None for flag in (self.reset, self.padding_mask, self.past.document, self.past.real))

    def extended_past(self) -> Past:
        """The past of the next chunk: this chunk appended to its own past."""
        total = self.past.length + self.tokens.shape[1]
        if self.is_undivided:
            return Past(total, None, None)
        return Past(total, self.documents(), self.real())

    def documents(self) -> Tensor:
        """(B, S + L) the number of the document of every token, past ones included."""
        batch = self.tokens.shape[0]
        past = self.past.document
        if past is None:
            past = torch.zeros(batch, self.past.length, dtype=torch.long, device=self.tokens.device)
        current = past[:, -1:] if self.past.length else past.new_zeros(batch, 1)
        started = torch.zeros_like(self.tokens) if self.reset is None else self.reset.long().cumsum(dim=1)
        return torch.cat((past, current + started), dim=1)

    def real(self) -> Tensor:
        """(B, S + L) True where a token is not padding, past ones included."""
        batch, length = self.tokens.shape
        past, here = self.past.real, self.padding_mask
        if past is None:
            past = torch.ones(batch, self.past.length, dtype=torch.bool, device=self.tokens.device)
        if here is None:
            here = torch.ones(batch, length, dtype=torch.bool, device=self.tokens.device)
        return torch.cat((past, here), dim=1)

    def attention_mask(self, self_key: bool = True) -> Tensor:
        """Which keys each query may attend to: (L, S + L), or (B, 1, L, S + L) with documents or padding.

        A query sees the real tokens of its own document up to itself (``self_key``) or strictly earlier. One
        that would see none (a first token without ``self_key``, padding) sees itself, so no row is empty.
        """
        if self_key not in self._masks:
            self._masks[self_key] = self._build_mask(self_key)
        return self._masks[self_key]

    def _build_mask(self, self_key: bool) -> Tensor:
        rows, start = slice(0, self.tokens.shape[1]), self.past.length
        if self.is_undivided:
            return visible_keys(rows, start, self_key, device=self.tokens.device)
        return visible_keys(rows, start, self_key, self.documents(), self.real()).unsqueeze(1)


def visible_keys(
    rows: slice,
    start: int,
    self_key: bool,
    documents: Tensor | None = None,
    real: Tensor | None = None,
    device: torch.device | None = None,
) -> Tensor:
    """The mask of some rows of queries against the keys up to the last of them, the query of row 0 being key ``start``.

    (rows, keys); with ``documents`` and ``real`` (B, ≥ keys) of every key, (B, rows, keys).
    """
    device = device if documents is None else documents.device
    query = torch.arange(start + rows.start, start + rows.stop, device=device).unsqueeze(1)
    key = torch.arange(start + rows.stop, device=device)
    allowed = key <= query if self_key else key < query
    if documents is not None and real is not None:
        here, there = slice(start + rows.start, start + rows.stop), slice(0, start + rows.stop)
        same = documents[:, here, None] == documents[:, None, there]
        allowed = allowed & same & real[:, here, None] & real[:, None, there]
    return allowed | ((query == key) & ~allowed.any(dim=-1, keepdim=True))
