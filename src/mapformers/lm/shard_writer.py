"""Documents into shards, round by round."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from mapformers.errors import UserError
from mapformers.files import write_atomically
from mapformers.lm.manifest import BORDER_TYPE, ID_TYPES, NAME, Manifest, Round, Shard
from mapformers.lm.progress import PrepareProgress
from mapformers.lm.tokenizer import Ids, Tokenizer

TEXT_AT_ONCE = 2**23  # characters that are encoded together, on all processors


@dataclass
class OpenShard:
    """Documents of one split that are not written yet."""

    documents: list[Ids] = field(default_factory=list)
    text_bytes: int = 0


class ShardWriter:
    """Encodes documents, gathers them by split, and writes a round whenever enough tokens are gathered.

    ``manifest`` is that on disk: what it lists is whole. A round that is not finished leaves no trace.
    """

    def __init__(
        self, folder: Path, manifest: Manifest, tokenizer: Tokenizer, shard_tokens: int, progress: PrepareProgress
    ):
        self.folder, self.manifest, self.tokenizer = folder, manifest, tokenizer
        self.shard_tokens, self.progress = shard_tokens, progress
        self.read = manifest.documents_read
        self._open: dict[str, OpenShard] = {}
        self._left_out: list[tuple[str, str]] = []
        self._tokens = 0

    def write_all(self, documents: Iterable[tuple[str, str, str]]) -> None:
        """(name, text, split) of every document; without a text the third says why it is left out."""
        for name, text, split, ids in self._encoded(documents):
            self.read += 1
            if not text:
                self._left_out.append((name, split))
                self.progress.update(0, 0)
                continue
            shard, size = self._open.setdefault(split, OpenShard()), len(text.encode())
            shard.documents.append(np.append(ids, self.tokenizer.separator).astype(ID_TYPES[self.manifest.id_type]))
            shard.text_bytes += size
            self._tokens += len(ids) + 1
            self.progress.update(len(ids) + 1, size)
            if self._tokens >= self.shard_tokens:
                self.finish()
        if self._open or self._left_out:
            self.finish()

    def finish(self, complete: bool = False) -> None:
        """Write what is gathered, then the manifest that lists it."""
        try:
            rounds = self.manifest.rounds
            if self._open or self._left_out:
                shards = tuple(self._written(split, shard) for split, shard in sorted(self._open.items()))
                rounds = (*rounds, Round(self.read, shards, tuple(self._left_out)))
            manifest = replace(self.manifest, rounds=rounds, complete=complete)
            manifest.write(self.folder)
        except OSError as error:
            done = len(self.manifest.shards)
            raise UserError(
                f"Cannot write {error.filename or self.folder / NAME}: {(error.strerror or str(error)).lower()}; make "
                f"room and give the same command again, which keeps the {done} finished shards and goes on."
            ) from None
        self.manifest, self._open, self._left_out, self._tokens = manifest, {}, [], 0

    def withdraw(self) -> None:
        """Leave the folder as if nothing had been begun."""
        shards = self.manifest.shards
        written = [name for shard in shards for name in (shard.file, shard.borders_file)]
        for name in (NAME, "tokenizer.json", *written):
            (self.folder / name).unlink()

    def _encoded(self, documents: Iterable[tuple[str, str, str]]) -> Iterator[tuple[str, str, str, Ids]]:
        """The documents with their ids, many at once so that all processors have work."""
        waiting: list[tuple[str, str, str]] = []
        size = 0
        try:
            for document in documents:
                waiting.append(document)
                size += len(document[1])
                if size >= TEXT_AT_ONCE or len(waiting) >= TEXT_AT_ONCE // 64:
                    yield from self._encode(waiting)
                    waiting, size = [], 0
        except UserError:  # one that cannot be read: those before it are finished first
            yield from self._encode(waiting)
            raise
        yield from self._encode(waiting)

    def _encode(self, documents: list[tuple[str, str, str]]) -> Iterator[tuple[str, str, str, Ids]]:
        encoded = self.tokenizer.encode([text for _, text, _ in documents])
        for (name, text, split), ids in zip(documents, encoded):
            yield name, text, split, ids

    def _written(self, split: str, shard: OpenShard) -> Shard:
        tokens = np.concatenate(shard.documents)
        borders = np.cumsum([len(document) for document in shard.documents]).astype(BORDER_TYPE)
        number = sum(other.split == split for other in self.manifest.shards)
        raw, raw_borders = tokens.tobytes(), borders.tobytes()
        described = Shard(
            split, number, len(tokens), len(borders), shard.text_bytes,
            hashlib.sha256(raw).hexdigest(), hashlib.sha256(raw_borders).hexdigest(),
        )  # fmt: skip
        for name, content in ((described.file, raw), (described.borders_file, raw_borders)):
            try:
                write_atomically(self.folder / name, content)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self.folder / name)) from None
        return described
