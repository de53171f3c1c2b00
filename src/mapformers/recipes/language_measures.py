"""What is measured of a language model besides its splits: the last evaluations, windows, long contexts, BLiMP."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mapformers.errors import Diverged, require
from mapformers.evaluation.significance import paired
from mapformers.lm.blimp import ISLANDS, read_blimp, score_blimp_directly
from mapformers.lm.evaluation import documents_of, held_out
from mapformers.lm.long_context import CONTEXTS, context_losses, needed_tokens
from mapformers.lm.perplexity import LAST, mean_of_last, over_training, window_losses
from mapformers.lm.text import Text
from mapformers.model import Decoder
from mapformers.recipes.measures import Figures, Measure
from mapformers.recipes.record import finite
from mapformers.runs.run import Run

DIGITS = 5  # of nats, of which a record keeps many
ISLAND, OVERALL = "islands", "overall"
STRETCH, STRETCH_AT_MOST = "stretch", "stretch at most"


def rounded(nats: Iterable[float]) -> list[float | None]:
    """Losses as a record keeps them; None for what a model that diverged makes of a text."""
    return [finite(round(each, DIGITS)) for each in nats]


def parts(run: Run) -> tuple[Decoder, Text]:
    """The model and the task of a run on text."""
    model, task = run.model, run.task
    assert isinstance(model, Decoder) and isinstance(task, Text)
    return model, task


@dataclass(frozen=True)
class LastEvaluations(Figures):
    """The mean of the last validation perplexities of a run, as the paper reports it (B.5)."""

    n: int = LAST
    name = "validation"
    lower_is_better = True

    @property
    def headings(self) -> Mapping[str, str]:
        return {"perplexity": f"validation perplexity, mean of the last {self.n}"}

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"n": self.n}

    def measure(self, run: Run) -> dict[str, Any]:
        mean = finite(mean_of_last(over_training(run), self.n))
        return {"values": {"perplexity": mean}, "settings": self.settings}


@dataclass(frozen=True)
class Windows(Measure):
    """The loss of every validation window, in nats: what two models are compared on pair by pair."""

    name = "windows"

    def measure(self, run: Run) -> list[float | None]:
        model, task = parts(run)
        return rounded(window_losses(model, task, task.watched_split, run.config.train.final_sequences).nats)


@dataclass(frozen=True)
class Contexts(Figures):
    """Perplexity of the same targets with a growing context, in documents of the text `long`, or else of `val`.

    ``trained``  the context of training: ``stretch`` is the perplexity at the longest context over that at this one,
                 ``stretch at most`` the upper end of its interval (95 %) over documents.
    """

    contexts: tuple[int, ...] = CONTEXTS
    trained: int = 256
    targets: int = 32
    blocks: int = 2
    name = "contexts"
    lower_is_better = True

    @property
    def headings(self) -> Mapping[str, str]:
        last = self.contexts[-1]
        ratio = f"{last} / {self.trained}"
        figures = {str(context): str(context) for context in self.contexts}
        return {**figures, STRETCH: ratio, STRETCH_AT_MOST: f"{ratio}, upper end"}

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"trained": self.trained, "targets": self.targets, "blocks": self.blocks}

    def measure(self, run: Run) -> dict[str, Any]:
        """A context for which no document is long enough has no figure."""
        model, task = parts(run)
        documents = documents_of(held_out(task.corpus))
        longest = max(map(len, documents))
        possible = [c for c in self.contexts if needed_tokens(c, self.targets, self.blocks) <= longest]
        values: dict[str, float | None] = dict.fromkeys(self.headings)
        if not possible:
            return {"values": values, "documents": {}, "settings": self.settings}
        found = context_losses(model, documents, possible, targets=self.targets, blocks=self.blocks)
        values |= {str(context): finite(found.perplexity(context)) for context in possible}
        nats = {str(context): rounded(found.of(context)) for context in possible}
        first, last = (nats.get(str(context), []) for context in (self.trained, self.contexts[-1]))
        if len(first) == len(last) >= 2 and None not in (*first, *last):
            change = paired(found.of(self.contexts[-1]), found.of(self.trained)).as_ratio()
            values |= {STRETCH: 1 + change.mean, STRETCH_AT_MOST: 1 + change.high}
        return {"values": values, "documents": nats, "settings": self.settings}


@dataclass(frozen=True)
class Blimp(Figures):
    """The accuracy on BLiMP: overall, on the islands of the paper's table, and on every paradigm.

    ``path``   where BLiMP is.
    ``data``   runs on other text have no figures: BLiMP is English.
    ``limit``  the first so many pairs of each paradigm.
    """

    path: str = "data/blimp"
    data: str = "data/books"
    limit: int | None = None
    name = "blimp"

    @property
    def headings(self) -> Mapping[str, str]:
        return {**ISLANDS, ISLAND: "overall island", OVERALL: "overall BLiMP"}

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"limit": self.limit}

    def require_ready(self) -> None:
        require(
            Path(self.path).is_dir(),
            f"There is no folder {self.path}; put BLiMP.zip there, as docs/language.md says, to measure BLiMP.",
        )
        read_blimp(self.path)

    def measure(self, run: Run) -> dict[str, Any]:
        """A model that diverged has no figures, as in every other measure, so its cell is recorded all the same."""
        model, task = parts(run)
        none = {"values": dict.fromkeys(self.headings), "settings": self.settings}
        if Path(task.settings.data) != Path(self.data):
            return none
        try:
            found = score_blimp_directly(model, task.corpus.tokenizer, read_blimp(self.path), self.limit)
        except Diverged:
            return none
        values = {name: found.accuracies.get(name) for name in ISLANDS}
        summary = {**values, ISLAND: found.islands, OVERALL: found.overall}
        return {"values": summary, "settings": self.settings, **found.to_dict()}
