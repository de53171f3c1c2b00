"""A prepared folder, memory-mapped: nothing is read before it is asked for."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapformers.errors import require
from mapformers.files import sha256
from mapformers.lm.manifest import BORDER_TYPE, ID_TYPES, Manifest, Shard
from mapformers.lm.tokenizer import ByteTokenizer, LibraryTokenizer, Tokenizer

Int64 = NDArray[np.int64]


class Corpus:
    """What `mapformers lm prepare` wrote.

    Examples:
        >>> corpus = Corpus.open("data/books")  # doctest: +SKIP
        >>> corpus.texts["train"].read(0, 5)  # doctest: +SKIP
        array([ 464, 2159,  286, 1204,   11])
    """

    def __init__(self, folder: Path, manifest: Manifest):
        self.folder, self.manifest = folder, manifest
        self.vocab_size = manifest.vocab_size
        self.separator = int(manifest.tokenizer["separator"])
        totals = manifest.totals()
        kinds = manifest.id_type, manifest.vocab_size
        self.texts = {name: TokenText(folder, self._shards(name), *kinds) for name in totals}

    @classmethod
    def open(cls, folder: str | Path) -> "Corpus":
        """A finished folder whose shards have the sizes that they should have; `faults` reads them too."""
        folder = Path(folder)
        manifest = Manifest.read(folder)
        require(
            manifest.complete,
            f"{folder} is not finished: give its `mapformers lm prepare` again, which goes on, or closes it as it is "
            "with --finish-here.",
        )
        for shard in manifest.shards:
            fault = size_fault(folder, shard, manifest.id_type)
            again = f"prepare {folder} again: finished shards before it are kept"
            remedy = "prepare the text into a new folder" if manifest.closed_early else again
            require(fault is None, f"{fault}; {remedy}.")
        return cls(folder, manifest)

    def _shards(self, split: str) -> list[Shard]:
        return [shard for shard in self.manifest.shards if shard.split == split]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Read when it is first used: training needs none."""
        return tokenizer_of(self.folder, self.manifest.tokenizer, f"delete {self.folder} and prepare it anew")

    def faults(self) -> Iterator[str]:
        """Read everything, and say what is not as it was written: a sentence for every damaged file."""
        tokenizer = self.folder / "tokenizer.json"
        if not tokenizer.is_file():
            yield f"{tokenizer} is missing"
        elif sha256(tokenizer) != self.manifest.tokenizer["sha256"]:
            yield f"{tokenizer} has changed since it was written"
        for shard in self.manifest.shards:
            for name, expected in ((shard.file, shard.sha256), (shard.borders_file, shard.borders_sha256)):
                if sha256(self.folder / name) != expected:
                    yield f"{self.folder / name} has changed since it was written"


def tokenizer_of(folder: Path, facts: Mapping[str, Any], remedy: str) -> Tokenizer:
    """The tokenizer whose tokenizer.json lies in a folder, if it is that of which these facts were written down."""
    if facts["kind"] == "bytes":
        return ByteTokenizer()
    path = folder / "tokenizer.json"
    whole = path.is_file() and sha256(path) == facts["sha256"]
    require(whole, f"{path} is missing or has changed since it was written; {remedy}.")
    return LibraryTokenizer(path.read_text("utf-8"), facts["kind"], int(facts["separator"]))


class TokenText:
    """The tokens of one split, as if they were one array: documents in their order, each ended by the separator."""

    def __init__(self, folder: Path, shards: Sequence[Shard], id_type: str, vocab_size: int):
        self._folder, self._shards, self._vocab_size = folder, shards, vocab_size
        self._type = np.dtype(ID_TYPES[id_type])
        self._starts = np.cumsum([0, *(shard.tokens for shard in shards)], dtype=np.int64)
        self._maps: dict[int, NDArray[np.unsignedinteger[Any]]] = {}

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, start: int, stop: int) -> Int64:
        """Tokens ``start`` to ``stop``, across shards."""
        require(0 <= start <= stop <= len(self), f"The text has tokens 0 to {len(self)}, not {start} to {stop}.")
        parts = []
        shard = int(np.searchsorted(self._starts, start, side="right")) - 1
        while start < stop:
            first, last = int(self._starts[shard]), int(self._starts[shard + 1])
            parts.append(self._known(shard, self._map(shard)[start - first : min(stop, last) - first]))
            start, shard = min(stop, last), shard + 1
        return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)

    def windows(self, starts: Int64, length: int) -> Int64:
        """``length`` tokens from each start on, (B, length); behind the last token follows the first."""
        require(length <= len(self), f"A window of {length} tokens is longer than the text, which has {len(self)}.")
        rows = np.empty((len(starts), length), np.int64)
        for row, start in zip(rows, starts.tolist()):
            end = min(start + length, len(self))
            row[: end - start] = self.read(start, end)
            row[end - start :] = self.read(0, start + length - end)
        return rows

    @cached_property
    def ends(self) -> Int64:
        """Where each document ends: the number of tokens up to and with its separator."""
        parts = [
            np.fromfile(self._folder / shard.borders_file, dtype=BORDER_TYPE).astype(np.int64) + start
            for shard, start in zip(self._shards, self._starts)
        ]
        return np.concatenate(parts)

    def document(self, number: int) -> Int64:
        """The tokens of one document, the separator last."""
        require(0 <= number < len(self.ends), f"The text has {len(self.ends)} documents, and no number {number}.")
        return self.read(int(self.ends[number - 1]) if number else 0, int(self.ends[number]))

    def _known(self, shard: int, ids: NDArray[np.unsignedinteger[Any]]) -> NDArray[np.unsignedinteger[Any]]:
        """These ids, if the vocabulary has them all: checksums are compared only when they are asked for."""
        highest, known = int(ids.max(initial=0)), self._vocab_size
        path = self._folder / self._shards[shard].file
        damaged = f"{path} is damaged: it has token {highest} of a vocabulary of {known}"
        require(highest < known, f"{damaged}; delete it and prepare {self._folder} again.")
        return ids

    def _map(self, shard: int) -> NDArray[np.unsignedinteger[Any]]:
        if shard not in self._maps:
            self._maps[shard] = np.memmap(self._folder / self._shards[shard].file, dtype=self._type, mode="r")
        return self._maps[shard]


def size_fault(folder: Path, shard: Shard, id_type: str) -> str | None:
    """What is wrong with the files of a shard, as their sizes tell; None if nothing is."""
    wanted = (
        (folder / shard.file, shard.tokens * np.dtype(ID_TYPES[id_type]).itemsize),
        (folder / shard.borders_file, shard.documents * np.dtype(BORDER_TYPE).itemsize),
    )
    for path, size in wanted:
        if not path.is_file():
            return f"{path} is missing"
        if path.stat().st_size != size:
            return f"{path} is cut or changed: it has {path.stat().st_size} bytes instead of {size}"
    return None
