"""What a prepared folder says of itself: `manifest.json`, written after every finished round.

A round is a run of documents and the shards that they became, one for each split that they went to. After a round
nothing is open, so an interrupted preparation goes on after the last one.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mapformers.errors import UserError, require
from mapformers.files import read_json, write_json

FORMAT = 1
NAME = "manifest.json"
SPLITS = ("train", "val", "long")
ID_TYPES = {"uint16": "<u2", "uint32": "<u4"}  # the numpy type of token ids, little-endian on every machine
BORDER_TYPE = "<u8"
SEAL = "manifest_sha256"


@dataclass(frozen=True)
class Shard:
    """Tokens of one split, and where its documents end.

    ``text_bytes``  the length of the text in UTF-8, without separators: for figures per byte.
    """

    split: str
    number: int
    tokens: int
    documents: int
    text_bytes: int
    sha256: str
    borders_sha256: str

    @property
    def file(self) -> str:
        return f"{self.split}-{self.number:05d}.bin"

    @property
    def borders_file(self) -> str:
        return f"{self.split}-{self.number:05d}.borders"


@dataclass(frozen=True)
class Round:
    """Documents up to number ``end`` of the source, what they became, and which of them became nothing and why."""

    end: int
    shards: tuple[Shard, ...]
    left_out: tuple[tuple[str, str], ...] = ()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Round":
        shards = tuple(Shard(**shard) for shard in data["shards"])
        return cls(data["end"], shards, tuple((name, why) for name, why in data["left_out"]))


@dataclass(frozen=True)
class Manifest:
    """What a folder holds, and how it came about.

    ``made``          the settings, the sources and the rule of splitting: all that decides the content of the shards.
    ``complete``      whether nothing more comes.
    ``closed_early``  whether that was decided before the source was read to its end.
    """

    made: dict[str, Any]
    tokenizer: dict[str, Any]
    id_type: str
    rounds: tuple[Round, ...] = ()
    complete: bool = False
    closed_early: bool = False

    @property
    def shards(self) -> list[Shard]:
        return [shard for done in self.rounds for shard in done.shards]

    @property
    def left_out(self) -> list[tuple[str, str]]:
        return list(dict.fromkeys(item for done in self.rounds for item in done.left_out))

    @property
    def documents_read(self) -> int:
        return self.rounds[-1].end if self.rounds else 0

    def totals(self) -> dict[str, dict[str, int]]:
        """Tokens, documents and bytes of text of each split."""
        names = [name for name in SPLITS if any(shard.split == name for shard in self.shards)]
        counts = ("tokens", "documents", "text_bytes")
        return {
            name: {count: sum(getattr(s, count) for s in self.shards if s.split == name) for count in counts}
            for name in names
        }

    def checksum(self) -> str:
        """One hash of the tokenizer and of every shard: what a run remembers of its data."""
        parts = [self.tokenizer["sha256"], *(f"{shard.file} {shard.sha256}" for shard in self.shards)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    def write(self, folder: Path) -> None:
        plain = {"format": FORMAT, **asdict(self), "totals": self.totals(), "checksum": self.checksum()}
        write_json(folder / NAME, {**plain, SEAL: _seal(plain)})

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """The manifest of a folder; anything else than a manifest is refused in a sentence."""
        path = folder / NAME
        require(path.is_file(), f"{folder} is not a prepared folder: it has no {NAME}; see `mapformers lm prepare`.")
        data = read_json(path)
        try:
            rounds = tuple(Round.from_dict(item) for item in data["rounds"])
            ends = bool(data["complete"]), bool(data.get("closed_early", False))  # which earlier versions do not say
            found = cls(data["made"], data["tokenizer"], data["id_type"], rounds, *ends)
            vocabulary, kind, known = found.vocab_size, found.id_type, data["format"] == FORMAT
        except (KeyError, TypeError, ValueError, AttributeError):
            raise UserError(f"{path} is damaged; prepare the folder again.") from None
        require(known, f"{path} was written by another version of mapformers; prepare the folder again.")
        require_fit(vocabulary, kind)
        whole = data.pop(SEAL, None) in (None, _seal(data))  # folders of earlier versions have none
        require(whole, f"{path} has changed since it was written; prepare the folder again.")
        return found

    @property
    def vocab_size(self) -> int:
        return int(self.tokenizer["vocab_size"])


def _seal(plain: Mapping[str, Any]) -> str:
    """A hash of all that a manifest says."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def require_fit(vocab_size: int, id_type: str) -> None:
    """Refuse a vocabulary with ids that the type of the shards cannot hold."""
    require(id_type in ID_TYPES, f"Token ids are stored as {' or '.join(ID_TYPES)}, not {id_type}.")
    largest = 2 ** (8 * int(ID_TYPES[id_type][-1]))
    require(
        vocab_size <= largest,
        f"A vocabulary of {vocab_size} tokens does not fit into {id_type}, which holds {largest}; "
        + ("prepare it with --id-type uint32." if id_type == "uint16" else "choose a smaller one."),
    )


def smallest_id_type(vocab_size: int) -> str:
    """Two bytes for each token where they are enough."""
    return "uint16" if vocab_size <= 2**16 else "uint32"
