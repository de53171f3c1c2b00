"""A run on text, measured: its validation windows, its perplexity over training, long contexts and BLiMP.

`mapformers lm eval` shows what these functions return; the recipe `lm` keeps it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapformers.errors import UserError, require
from mapformers.evaluation.significance import Difference, mean_losses, paired, welch
from mapformers.lm.blimp import BlimpScores, Paradigm, score_blimp
from mapformers.lm.corpus import Corpus, TokenText
from mapformers.lm.long_context import ContextLosses, context_losses
from mapformers.lm.manifest import NAME, Manifest
from mapformers.lm.perplexity import Point, WindowLosses, mean_of_last, over_training, window_losses
from mapformers.lm.sources import find_source
from mapformers.lm.text import Text
from mapformers.model import Decoder
from mapformers.runs.config import ForeignModel
from mapformers.runs.folder import RunFolder
from mapformers.runs.run import Run, load

Ids = NDArray[np.int64]
LONG = "long"


@dataclass(frozen=True)
class LanguageRun:
    """A run on text with its model and the corpus it was trained on, which has the tokenizer."""

    run: Run
    model: Decoder
    task: Text

    @property
    def corpus(self) -> Corpus:
        return self.task.corpus

    @property
    def tokenizer_checksum(self) -> str:
        return tokenizer_checksum(self.corpus.manifest)


@dataclass(frozen=True)
class Measured:
    """``contexts`` and ``blimp``: None where they were not asked for. ``windows``: of the validation text."""

    name: str
    step: int
    windows: WindowLosses
    training: tuple[Point, ...]
    contexts: ContextLosses | None = None
    blimp: BlimpScores | None = None

    @property
    def last_five(self) -> float | None:
        """The mean of the last five validation perplexities; None where none was measured."""
        return mean_of_last(self.training) if self.training else None


@dataclass(frozen=True)
class EvaluationSettings:
    """What `measure` computes.

    ``windows``    of the validation text.
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


def language_run(folder: str | Path) -> LanguageRun:
    """The run in a folder; refused if it is not on text, if its model is one's own, or if its data are gone."""
    _, config = RunFolder.open(Path(folder))
    require(config.task == "text", f"The run in {folder} is on {config.task}; give one that was trained on text.")
    foreign = isinstance(config.model, ForeignModel)
    require(
        not foreign,
        f"The model of {folder} is your own {config.model_name}; only models of this library keep a state.",
    )
    run = load(folder)
    model, task = run.model, run.task
    assert isinstance(model, Decoder) and isinstance(task, Text)
    known, found = model.config.vocab_size, task.corpus.vocab_size
    fits = f"{task.corpus.folder} has a vocabulary of {found} tokens, the model of {folder} one of {known}."
    require(found == known, fits)
    return LanguageRun(run, model, task)


def measure(subject: LanguageRun, question: EvaluationSettings, name: str) -> Measured:
    """All that was asked, of one run, under a name."""
    contexts, blimp = None, None
    windows = window_losses(subject.model, subject.task, subject.task.watched_split, question.windows)
    if question.contexts:
        settings: dict[str, Any] = {"targets": question.targets, "blocks": question.blocks}
        contexts = context_losses(subject.model, question.documents, question.contexts, **settings)
    if question.paradigms:
        blimp = score_blimp(subject.model, subject.corpus.tokenizer, question.paradigms, question.limit)
    training = tuple(over_training(subject.run))
    return Measured(name, subject.run.step, windows, training, contexts, blimp)


def tokenizer_checksum(manifest: Manifest) -> str:
    return str(manifest.tokenizer["sha256"])


def long_documents(corpus: Corpus, path: str | Path | None = None) -> list[Ids]:
    """The documents for long contexts, as token ids without separators.

    ``path``  a prepared folder of the same tokenizer, whose text `long` (or else `val`, or `train`) is taken; or a file
              or folder of text, which the run's tokenizer then encodes. Unless given, the run's own `long` or `val`.
    """
    if path is None:
        return documents_of(held_out(corpus))
    if not (Path(path) / NAME).is_file():
        texts = [document.read() for document in find_source(str(path)).documents()]
        return [ids.astype(np.int64) for ids in corpus.tokenizer.encode([text for text in texts if text])]
    other = Corpus.open(path)
    same = tokenizer_checksum(other.manifest) == tokenizer_checksum(corpus.manifest)
    require(
        same,
        f"{path} was prepared with another tokenizer than the run's data; give --documents as text, or prepare "
        f"it with --tokenizer {corpus.folder / 'tokenizer.json'}.",
    )
    return documents_of(held_out(other, or_train=True))


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

    Several runs of a side are seeds of one model: pairs are of their means. Over seeds, Welch's test is of the mean of
    the last five validation perplexities (or of the final one, where a run has none), in logarithms.
    """
    sides = (first, second)
    found = {"validation windows, paired": paired(*(mean_losses([m.windows.nats for m in side]) for side in sides))}
    curves = [m.contexts for side in sides for m in side if m.contexts is not None]
    for context in curves[0].contexts if curves and curves[0].documents >= 2 else ():
        losses = [mean_losses([m.contexts.of(context) for m in side if m.contexts]) for side in sides]
        found[f"context {context}, documents, paired"] = paired(*losses)
    if min(map(len, sides)) >= 2:
        logs = [[math.log(m.last_five or m.windows.perplexity) for m in side] for side in sides]
        found["seeds, Welch"] = welch(*logs)
    return {name: difference.as_ratio() for name, difference in found.items()}
