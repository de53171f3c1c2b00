"""Perplexity against the length of the context: the same target tokens, with ever more of the text before them (B.5).

For a context of C tokens the model begins with an empty state C tokens before the last target, and reads on. So it
never sees more than C tokens, also if it remembers without end: the state of a stream that began further back would
tell it of a past that it is not to know. What it reads goes through the state in pieces, so nothing of C × C is built,
and every layer sees what it would see in one go.

The targets of a window are its last tokens. The first of them has C − targets + 1 tokens before it, the last one C.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mapformers.errors import require
from mapformers.lm.perplexity import exp, token_losses
from mapformers.modes import in_eval_mode
from mapformers.stages import doing

CONTEXTS = (128, 256, 512, 1024, 2048, 4096)
PIECE = 512  # tokens that go through the model at once
TOKENS_AT_ONCE = 4096  # in all windows of a batch together
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class ContextLosses:
    """``nats[c][d]``: the mean loss of the targets in document d with a context of ``contexts[c]`` tokens."""

    contexts: tuple[int, ...]
    nats: tuple[tuple[float, ...], ...]
    targets: int

    @property
    def documents(self) -> int:
        return len(self.nats[0])

    def perplexity(self, context: int) -> float:
        """Of all targets together; every document has as many."""
        found = self.of(context)
        return exp(sum(found) / len(found))

    def of(self, context: int) -> tuple[float, ...]:
        """The loss of every document."""
        return self.nats[self.contexts.index(context)]


@torch.no_grad()
def context_losses(
    model: Callable[..., Any],
    documents: Sequence[Ids],
    contexts: Sequence[int] = CONTEXTS,
    *,
    targets: int = 32,
    blocks: int = 2,
) -> ContextLosses:
    """What the model says of ``blocks`` runs of ``targets`` tokens in every document that is long enough for all.

    ``documents``  the tokens of each, without a separator.

    Examples:
        >>> losses = context_losses(model, documents, [128, 4096])  # doctest: +SKIP
        >>> losses.perplexity(4096) / losses.perplexity(128)  # doctest: +SKIP
    """
    contexts = tuple(sorted(set(contexts)))
    require(len(contexts) > 0 and contexts[0] >= 1, "Contexts are lengths of at least 1 token; give one or more.")
    require(blocks >= 1, f"At least one block of targets is measured in a document, not {blocks}.")
    require(
        1 <= targets <= contexts[0],
        f"The targets are the last tokens of a window, so there are 1 to {contexts[0]} of them, not {targets}.",
    )
    chosen = long_enough(documents, contexts[-1], targets, blocks)
    nats = []
    with in_eval_mode(model), doing("contexts", len(contexts) * len(chosen)) as stage:
        for context in contexts:
            losses = []
            for window in _batches(chosen, context, contexts[-1], targets, blocks):
                losses.append(_last_losses(model, window, targets))
                stage.advance(len(window) // blocks)
            by_document = torch.cat(losses).unflatten(0, (len(chosen), blocks)).mean(dim=(1, 2))
            nats.append(tuple(by_document.tolist()))
    return ContextLosses(contexts, tuple(nats), targets * blocks)


def needed_tokens(longest: int, targets: int, blocks: int) -> int:
    """How many tokens a document must have, so that its blocks do not overlap and each has its context."""
    return longest + 1 + (blocks - 1) * targets


def long_enough(documents: Sequence[Ids], longest: int, targets: int, blocks: int) -> list[Ids]:
    """Those documents that have targets with the longest context before them; refused if there are none."""
    needed = needed_tokens(longest, targets, blocks)
    found = [document for document in documents if len(document) >= needed]
    most = max(map(len, documents), default=0)
    require(
        bool(found),
        f"A context of {longest} needs a document of {needed} tokens, but the longest has {most}; "
        "choose shorter --contexts, or longer --documents.",
    )
    return found


def block_ends(length: int, longest: int, blocks: int) -> list[int]:
    """Where each block of targets ends, at equal distances from the first possible place to the document's end.

    A single one is in the middle between the two: the end of a book is about its end.
    """
    first = longest + 1
    if blocks == 1:
        return [(first + length) // 2]
    return [first + (length - first) * block // (blocks - 1) for block in range(blocks)]


def _batches(documents: Sequence[Ids], context: int, longest: int, targets: int, blocks: int) -> Iterator[Tensor]:
    """Windows of ``context`` + 1 tokens, (B, context + 1), some documents at a time, each ended by its targets."""
    at_once = max(1, TOKENS_AT_ONCE // (context * blocks))
    for start in range(0, len(documents), at_once):
        yield torch.stack(
            [
                torch.from_numpy(document[end - context - 1 : end])
                for document in documents[start : start + at_once]
                for end in block_ends(len(document), longest, blocks)
            ]
        )


def _last_losses(model: Callable[..., Any], window: Tensor, targets: int) -> Tensor:
    """−log p of the last ``targets`` tokens of each window, (B, targets) in float64."""
    device = next(model.parameters()).device if isinstance(model, torch.nn.Module) else torch.device("cpu")
    inputs, wanted = window[:, :-1].to(device), window[:, -targets:].to(device)
    logits = read_to_the_end(model, inputs, targets)
    losses = torch.stack([token_losses(row, row_wanted) for row, row_wanted in zip(logits, wanted)])
    return losses.double().cpu() if bool(logits.isfinite().all()) else torch.full(losses.shape, math.nan).double()


def read_to_the_end(model: Callable[..., Any], tokens: Tensor, last: int) -> Tensor:
    """Logits of the last tokens, (B, last, V), after all before them have gone through the state piece by piece.

    A model that keeps no state reads all at once.
    """
    if not getattr(model, "streams", False):
        output = model(tokens)
        return getattr(output, "logits", output)[:, -last:]
    state: Any = None
    before = tokens.shape[1] - last
    for start in range(0, before, PIECE):
        _, state = model(tokens[:, start : min(start + PIECE, before)], state=state, return_state=True)
    logits: Tensor = model(tokens[:, before:], state=state, return_state=True)[0]
    return logits
