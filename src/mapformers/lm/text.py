"""`text`: windows of a prepared text; predict the next token (sec. 4.4, B.5).

Training goes through the text in epochs. In each, the text is cut into windows of ``context`` tokens, from a place that
changes with the epoch, and the windows come in a shuffled order. So every token is a target once before any is again,
but for less than a window. Measuring goes through the windows in their order, every target once.
"""

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from mapformers.errors import UserError, require
from mapformers.lm.corpus import Corpus, TokenText
from mapformers.lm.kept_tokenizer import files_of
from mapformers.lm.manifest import Manifest
from mapformers.lm.shuffle import Shuffle
from mapformers.lm.tokenizer import Tokenizer
from mapformers.seeding import seed_of
from mapformers.tasks.task import Batch, Metric, Task, register_task, require_part

HELD_OUT = ("val", "long")
Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class TextSettings:
    """A prepared text, and how it is cut."""

    data: str = ""
    """Folder that `mapformers lm prepare` wrote."""
    context: int = 1024
    """Tokens that the model reads at once; each is followed by its target."""
    reset_documents: bool = False
    """Whether a new map starts with each document, and nothing before it is seen."""
    portion: str = "train"
    """Which of the prepared texts: train, val or long."""
    data_checksum: str = ""
    """Of the data (filled in when they are first read), so that a run never goes on with others."""

    def __post_init__(self) -> None:
        require(self.context >= 1, f"context must be at least 1, not {self.context}.")
        if self.data and not self.data_checksum:
            with contextlib.suppress(UserError):  # a bad folder is refused when its text is asked for
                object.__setattr__(self, "data_checksum", Manifest.read(Path(self.data)).checksum())

    @classmethod
    def spelled(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings with a `Path` turned into text."""
        data = settings.get("data")
        return {**settings, "data": os.fspath(data)} if isinstance(data, os.PathLike) else dict(settings)


class TokenNames(Sequence[str]):
    """The names of all tokens, each made when it is asked for."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer

    def __len__(self) -> int:
        return self._tokenizer.vocab_size

    def __getitem__(self, token: Any) -> Any:
        if isinstance(token, slice):
            return [self[i] for i in range(*token.indices(len(self)))]
        if not -len(self) <= token < len(self):
            raise IndexError(token)
        return self._tokenizer.token_name(token % len(self))


class Text(Task[TextSettings]):
    """Tokens: those of the tokenizer. Scores: ``loss`` in nats per token, ``perplexity`` = e^loss, and ``accuracy``.

    The data are opened when they are first needed, so that a model can be loaded where they are not.
    """

    main_metric = "loss"
    needs = ("data",)
    action_ids: list[int] = []
    uniform_dtype = torch.float64  # 2^53 places, where float32 would reach 2^24 of them

    @cached_property
    def corpus(self) -> Corpus:
        data, expected = self.settings.data, self.settings.data_checksum
        require(bool(data), "The task text needs a prepared text: --data FOLDER (see `mapformers lm prepare --help`).")
        corpus = Corpus.open(data)
        require(
            corpus.manifest.checksum() == expected or not expected,
            f"{data} holds other data than those this run was started with; prepare them as they were.",
        )
        for portion in (self.settings.portion, *corpus.texts):  # refused here, and not when a run has begun
            _text_for(corpus, replace(self.settings, portion=portion))
        return corpus

    def files_to_keep(self) -> dict[str, str]:
        """What a run keeps in its folder: the tokenizer, without which its model says nothing."""
        return files_of(self.corpus)

    @cached_property
    def token_names(self) -> Sequence[str]:  # type: ignore[override]
        return TokenNames(self.corpus.tokenizer)

    @property
    def vocab_size(self) -> int:
        return self.corpus.vocab_size

    @property
    def splits(self) -> Mapping[str, dict[str, Any]]:  # type: ignore[override]
        return {"iid": {}, **{name: {"portion": name} for name in HELD_OUT if name in self.corpus.texts}}

    @property
    def unit(self) -> tuple[str, int]:
        return "tokens", self.settings.context

    @property
    def watched_split(self) -> str:
        return "val" if "val" in self.splits else "iid"

    def text_of(self, settings: TextSettings) -> TokenText:
        """The tokens of a split; refused if they are too few for one window."""
        return _text_for(self.corpus, settings)

    def numbers_per_sequence(self, settings: TextSettings) -> int:
        """Where the window begins."""
        return 1

    def draw(self, uniform: Tensor, settings: TextSettings) -> Batch:
        """Windows from anywhere in the text, each start as likely as any other."""
        size = len(self.text_of(settings))
        starts = (uniform[:, 0] * size).long().clamp(max=size - 1)
        return self._batch(starts.numpy(), settings)

    def training_batch(self, batch_size: int, seed: int, step: int, part: tuple[int, int] = (0, 1)) -> Batch:
        """Sequences number step · batch_size and following of a run, in an order that depends on the seed alone."""
        require_part(batch_size, part)
        index, parts = part
        rows = batch_size // parts
        first = step * batch_size + index * rows
        return self._batch(self._starts(seed, first, first + rows), self.settings)

    def _starts(self, seed: int, first: int, last: int) -> Int64:
        """Where the windows number ``first`` to ``last`` of a run begin."""
        size, context = len(self.text_of(self.settings)), self.settings.context
        windows = size // context
        starts = []
        for epoch in range(first // windows, (last - 1) // windows + 1):
            begin, end = max(first - epoch * windows, 0), min(last - epoch * windows, windows)
            order = Shuffle(windows, _key(seed, "order", epoch))
            offset = _key(seed, "offset", epoch) % size
            starts.append((offset + order(np.arange(begin, end)) * context) % size)
        return np.concatenate(starts)

    def n_windows(self, settings: TextSettings) -> int:
        """How many windows side by side have every token of a split as a target."""
        return -(-(len(self.text_of(settings)) - 1) // settings.context)

    def evaluation_batches(
        self, split: "str | Mapping[str, Any] | TextSettings", n_sequences: int, batch_size: int, generator: Any
    ) -> Iterator[Batch]:
        """Windows side by side from the first token to the last, so that every target counts once.

        If there are more than ``n_sequences``, so many of them at equal distances. Nothing is drawn at random.
        """
        settings = self.split_settings(split)
        size, context = len(self.text_of(settings)), settings.context
        windows = self.n_windows(settings)
        chosen = np.arange(min(n_sequences, windows), dtype=np.int64) * windows // min(n_sequences, windows)
        for start in range(0, len(chosen), batch_size):
            wanted = chosen[start : start + batch_size] * context
            starts = np.minimum(wanted, size - 1 - context)  # the last window begins earlier, to be a whole one
            fresh = np.arange(context) >= (wanted - starts)[:, None]
            yield self._batch(starts, settings, torch.from_numpy(fresh))

    def _batch(self, starts: Int64, settings: TextSettings, counted: Tensor | None = None) -> Batch:
        sequences = torch.from_numpy(self.text_of(settings).windows(starts, settings.context + 1))
        tokens, targets = sequences[:, :-1], sequences[:, 1:]
        mask = torch.ones_like(tokens, dtype=torch.bool) if counted is None else counted
        reset = tokens == self.corpus.separator if settings.reset_documents else None  # it begins the next document
        return Batch(tokens, targets, mask, mask, {"start": torch.from_numpy(starts)}, reset)

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Metric]:
        """Row by row, so that a large vocabulary takes little memory."""
        nats, right, count = 0.0, 0, int(batch.score_mask.sum())
        for row, targets, mask in zip(logits, batch.targets, batch.score_mask):
            costs = cross_entropy(row.float(), targets, reduction="none")
            nats += float(costs[mask].double().sum())
            right += int((row.argmax(dim=-1) == targets)[mask].sum())
        share = math.nan if count == 0 else 1 / count
        return {"loss": Metric(nats * share, count), "accuracy": Metric(right * share, count)}

    def conclude(self, scores: dict[str, Metric]) -> dict[str, Metric]:
        loss = scores["loss"]
        perplexity = math.exp(loss) if not loss > 700 else math.inf
        return {"loss": loss, "perplexity": Metric(perplexity, loss.count), **scores}

    def model_defaults(self) -> dict[str, Any]:
        """The paper's rank and base (B.5); it does not say its ω_max, and a turn of 1 per step is RoPE's fastest.

        # paper: W_in starts at random; here: a path starts as RoPE (docs/fidelity.md)
        """
        return {"rank": 4, "base": 1024.0, "omega_max": 1.0, "path_start": "rope"}

    def training(self, scale: str) -> dict[str, Any]:
        """# paper: 10¹¹ tokens, batch 12 × 4; here at `cpu`: some millions of tokens, as a first look
        # paper: one rate for all parameters; here: a tenth of it for those of the path, which do not decay
        """
        path = {"path_lr": 0.1, "path_decay": 0.0}
        paper = {"weight_decay": 0.1, "schedule": "cosine", "final_lr": 0.1, **path}
        scales: dict[str, dict[str, Any]] = {
            "smoke": {
                **path,
                "sequences": 16,
                "batch_size": 4,
                "warmup_steps": 2,
                "log_every": 2,
                "eval_every": 2,
                "eval_sequences": 4,
                "final_sequences": 4,
            },
            "cpu": {**paper, "sequences": 8000, "batch_size": 16, "eval_sequences": 64, "final_sequences": 512},
            "paper": {
                **paper,
                "sequences": 10**11 // self.settings.context,
                "batch_size": 48,
                "lr": 5e-4,
                "warmup_steps": 4000,
                "eval_every": 1000,
                "checkpoint_every": 1000,
            },
        }
        return scales[scale]

    def show(self, split: str | Mapping[str, Any], generator: torch.Generator) -> str:
        """The text of a window."""
        batch = self.sample(split, 1, generator)
        sequence = [*batch.tokens[0].tolist(), int(batch.targets[0, -1])]
        where = f"{self.split_settings(split).portion}, from token {int(batch.info['start'][0]):,} on:"
        return f"{where}\n\n{self.corpus.tokenizer.decode(sequence)}"


def _text_for(corpus: Corpus, settings: TextSettings) -> TokenText:
    portion, context = settings.portion, settings.context
    known = corpus.texts
    require(portion in known, f"{corpus.folder} has no text {portion!r}, only {', '.join(known)}; prepare it with one.")
    require(
        len(known[portion]) > context,
        f"A context of {context} needs {context + 1} tokens, but {portion} of {corpus.folder} has "
        f"{len(known[portion])}; choose a smaller --context, or prepare more text"
        + (" for validation (a larger --val, or --val 0 for none)." if portion == "val" else "."),
    )
    return known[portion]


def _key(seed: int, purpose: str, epoch: int) -> int:
    """64 bits for one purpose of an epoch."""
    high, low = (seed_of(seed, f"text {purpose} {half}", epoch) for half in ("high", "low"))
    return high << 32 | low


register_task("text", settings=TextSettings, build=Text)
