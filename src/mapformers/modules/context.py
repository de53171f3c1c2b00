"""What a layer is told about the sequence besides its activations: documents, padding, the past."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from mapformers.errors import describe, require
from mapformers.modules.memory import append
from mapformers.ops.document_attention import DocumentLayout, layout_of
from mapformers.ops.flex_document_attention import block_mask_of
from mapformers.ops.visibility import Visibility


class Past(NamedTuple):
    """The bookkeeping of tokens already streamed: all that a later chunk must know of them."""

    length: int
    document: Tensor | None  # (B, length) number of the document each token is in; None: one document so far
    real: Tensor | None  # (B, length) False where it was padding; None: no padding so far


EMPTY_PAST = Past(0, None, None)


class StreamState(NamedTuple):
    """All that must be kept to go on reading: the bookkeeping of past tokens and what each layer remembers.

    Returned by models and layers that are called with ``return_state=True``, and handed back as ``state=``.
    """

    past: Past
    layers: tuple[Any, ...]
    batch_size: int
    made_by: Any

    def detach(self) -> "StreamState":
        """The same state cut off from the graph that computed it: for training on a stream piece by piece."""
        return self._with(lambda tensor: tensor.detach() if tensor.requires_grad else tensor)

    def to(self, device: torch.device | str) -> "StreamState":
        """The same state on another device. The precision stays: a coordinate is kept in float64."""
        require(isinstance(device, str | torch.device), f"A state is moved to a device, not to {device!r}.")
        return self._with(lambda tensor: tensor.to(device))

    def hiding(self, positions: Sequence[int]) -> "StreamState":
        """The same state with some past tokens (counted from 0) hidden: no later query sees their keys."""
        length = self.past.length
        wrong = [position for position in positions if not 0 <= position < length]
        require(not wrong, f"The state has read {length} tokens, counted from 0; {wrong} cannot be hidden.")
        if not positions:
            return self
        real = self.past.real
        if real is None:
            real = torch.ones(self.batch_size, length, dtype=torch.bool, device=self._device())
        seen = torch.ones(length, dtype=torch.bool, device=real.device)
        seen[list(positions)] = False
        return self._replace(past=self.past._replace(real=real & seen))

    def _device(self) -> torch.device:
        devices: list[torch.device] = []

        def look(tensor: Tensor) -> Tensor:
            devices.append(tensor.device)
            return tensor

        self._with(look)
        return devices[0]

    def rows(self, index: Tensor | slice | list[int]) -> "StreamState":
        """The state of some sequences of the batch: a beam that goes on, a request that is not finished."""
        listed = isinstance(index, list | slice) or (isinstance(index, Tensor) and index.dim() == 1)
        require(listed, f"rows are picked by a list, a slice or a tensor of one dimension, not by {index!r}.")
        inside = not isinstance(index, list) or all(-self.batch_size <= row < self.batch_size for row in index)
        require(inside, f"The state has rows 0 to {self.batch_size - 1}, not all of {index}.")
        picked = torch.arange(self.batch_size)[index.cpu() if isinstance(index, Tensor) else index]
        chosen = self._with(lambda tensor: tensor[picked.to(tensor.device)])
        return chosen._replace(batch_size=len(picked))

    def require_fit(self, batch_size: int, made_by: Any) -> None:
        """Refuse to go on with another model, or with another number of sequences."""
        require(
            self.made_by == made_by, "The state is of another model; give the one that this model or layer returned."
        )
        require(
            self.batch_size == batch_size,
            f"The state is of a batch of {self.batch_size}, the input is a batch of {batch_size}.",
        )

    def _with(self, change: Callable[[Tensor], Tensor]) -> "StreamState":
        return self._replace(past=map_tensors(change, self.past), layers=map_tensors(change, self.layers))


def map_tensors(change: Callable[..., Tensor], state: Any, *others: Any) -> Any:
    """Change every tensor of nested tuples, given those at its place in others that are built alike.

    Every tensor of a state has the batch as its first dimension.
    """
    if isinstance(state, Tensor):
        return change(state, *others)
    if isinstance(state, tuple):
        parts = [map_tensors(change, *alike) for alike in zip(state, *others, strict=True)]
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
    return state


@dataclass
class Context:
    """One chunk of a sequence as layers see it. Built once per call of a model, read by every layer.

    ``reset`` (B, L): a new document, and so a new map, starts here. ``padding_mask`` (B, L): real token here.
    ``tokens`` (B, L): the ids, for layers that are told which tokens act. ``causal``: no token sees a later one.
    ``recording``: when it is a dict, layers note what can be looked at in it (see `note`).
    ``keeps_state``: layers return what they remember; otherwise None, because nobody goes on from there.
    ``movement_scale``: multiplies every movement Δ_in; a tensor without dimensions, or (B, L). ``temperature``: divides
    all attention logits once more. Both are for whoever intervenes in a trained model, and None otherwise.
    """

    batch_size: int
    length: int
    device: torch.device
    reset: Tensor | None = None
    padding_mask: Tensor | None = None
    past: Past = EMPTY_PAST
    tokens: Tensor | None = None
    causal: bool = True
    recording: dict[str, Tensor] | None = None
    keeps_state: bool = True
    movement_scale: Tensor | None = None
    temperature: Tensor | float | None = None
    _masks: dict[bool, Tensor] = field(default_factory=dict)
    _shared: dict[Any, Any] = field(default_factory=dict)
    _layout: DocumentLayout | None = None
    _block_masks: dict[bool, BlockMask] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = (self.batch_size, self.length)
        for name, flag in (("reset", self.reset), ("padding_mask", self.padding_mask)):
            if flag is not None:
                fits = isinstance(flag, Tensor) and flag.dtype == torch.bool and flag.shape == shape
                require(fits, f"{name} must be a bool tensor of shape (batch, length) = {shape}, not {describe(flag)}.")

        if self.tokens is not None:
            fits = (
                isinstance(self.tokens, Tensor) and self.tokens.shape == shape and not self.tokens.is_floating_point()
            )
            require(fits, f"tokens must be ids of shape (batch, length) = {shape}, not {describe(self.tokens)}.")

    @classmethod
    def of(cls, like: Tensor, **settings: Any) -> "Context":
        """For tokens (B, L), which layers may then read, or for activations (B, L, d_model)."""
        if like.dim() == 2:
            settings["tokens"] = like
        return cls(like.shape[0], like.shape[1], like.device, **settings)

    def require_past_of(self, state: Any) -> None:
        """Refuse a layer's state without the past it belongs to, or a past without its state: both go together."""
        require(
            (state is None) == (self.past.length == 0),
            "A layer's state and the past it belongs to must be handed over together; go on from what "
            "`return_state=True` returned.",
        )

    def note(self, **seen: Tensor) -> None:
        """Keep named tensors for whoever looks inside the model; does nothing unless recording."""
        if self.recording is not None:
            self.recording.update({name: tensor.detach() for name, tensor in seen.items()})

    @property
    def is_plain(self) -> bool:
        """One unpadded document from its first token on: no mask but the causal triangle, if that."""
        return self.past.length == 0 and self.is_undivided

    @property
    def is_packed(self) -> bool:
        """Unpadded documents from their first tokens on, each of which sees what is earlier in it."""
        return self.past.length == 0 and self.reset is not None and self.padding_mask is None and self.causal

    @property
    def is_undivided(self) -> bool:
        """One unpadded document, whether or not it began in an earlier chunk."""
        here = self.reset is None and self.padding_mask is None
        return here and self.past.document is None and self.past.real is None

    @property
    def is_one_more(self) -> bool:
        """A single token of one unpadded document that began in an earlier chunk."""
        return self.length == 1 and self.past.length > 0 and self.is_undivided

    def shared(self, name: Any, make: Callable[[], Any]) -> Any:
        """What ``make`` returns, made by the first who asks and handed to all who ask by the same name."""
        if torch.compiler.is_compiling():  # it finds out by itself what is made twice
            return make()
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]

    def extended_past(self) -> Past:
        """What the next chunk must know: the past up to the end of this one."""
        total = self.past.length + self.length
        if self.is_undivided:
            return Past(total, None, None)
        return Past(total, self.documents(), self.real())

    def documents(self) -> Tensor:
        """(B, S + L) the number of the document of every token, past ones included."""
        return self.shared("documents", self._documents)

    def _documents(self) -> Tensor:
        past = self.past.document
        if past is None:
            past = torch.zeros(self.batch_size, self.past.length, dtype=torch.long, device=self.device)
        current = past[:, -1:] if self.past.length else past.new_zeros(self.batch_size, 1)
        return append(past, current + self.resets_so_far(), dim=1)

    def resets_so_far(self) -> Tensor:
        """(B, L) how many documents have begun in this chunk up to each token."""
        if self.reset is None:
            return torch.zeros(self.batch_size, self.length, dtype=torch.long, device=self.device)
        return self.reset.long().cumsum(dim=1)

    def real(self) -> Tensor:
        """(B, S + L) True where a token is not padding, past ones included."""
        return self.shared("real", self._real)

    def _real(self) -> Tensor:
        past = self.past.real
        if past is None:
            past = torch.ones(self.batch_size, self.past.length, dtype=torch.bool, device=self.device)
        return append(past, self.real_here(), dim=1)

    def real_here(self) -> Tensor:
        """(B, L) True where a token of this chunk is not padding."""
        if self.padding_mask is not None:
            return self.padding_mask
        return torch.ones(self.batch_size, self.length, dtype=torch.bool, device=self.device)

    def visibility(self, self_key: bool = True) -> Visibility:
        """The rule by which queries of this chunk see keys."""
        if self.is_undivided:
            return Visibility(self.past.length, self_key, self.causal)
        one_document = self.reset is None and self.past.document is None
        documents = None if one_document else self.documents()
        return Visibility(self.past.length, self_key, self.causal, documents, self.real())

    def document_layout(self) -> DocumentLayout:
        """Where the documents of packed sequences are."""
        if self._layout is None:
            assert self.is_packed and self.reset is not None
            self._layout = layout_of(self.reset)
        return self._layout

    def block_mask(self, self_key: bool = True) -> BlockMask:
        """Which blocks of packed sequences see each other, for a compiled model."""
        if self_key not in self._block_masks:
            assert self.is_packed and self.reset is not None
            self._block_masks[self_key] = block_mask_of(self.reset, self_key)
        return self._block_masks[self_key]

    def attention_mask(self, self_key: bool = True) -> Tensor:
        """Which keys each query may attend to: (L, S + L), or (B, 1, L, S + L) with documents or padding."""
        if self_key not in self._masks:
            n_keys = self.past.length + self.length
            self._masks[self_key] = self.visibility(self_key).head_mask(slice(0, self.length), n_keys, self.device)
        return self._masks[self_key]
