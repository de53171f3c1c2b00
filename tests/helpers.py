"""What several test files share: every registered model, random weights, and rows of documents and padding."""

import atexit
import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

from mapformers import build_model, build_task
from mapformers.model import Decoder
from mapformers.modules.context import Context
from mapformers.modules.layer import LAYERS
from mapformers.tasks import Task

VOCAB = 11
SIZES = {"vocab_size": VOCAB, "d_model": 16, "n_heads": 2, "n_layers": 2}

assert_same = partial(torch.testing.assert_close, rtol=1e-11, atol=1e-11)  # float64
assert_bitwise = partial(torch.testing.assert_close, rtol=0, atol=0, equal_nan=False)


def thorough(*values: Any) -> Any:
    """A case of a parametrised test that only `--thorough` runs."""
    return pytest.param(*values, marks=pytest.mark.thorough)


def examples(n: int) -> int:
    """How many examples of Hypothesis to try: they are the same at each run, so a quarter unless `--thorough`."""
    return n if THOROUGH else max(10, n // 4)


@dataclass(frozen=True)
class Case:
    """A model to be tested: a registered name with one of its variants, or a list of layers."""

    name: str | None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        hybrid = f"hybrid of {len(self.options.get('layers', ()))}"
        return "-".join([self.name or hybrid, *(f"{k}={v}" for k, v in self.options.items() if k != "layers")])

    def build(self, *, seed: int = 0, dtype: torch.dtype = torch.float64, **sizes: Any) -> Decoder:
        """The model with every parameter drawn at random."""
        sizes = SIZES | sizes
        if self.name is None:
            sizes["n_layers"] = None
        return randomize(build_model(self.name, **sizes, **self.options).to(dtype), seed)


CASES = [Case(name, variant) for name in LAYERS for variant in LAYERS[name].variants]
FIRST_CASES = [Case(name, LAYERS[name].variants[0]) for name in LAYERS]
THOROUGH = False  # set by conftest.py from --thorough, before tests are collected
HYBRID = Case(None, {"layers": ["mapem", ("mapwm", {"rank": 1}), "rope", "nope"]})
EVERYTHING = Case(None, {"layers": [(name, LAYERS[name].variants[0]) for name in LAYERS]})  # one layer of each


def randomize(model: Decoder, seed: int = 0) -> Decoder:
    """Redraw every parameter, so that nothing that starts at zero or one can hide a leak."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = 0.4 * torch.randn(parameter.shape, generator=g)
            parameter.copy_(0.3 + drawn.abs() if name.endswith("omega") else drawn)
    return model


def words(n: int, seed: int = 0) -> str:
    """A text of n words, made of 40 different ones."""
    chance = random.Random(seed)
    return " ".join(f"word{chance.randrange(40)}" for _ in range(n))


@cache
def tiny_corpus() -> str:
    """A prepared folder of bytes, for tasks that need one; gone when the tests end."""
    from mapformers.lm import prepare

    place = Path(tempfile.mkdtemp(prefix="mapformers-tests-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    (place / "texts").mkdir()
    for number in range(12):
        (place / "texts" / f"{number}.txt").write_text(words(300, seed=number))
    prepare(place / "texts", place / "data", tokenizer="bytes", val=0.2, console=Console(quiet=True))
    return str(place / "data")


def needed(task: str) -> dict[str, Any]:
    """The settings without which a task cannot be sampled."""
    return {"data": tiny_corpus()} if task == "text" else {}


def any_task(name: str) -> Task[Any]:
    """A task of the registry, whether or not it needs data."""
    return build_task(name, **needed(name))


def draw_tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(VOCAB, shape, generator=torch.Generator().manual_seed(seed))


@dataclass
class Layout:
    """Rows of documents, packed and padded.

    A letter is a real token of the document of that name, ``.`` is padding, ``^`` is padding at which the next
    document's map already begins. ``AA.A^BB``: a document of three tokens with a hole in it, then one of two.
    """

    rows: Sequence[str]
    seed: int = 0
    mark_first: bool = True  # whether the first document of a row has its reset too

    def __post_init__(self) -> None:
        self.tokens = draw_tokens(len(self.rows), len(self.rows[0]), seed=self.seed)
        self.padding_mask = torch.tensor([[c.isalpha() for c in row] for row in self.rows])
        self.reset = torch.tensor([self._resets(row) for row in self.rows])

    def _resets(self, row: str) -> list[bool]:
        flags, document, begun = [], None if self.mark_first else row.strip(".^")[0], False
        for c in row:
            flags.append(c == "^" or (c.isalpha() and c != document and not begun))
            begun = c == "^" or (begun and c == ".")
            document = c if c.isalpha() else document
        return flags

    def documents(self) -> Iterator[tuple[int, Tensor]]:
        """(row, positions of its tokens) of each document."""
        for i, row in enumerate(self.rows):
            for letter in sorted(set(row) - set(".^")):
                yield i, torch.tensor([t for t, c in enumerate(row) if c == letter])

    @property
    def flags(self) -> dict[str, Tensor]:
        return {"reset": self.reset, "padding_mask": self.padding_mask}

    def context(self) -> Context:
        return Context.of(self.tokens, reset=self.reset, padding_mask=self.padding_mask)

    def alone(self, model: Decoder) -> Tensor:
        """Logits (B, L, V) of each document read alone, from its first token, without any flag."""
        logits = torch.full((*self.tokens.shape, VOCAB), torch.nan, dtype=torch.float64)
        for row, at in self.documents():
            logits[row, at] = model(self.tokens[row, at].unsqueeze(0))[0]
        return logits

    def chunks(self, sizes: Sequence[int], *, only_where_needed: bool) -> Iterator[dict[str, Tensor | None]]:
        """The rows cut into pieces; a flag that says nothing in its piece may be left out of it."""
        bounds = torch.tensor([0, *sizes]).cumsum(0).tolist()
        assert bounds[-1] == self.tokens.shape[1]
        for start, stop in pairwise(bounds):
            reset, real = self.reset[:, start:stop], self.padding_mask[:, start:stop]
            yield {
                "tokens": self.tokens[:, start:stop],
                "reset": None if only_where_needed and not reset.any() else reset,
                "padding_mask": None if only_where_needed and real.all() else real,
            }


PLAIN = ("AAAAAAAAAAAA", "AAAAAAAAAAAA")
PACKED = ("AAAABBBBBCCC", "ABBBBBBBBBCD", "AAAAAAAAAAAA")
PADDED = (".....AAAAAAA", "AAAAAAA.....", "AAA..AA.AA..", "..A....A...A")
LONG = ("A" * 64 + "B" * 64 + "C" * 72, "A" * 31 + "." * 4 + "A" * 60 + "B" + "." * 33 + "B" * 71)
MIXED = ("AAAABBBBBCCC", "..AA.AA^BBB.", ".ABBBBB...CC", "^AAAAAA.A^.B")
