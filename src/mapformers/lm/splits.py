"""Which document is for training, which for validation: decided by its content, so no text is ever in both."""

import hashlib
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from mapformers.lm.documents import Document


def content_hash(text: str) -> int:
    """64 bits that depend on the text alone."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


@dataclass(frozen=True)
class SplitRule:
    """How documents without a split of their own get one.

    ``below``  documents whose content hash is below this are for validation.
    ``cut``    instead: every document is cut, and this share at its end is for validation.
    """

    below: int = 0
    cut: float = 0.0

    def split_of(self, text: str) -> str:
        return "val" if content_hash(text) < self.below else "train"

    def parts(self, document: Document) -> Iterator[Document]:
        """The document, or both its parts if it must be cut."""
        if not self.cut:
            yield document
            return
        for split, part in (("train", _beginning), ("val", _end)):
            yield replace(document, split=split, part=partial(part, share=self.cut))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def rule_for(texts: Iterable[str] | None, share: float) -> SplitRule:
    """The rule that holds out a share of the documents: those with the lowest content hashes, and at least one.

    ``texts``: all of them, to know their hashes; None if they can be read only once, where each document then is for
    validation with a probability of ``share``. If there is only one, it is cut in two.
    """
    if share == 0:
        return SplitRule()
    if texts is None:
        return SplitRule(below=int(share * 2**64))
    hashes = np.unique(np.array(array("Q", map(content_hash, texts)), dtype=np.uint64))
    if len(hashes) < 2:
        return SplitRule(cut=share)
    held_out = min(max(1, round(share * len(hashes))), len(hashes) - 1)
    return SplitRule(below=int(hashes[held_out]))


def cut_at(text: str, share: float) -> int:
    """Where the last share of a text begins: at a line, or at least at a word, if there is one to begin with."""
    end = len(text.rstrip())  # so that the last share is never blank
    middle = int(end * (1 - share))
    for border in ("\n", " "):
        place = text.find(border, middle) + 1
        if 0 < place < end:
            return place
    return middle


def _beginning(text: str, share: float) -> str:
    return text[: cut_at(text, share)]


def _end(text: str, share: float) -> str:
    return text[cut_at(text, share) :]
