"""BLiMP: 67 paradigms of minimal pairs, of which the grammatical sentence should be the likelier one (B.5, table (a)).

Read from a copy on this machine: BLiMP.zip as its authors publish it, or a folder of its .jsonl files.
"""

import json
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mapformers.errors import UserError, require
from mapformers.evaluation.aggregate import summarise
from mapformers.lm.sentences import Sentence, log_probabilities
from mapformers.lm.tokenizer import Tokenizer
from mapformers.model import Decoder

ARCHIVE = "BLiMP.zip"
MEMBER = re.compile(r"^(?:.*/)?[^./][^/]*\.jsonl$")  # no hidden files, of which the archive has some
LITTER = "__MACOSX"

# The paper's table: paradigm -> how it is named there.
ISLANDS = {
    "wh_island": "wh island",
    "sentential_subject_island": "sentential subject island",
    "left_branch_island_simple_question": "left branch island simple q.",
    "left_branch_island_echo_question": "left branch island echo q.",
    "complex_NP_island": "complex NP island",
    "adjunct_island": "adjunct island",
}


@dataclass(frozen=True)
class Paradigm:
    """``field``: syntax, morphology, …; ``term``: the phenomenon; ``pairs``: (grammatical, ungrammatical) sentences."""

    name: str
    field: str
    term: str
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class BlimpScores:
    """``accuracies``: paradigm -> share of its pairs whose grammatical sentence is the likelier one.

    Means are over paradigms, each of which counts once.
    """

    accuracies: Mapping[str, float]
    fields: Mapping[str, float]
    terms: Mapping[str, float]
    pairs: int

    @property
    def overall(self) -> float:
        return summarise(list(self.accuracies.values())).mean

    @property
    def islands(self) -> float | None:
        """The mean of the paper's six; None where not all of them are there."""
        found = [self.accuracies[name] for name in ISLANDS if name in self.accuracies]
        return summarise(found).mean if len(found) == len(ISLANDS) else None

    def to_dict(self) -> dict[str, Any]:
        means = {"overall": self.overall, "islands": self.islands}
        parts = {"fields": dict(self.fields), "terms": dict(self.terms), "paradigms": dict(self.accuracies)}
        return {**means, "pairs": self.pairs, **parts}


def read_blimp(path: str | Path) -> list[Paradigm]:
    """All paradigms of a BLiMP.zip, of a folder that has it, or of a folder with .jsonl files."""
    path = Path(path)
    require(path.exists(), f"There is no {path}; --blimp is BLiMP.zip, or a folder with it or with its .jsonl files.")
    archive = path / ARCHIVE if (path / ARCHIVE).is_file() else path
    files = _zipped(archive) if archive.is_file() else _in_folder(path)
    pairs: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for name, content in files:
        for number, line in enumerate(content.splitlines(), start=1):
            paradigm, pair = _parse(f"Line {number} of {name}", line)
            pairs.setdefault(paradigm, []).append(pair)
    require(bool(pairs), f"{path} holds no BLiMP: neither {ARCHIVE} nor .jsonl files with pairs of sentences.")
    return [Paradigm(*key, tuple(found)) for key, found in sorted(pairs.items())]


def _zipped(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        with zipfile.ZipFile(path) as archive:
            for name in sorted(archive.namelist()):
                if MEMBER.match(name) and not name.startswith(LITTER):
                    yield name, archive.read(name)
    except (zipfile.BadZipFile, OSError, EOFError) as error:
        raise UserError(f"{path} is no zip file that can be read ({error}); fetch {ARCHIVE} again.") from None


def _in_folder(path: Path) -> Iterator[tuple[str, bytes]]:
    for file in sorted(path.rglob("*.jsonl")):
        if not file.name.startswith("."):
            yield file.name, file.read_bytes()


def _parse(where: str, line: bytes) -> tuple[tuple[str, str, str], tuple[str, str]]:
    """(paradigm, field, term) and the pair of one line."""
    try:
        said = json.loads(line.decode("utf-8"))
        key = said["UID"], said["field"].replace("/", "_"), said["linguistics_term"]  # one paradigm spells it otherwise
        pair = said["sentence_good"], said["sentence_bad"]
        sound = all(isinstance(text, str) and text for text in (*key, *pair))
    except (ValueError, KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise UserError(f"{where} is no pair of BLiMP; give BLiMP.zip as it is published, or a folder of its files.")
    return key, pair


def require_lm_eval() -> None:
    """Asked before anything is measured: lm-eval itself is imported later, because that takes seconds."""
    require(find_spec("lm_eval") is not None, "BLiMP is scored by lm-eval: pip install 'mapformers[eval]'.")


def score_blimp(
    model: Decoder, tokenizer: Tokenizer, paradigms: Sequence[Paradigm], limit: int | None = None
) -> BlimpScores:
    """What lm-eval says of a model on the first ``limit`` pairs of each paradigm (all unless given)."""
    from mapformers.lm.harness import DecoderLM, accuracies  # lm-eval takes seconds to import

    return scores_of(accuracies(DecoderLM(model, tokenizer), paradigms, limit), paradigms, limit)


def score_blimp_directly(
    model: Decoder, tokenizer: Tokenizer, paradigms: Sequence[Paradigm], limit: int | None = None
) -> BlimpScores:
    """The same figures without lm-eval, whose overhead exceeds the time that a small model needs.

    A sentence follows the separator, with a space before it as lm-eval has it.
    """
    texts = [f" {text}" for paradigm in paradigms for pair in paradigm.pairs[:limit] for text in pair]
    sentences = [Sentence([tokenizer.separator], ids.tolist()) for ids in tokenizer.encode(texts)]
    found = iter(log_probabilities(model, sentences))
    right = {
        paradigm.name: [next(found).log_probability >= next(found).log_probability for _ in paradigm.pairs[:limit]]
        for paradigm in paradigms
    }
    return scores_of({name: sum(each) / len(each) for name, each in right.items()}, paradigms, limit)


def scores_of(found: Mapping[str, float], paradigms: Sequence[Paradigm], limit: int | None = None) -> BlimpScores:
    """The accuracies of paradigms with their means by field and by phenomenon."""

    def means(kind: str) -> dict[str, float]:
        names = sorted({getattr(each, kind) for each in paradigms})
        return {
            name: summarise([found[each.name] for each in paradigms if getattr(each, kind) == name]).mean
            for name in names
        }

    pairs = sum(len(each.pairs[:limit]) for each in paradigms)
    return BlimpScores(dict(found), means("field"), means("term"), pairs)
