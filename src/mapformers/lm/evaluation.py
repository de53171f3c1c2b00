"""A run on text, measured: its validation windows, its perplexity over training, long contexts and BLiMP.

`mapformers lm eval` shows what these functions return; the recipe `lm` keeps it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapformers.errors import UserError, require
from mapformers.evaluation.significance import Difference, in_both, mean_losses, paired, welch
from mapformers.lm.blimp import BlimpScores, Paradigm, score_blimp
from mapformers.lm.corpus import Corpus, TokenText
from mapformers.lm.documents import BrokenDocument, Document
from mapformers.lm.kept_tokenizer import CONTENT, kept_facts, kept_tokenizer
from mapformers.lm.long_context import ContextLosses, context_losses
from mapformers.lm.manifest import NAME
from mapformers.lm.perplexity import Point, WindowLosses, mean_of_last, over_training, window_losses
from mapformers.lm.sources import find_source
from mapformers.lm.text import Text
from mapformers.lm.tokenizer import Tokenizer
from mapformers.model import Decoder
from mapformers.runs.config import ForeignModel
from mapformers.runs.folder import RunFolder
from mapformers.runs.run import Run, load

Ids = NDArray[np.int64]
LONG = "long"


@dataclass(frozen=True)
class LanguageRun:
    """A run on text with its model; its tokenizer is in its folder, or else where its text is."""

    run: Run
    model: Decoder
    task: Text

    @property
    def corpus(self) -> Corpus:
        """The text; refused if it is not there, as measuring needs it."""
        return corpus_of(self.run)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return tokenizer_of(self.run)

    @property
    def text_checksum(self) -> str:
        return self.task.settings.data_checksum or self.corpus.manifest.checksum()

    @property
    def tokenizer_checksum(self) -> str:
        return str((kept_facts(self.run.folder) or self.corpus.manifest.tokenizer)["sha256"])


@dataclass(frozen=True)
class Measured:
    """``contexts``, ``blimp`` and ``windows``: None where they were not asked for.

    ``seed``   of the run: those of one number read the same text in the same order.
    ``split``  whose windows they are, and whose perplexity was measured as the run trained: `val`, or `iid`, which is
               the training text, where a run has no other.
    """

    name: str
    seed: int
    step: int
    split: str
    windows: WindowLosses | None
    training: tuple[Point, ...]
    contexts: ContextLosses | None = None
    blimp: BlimpScores | None = None

    @property
    def perplexity(self) -> float | None:
        """Of the windows."""
        return None if self.windows is None else self.windows.perplexity

    @property
    def last_five(self) -> float | None:
        """The mean of the last five perplexities; None where none was measured."""
        return mean_of_last(self.training) if self.training else None


@dataclass(frozen=True)
class EvaluationSettings:
    """What `measure` computes.

    ``windows``    of the validation text; 0: none, for which the text is not needed.
    ``documents``  token ids of each, for the contexts.
    ``limit``      of pairs in each paradigm of BLiMP.
    """

    windows: int = 512
    contexts: tuple[int, ...] = ()
    documents: tuple[Ids, ...] = ()
    targets: int = 32
    blocks: int = 2
    paradigms: tuple[Paradigm, ...] = ()
    limit: int | None = None


def language_run(folder: str | Path, data: str | Path | None = None) -> LanguageRun:
    """The run in a folder; refused if it is not on text, or if its model is one's own.

    ``data``  where its text is now, if not where it was.
    """
    _, config = RunFolder.open(Path(folder))
    require(config.task == "text", f"The run in {folder} is on {config.task}; give one that was trained on text.")
    foreign = isinstance(config.model, ForeignModel)
    require(
        not foreign,
        f"The model of {folder} is your own {config.model_name}; only models of this library keep a state.",
    )
    run = load(folder)
    if data is not None:
        moved = replace(run.config.task_settings, data=str(data))
        run = replace(run, config=replace(run.config, task_settings=moved))
    model, task = run.model, run.task
    assert isinstance(model, Decoder) and isinstance(task, Text)
    subject = LanguageRun(run, model, task)
    known, found = model.config.vocab_size, subject.tokenizer.vocab_size
    fits = f"The tokenizer of {folder} has a vocabulary of {found} tokens, its model one of {known}"
    require(
        found == known, f"{fits}: it was trained on text whose manifest was changed; prepare the text and train anew."
    )
    return subject


def measure(subject: LanguageRun, question: EvaluationSettings, name: str) -> Measured:
    """All that was asked, of one run, under a name."""
    windows, contexts, blimp = None, None, None
    training = tuple(over_training(subject.run))
    split = _watched_split(subject)
    if question.windows:
        _ = subject.corpus  # refused here if it is not there
        windows = window_losses(subject.model, subject.task, split, question.windows)
    if question.contexts:
        settings: dict[str, Any] = {"targets": question.targets, "blocks": question.blocks}
        contexts = context_losses(subject.model, question.documents, question.contexts, **settings)
    if question.paradigms:
        blimp = score_blimp(subject.model, subject.tokenizer, question.paradigms, question.limit)
    return Measured(name, subject.run.config.seed, subject.run.step, split, windows, training, contexts, blimp)


def corpus_of(run: Run) -> Corpus:
    """The text that a run was trained on."""
    task = run.task
    assert isinstance(task, Text)
    there = (Path(task.settings.data) / NAME).is_file()
    remedy = "work in the folder where the run was started, or name the prepared folder with --data"
    require(there, f"The text of {run.folder} is not in {task.settings.data}, which has no {NAME}; {remedy}.")
    return task.corpus


def tokenizer_of(run: Run) -> Tokenizer:
    """The tokenizer of a run on text: in its folder, or else where its text is."""
    facts = kept_facts(run.folder)
    return corpus_of(run).tokenizer if facts is None else kept_tokenizer(run.folder, facts)


def _watched_split(subject: LanguageRun) -> str:
    """The split on which the run measured itself as it trained, or would have."""
    said = [line["split"] for line in subject.run.metrics if "split" in line]
    return str(said[-1]) if said else subject.task.watched_split


def long_documents(subject: LanguageRun, path: str | Path | None = None) -> list[Ids]:
    """The documents for long contexts, as token ids without separators.

    ``path``  a prepared folder of the same tokenizer, whose text `long` (or else `val`, or `train`) is taken; or a file
              or folder of text, which the run's tokenizer then encodes. Unless given, the run's own `long` or `val`.
    """
    if path is None:
        return documents_of(held_out(subject.corpus))
    if not (Path(path) / NAME).is_file():
        texts = [_read(document) for document in find_source(str(path)).documents()]
        return [ids.astype(np.int64) for ids in subject.tokenizer.encode([text for text in texts if text])]
    other = Corpus.open(path)
    require(
        other.manifest.tokenizer["sha256"] == subject.tokenizer_checksum,
        f"{path} was prepared with another tokenizer than the run's data; give --documents as text, or prepare "
        f"it with --tokenizer {subject.run.folder / CONTENT}.",
    )
    return documents_of(held_out(other, or_train=True))


def _read(document: Document) -> str:
    try:
        return document.read()
    except BrokenDocument as broken:
        raise UserError(f"{broken.name} {broken.why}; give --documents that are whole, as UTF-8 text.") from None


def held_out(corpus: Corpus, or_train: bool = False) -> TokenText:
    """The text `long` of a corpus, or else `val`; with ``or_train``, or else `train`."""
    names = (LONG, "val", "train") if or_train else (LONG, "val")
    found = next((corpus.texts[name] for name in names if name in corpus.texts), None)
    if found is None:
        raise UserError(f"{corpus.folder} has no validation text; name a text with --documents.")
    return found


def documents_of(text: TokenText) -> list[Ids]:
    return [text.document(number)[:-1] for number in range(len(text.ends))]


def differences(first: Sequence[Measured], second: Sequence[Measured]) -> dict[str, Difference]:
    """What the first runs have over the second, as a ratio of perplexities: −0.02 is 2 % less.

    Several runs of a side are seeds of one model. Windows and documents are compared in pairs, each with its mean over
    the seeds that both sides have (over all seeds, if they share none). Perplexities of seeds, of the windows and as
    the mean of the last five that were measured in training, are compared in logarithms: as two groups (Welch), and in
    pairs of one seed.
    """
    sides, shared = (first, second), of_shared_seeds(first, second)
    found = {}
    windows = [[m.windows.nats for m in side if m.windows is not None] for side in shared]
    if all(windows):
        found["validation windows, paired"] = paired(*map(mean_losses, windows))
    curves = [[m.contexts for m in side if m.contexts is not None] for side in shared]
    contexts = curves[0][0].contexts if all(curves) and curves[0][0].documents >= 2 else ()
    for context in contexts:
        losses = [mean_losses([curve.of(context) for curve in side]) for side in curves]
        found[f"context {context}, documents, paired"] = paired(*losses)
    for name, figure in (("validation windows", "perplexity"), ("mean of the last five", "last_five")):
        groups, pairs = ([[getattr(m, figure) for m in side] for side in each] for each in (sides, shared))
        if None in (*groups[0], *groups[1]):
            continue
        if min(map(len, groups)) >= 2:
            found[f"{name}, seeds, Welch"] = welch(*map(logarithms, groups))
        if len(pairs[0]) == len(pairs[1]) >= 2:
            found[f"{name}, seeds, paired"] = paired(*map(logarithms, pairs))
    return {name: difference.as_ratio() for name, difference in found.items()}


def of_shared_seeds(
    first: Sequence[Measured], second: Sequence[Measured]
) -> tuple[Sequence[Measured], Sequence[Measured]]:
    """The runs on seeds that both sides have, in one order; all runs, if they have none in common."""
    one, other = in_both({m.seed: m for m in first}, {m.seed: m for m in second})
    return (one, other) if one else (first, second)


def logarithms(perplexities: Sequence[float]) -> list[float]:
    return list(map(math.log, perplexities))
