"""Text from a source into token shards, once; stopped at any moment, it goes on after the last whole shard.

Documents are read in the order of the source, those of --val-from and --long-from first. The content of every shard is
a function of the documents, the tokenizer and the settings, so an interrupted preparation ends with the same bytes.
"""

import hashlib
import itertools
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from mapformers.config import from_dict, require_choices
from mapformers.errors import UserError, require
from mapformers.files import clear_file_errors, hold_folder, sha256, write_atomically
from mapformers.lm.corpus import Corpus, size_fault
from mapformers.lm.documents import BrokenDocument, Document, ReadOptions
from mapformers.lm.gpt2 import gpt2
from mapformers.lm.manifest import NAME, Manifest, Round, require_fit, smallest_id_type
from mapformers.lm.progress import PrepareProgress
from mapformers.lm.shard_writer import ShardWriter
from mapformers.lm.sources import Source, describe, find_source, passed_over_text
from mapformers.lm.splits import SplitRule, content_hash, rule_for
from mapformers.lm.tokenizer import ByteTokenizer, LibraryTokenizer, Tokenizer, from_path, train_bpe, vocabulary_of
from mapformers.stages import doing

TEXTS = ("source", "val", "long")
BPE_TEXT = 10**9  # characters of training text that a BPE is made from, at most


@dataclass(frozen=True)
class PrepareSettings:
    """How text becomes tokens."""

    tokenizer: str = "gpt2"
    """gpt2, bytes, bpe or bpe:VOCAB (made from the training text), a tokenizer.json, or a folder with one."""
    val: float = 0.01
    """Share of the documents that is kept for validation, chosen by their content (0: none)."""
    val_from: str | None = None
    """Instead: another source whose documents are for validation."""
    long_from: str | None = None
    """A further source, of long documents to test long contexts on: the split `long`."""
    suffixes: tuple[str, ...] = ()
    """Which files of a folder are text (.txt, .md, .jsonl, .gz and source code unless given)."""
    encoding: str = "utf-8"
    """Encoding of text files."""
    field: str = "text"
    """Where the text is in a line of JSON or in a row of a dataset."""
    skip_broken: bool = False
    """Leave out documents that cannot be read, and list them, instead of stopping at the first."""
    shard_tokens: int = 2**24
    """A shard is closed at the first end of a document after so many tokens."""
    id_type: Literal["auto", "uint16", "uint32"] = "auto"
    """How a token is stored (auto: in two bytes if the vocabulary allows it)."""

    def __post_init__(self) -> None:
        require_choices(self)
        require(0 <= self.val < 1, f"val is a share of the documents from 0 to below 1, not {self.val}.")
        require(self.shard_tokens >= 1, f"shard_tokens must be at least 1, not {self.shard_tokens}.")
        try:
            "".encode(self.encoding)
        except LookupError:
            raise UserError(f"There is no encoding {self.encoding!r}; utf-8, latin-1 and cp1252 are some.") from None


def prepare(
    source: str | Path, out: str | Path, *, console: Console | None = None, finish_here: bool = False, **settings: Any
) -> Corpus:
    """Turn text into a folder of token shards, or go on with one that was begun; what `mapformers lm prepare` does.

    ``source``       a file, a folder, ``python:`` or ``hf:NAME`` (`mapformers.lm.sources.find_source`).
    ``out``          a new folder, or the one that was begun with the same settings.
    ``finish_here``  instead of going on, close the folder with the shards that are finished.
    ``settings``     those of `PrepareSettings` by name.

    Examples:
        >>> corpus = prepare("books/train", "data/books", tokenizer="bpe:4096")  # doctest: +SKIP
    """
    chosen = from_dict(PrepareSettings, settings)
    folder = Path(out)
    job = Preparation(str(source), folder, chosen)
    with (
        hold_folder(folder, f"Another process is preparing {folder}; wait for it or choose another --out."),
        PrepareProgress(f"preparing {job.source.name}", console or Console(stderr=True)) as progress,
    ):
        job.close(progress) if finish_here else job.run(progress)
    return Corpus.open(folder)


class Preparation:
    """One source on its way into one folder."""

    def __init__(self, source: str, folder: Path, settings: PrepareSettings):
        self.folder, self.settings = folder, settings
        reading = ReadOptions(settings.encoding, settings.field)
        self.source = find_source(source, reading, settings.suffixes)
        named = (("val", settings.val_from), ("long", settings.long_from))
        self.held_out: dict[str, Source] = {
            split: find_source(text, reading, settings.suffixes) for split, text in named if text is not None
        }
        to_be_made = settings.tokenizer.split(":")[0] == "bpe"
        if to_be_made:
            train_bpe((), vocabulary_of(settings.tokenizer))  # what cannot be made is refused before a text is read
        self.own_tokenizer = None if to_be_made else find_tokenizer(settings.tokenizer)
        if self.own_tokenizer is not None and settings.id_type != "auto":
            require_fit(self.own_tokenizer.vocab_size, settings.id_type)

    def run(self, progress: PrepareProgress) -> None:
        """To the end of the source."""
        before = self._before(progress)
        require(
            before is None or not before.closed_early,
            f"{self.folder} was closed early, with --finish-here, and nothing is added to it; to read the source to "
            "its end, choose another --out.",
        )
        if before is not None and before.complete:
            check = f"`mapformers lm check {self.folder}` compares the checksums of its files"
            progress.say(f"{self.folder} is complete already; {check}.")
            return
        self._remove_parts()
        reserved = self._reserved_texts()
        if before is None:
            total, rule = self._rule(reserved, progress)
            tokenizer = self.own_tokenizer or self._train_bpe(rule, reserved, progress)
            manifest = self._start(tokenizer, rule)
        else:
            total, rule, manifest = None, SplitRule(**before.made["rule"]), before
            tokenizer = Corpus(self.folder, before).tokenizer
            if before.rounds:
                progress.say(f"{self.folder}: going on after {before.documents_read:,} documents.")
        progress.begin(manifest.documents_read, total)
        writer = ShardWriter(self.folder, manifest, tokenizer, self.settings.shard_tokens, progress)
        try:
            writer.write_all(self._sorted(manifest.documents_read, rule, reserved))
            if "train" not in writer.manifest.totals():
                writer.withdraw()
                why = "all its documents are empty or left out"
                raise UserError(f"{self.source.name} holds no text for training: {why}.")
            writer.finish(complete=True)
        except UserError as error:
            raise self._or_close(error, writer.manifest) from None
        self._say_without_val(writer.manifest, progress)

    def close(self, progress: PrepareProgress) -> None:
        """As it is: what is finished is all that the folder will hold."""
        before = self._before(progress)
        begun = before is not None and "train" in before.totals()
        require(begun, f"{self.folder} has no finished shard for training; give the command without --finish-here.")
        assert before is not None
        complete = Manifest.read(self.folder).complete  # also if a shard is damaged since
        require(not complete, f"{self.folder} is complete already; give the command without --finish-here.")
        self._remove_parts()
        closed = replace(before, closed_early=True)
        tokenizer = Corpus(self.folder, before).tokenizer
        ShardWriter(self.folder, closed, tokenizer, self.settings.shard_tokens, progress).finish(complete=True)
        self._say_without_val(closed, progress)

    def _or_close(self, error: UserError, finished: Manifest) -> UserError:
        """The refusal; if there is something to train on already, also how to be content with it."""
        if "train" not in finished.totals():
            return error
        closing = f"or give the command with --finish-here, which closes {self.folder} as it is"
        return UserError(f"{str(error).removesuffix('.')}; {closing}.")

    def _say_without_val(self, made: Manifest, progress: PrepareProgress) -> None:
        if "val" not in made.totals() and (self.settings.val > 0 or self.settings.val_from is not None):
            remedy = "for one, prepare it into another --out with a larger --val, or with --val-from"
            progress.say(f"{self.source.name}: no text was kept for validation; {remedy}.")

    def _before(self, progress: PrepareProgress) -> Manifest | None:
        """What was begun, if it can be gone on with."""
        for source in (self.source, *self.held_out.values()):
            if source.passed_over:
                progress.say(passed_over_text(source))
        before = self._begun()
        if before is not None:
            self._require_tokenizer(before)
        return before

    def _remove_parts(self) -> None:
        """What an earlier process was writing when it was killed."""
        for part in self.folder.glob("*.part"):
            part.unlink()

    def _begun(self) -> Manifest | None:
        """The manifest of what an earlier process began, up to its first damaged shard; None if there is nothing."""
        if not (self.folder / NAME).exists():
            known = {".lock", "tokenizer.json"}
            other = [path.name for path in self.folder.iterdir() if path.name not in known and path.suffix != ".part"]
            require(not other, f"{self.folder} holds other files ({min(other, default='')}); choose another --out.")
            return None
        try:
            found = Manifest.read(self.folder)
        except UserError as error:
            why = str(error).partition(";")[0]
            raise UserError(f"{why}; choose another --out, or delete {self.folder} and prepare it anew.") from None
        if not found.rounds and self._differ(found.made):
            return None  # nothing was finished, so there is nothing to lose
        self._require_same(found.made)
        whole = list(itertools.takewhile(lambda done: _is_whole(self.folder, done, found.id_type), found.rounds))
        return replace(found, rounds=tuple(whole), complete=found.complete and len(whole) == len(found.rounds))

    def _require_tokenizer(self, begun: Manifest) -> None:
        """The tokenizer of the shards must be there as it was written; one that was not made here is put back."""
        path = self.folder / "tokenizer.json"
        if path.is_file() and sha256(path) == begun.tokenizer["sha256"]:
            return
        own = self.own_tokenizer
        remedy = f"delete {self.folder} and prepare it anew"
        kept = own is not None and _sha256(own) == begun.tokenizer["sha256"]
        require(kept, f"{path} is missing or has changed since it was written; {remedy}.")
        assert own is not None
        with clear_file_errors("write to", self.folder):
            write_atomically(path, own.to_json().encode())

    def _require_same(self, begun: Mapping[str, Any]) -> None:
        """A preparation goes on with the settings and the texts that it was begun with."""
        mine, differ = self._made, self._differ(begun)
        changed = [key for key in differ if key in TEXTS and mine[key]["name"] == begun.get(key, {}).get("name")]
        require(
            not changed,
            f"The text of {' and '.join(mine[key]['name'] for key in changed)}, or how it is read, is not as it was "
            f"when {self.folder} was begun; choose another --out.",
        )
        require(
            not differ,
            f"{self.folder} was begun with another {' and '.join(differ)}; give that again, or another --out.",
        )

    def _differ(self, begun: Mapping[str, Any]) -> list[str]:
        """In what this preparation is another; files that are not taken for text do not count."""
        return [key for key, value in self._made.items() if _that_decides(value) != _that_decides(begun.get(key))]

    @cached_property
    def _made(self) -> dict[str, Any]:
        """All that decides the content of the shards, but for the rule of splitting, which follows from it."""
        settings = self.settings
        spec = settings.tokenizer
        if self.own_tokenizer is not None and self.own_tokenizer.kind == "file":
            spec = f"file {_sha256(self.own_tokenizer)[:16]}"
        sources = {"source": self.source, **self.held_out}
        return {
            **{name: describe(source) for name, source in sources.items()},
            "share": float(settings.val),
            "tokenizer": f"bpe:{vocabulary_of(spec)}" if self.own_tokenizer is None else spec,
            "shard_tokens": settings.shard_tokens,
            "id_type": settings.id_type,
        }

    def _start(self, tokenizer: Tokenizer, rule: SplitRule) -> Manifest:
        asked = self.settings.id_type
        id_type = smallest_id_type(tokenizer.vocab_size) if asked == "auto" else asked
        require_fit(tokenizer.vocab_size, id_type)
        facts = {
            "kind": tokenizer.kind,
            "vocab_size": tokenizer.vocab_size,
            "separator": tokenizer.separator,
            "sha256": _sha256(tokenizer),
        }
        manifest = Manifest({**self._made, "rule": rule.to_dict()}, facts, id_type)
        with clear_file_errors("write to", self.folder):
            write_atomically(self.folder / "tokenizer.json", tokenizer.to_json().encode())
            manifest.write(self.folder)
        return manifest

    def _rule(self, reserved: Mapping[int, str], progress: PrepareProgress) -> tuple[int | None, SplitRule]:
        """The number of documents, where it can be known, and the rule of splitting."""
        held_out = list(self.held_out.values())
        known = all(source.countable for source in (self.source, *held_out))
        others = sum(1 for source in held_out for _ in source.documents()) if known else 0
        if "val" in self.held_out or self.settings.val == 0:
            return others + sum(1 for _ in self.source.documents()) if known else None, SplitRule()
        if not self.source.countable:
            return None, rule_for(None, self.settings.val)
        progress.say(f"Choosing the validation text of {self.source.name}.")
        counter = itertools.count()
        texts = (self._text(document) for document, _ in zip(self.source.documents(), counter))
        own = (text for text in texts if text.strip() and not (reserved and content_hash(text) in reserved))
        rule = rule_for(own, self.settings.val)
        return others + next(counter) * (2 if rule.cut else 1) if known else None, rule

    def _train_bpe(self, rule: SplitRule, reserved: dict[int, str], progress: PrepareProgress) -> LibraryTokenizer:
        vocabulary = vocabulary_of(self.settings.tokenizer)
        progress.say(f"Making a BPE of {vocabulary:,} tokens from the training text.")
        with doing("reading text for the BPE, character") as stage:
            texts = progress.counted(self._training_texts(rule, reserved), stage)
            # In a thread, as the library heeds no signal before it is through: Ctrl-C ends the waiting for it.
            made = ThreadPoolExecutor(1).submit(train_bpe, texts, vocabulary).result()
        if made.vocab_size < vocabulary:
            progress.say(f"The text has words for no more than {made.vocab_size:,}.")
        return made

    def _training_texts(self, rule: SplitRule, reserved: dict[int, str]) -> Iterator[str]:
        left = BPE_TEXT
        for _, text, split in self._sorted(0, rule, reserved):
            if split == "train":
                yield text
                left -= len(text)
            if left <= 0:
                return

    def _documents(self, start: int, rule: SplitRule) -> Iterator[Document]:
        number = 0
        for split, source in self.held_out.items():
            for document in source.documents():
                if number >= start:
                    yield replace(document, split=split)
                number += 1
        rest = max(0, start - number)
        if not rule.cut:
            yield from self.source.documents(rest)
            return
        parts = (part for document in self.source.documents(rest // 2) for part in rule.parts(document))
        for index, part in enumerate(parts):
            if index >= rest % 2:
                yield part

    def _sorted(self, start: int, rule: SplitRule, reserved: dict[int, str]) -> Iterator[tuple[str, str, str]]:
        """(name, text, split) of every document; in place of the split, why it is left out, with no text."""
        for document in self._documents(start, rule):
            try:
                whole = document.read()
            except BrokenDocument as broken:
                if not self.settings.skip_broken:
                    raise
                yield broken.name, "", broken.why  # which both parts of a document have
                continue
            text = document.part(whole)
            split = document.split or rule.split_of(text)
            elsewhere = reserved.get(content_hash(whole), split) if reserved else split
            if not text.strip():
                yield document.name, "", "is empty"
            elif elsewhere != split:
                yield document.name, "", f"is also in {elsewhere}"
            else:
                yield document.name, text, split

    def _text(self, document: Document) -> str:
        try:
            return document.read()
        except BrokenDocument:
            if not self.settings.skip_broken:
                raise
            return ""

    def _reserved_texts(self) -> dict[int, str]:
        """Content hash -> split of all documents of --val-from and --long-from: none may be in another split."""
        found: dict[int, str] = {}
        for split, source in self.held_out.items():
            for text in map(self._text, source.documents()):
                found.setdefault(content_hash(text), split)
        return found


def find_tokenizer(spec: str) -> Tokenizer:
    """The tokenizer of a name or a path."""
    if spec in ("bytes", "gpt2"):
        return ByteTokenizer() if spec == "bytes" else gpt2()
    try:
        return from_path(Path(spec))
    except UserError:
        raise
    except Exception as error:  # the library `tokenizers` raises nothing more special
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{spec} is not a tokenizer that can be read ({why}); give one, bytes, gpt2 or bpe.") from None


def _that_decides(made: Any) -> Any:
    return {key: value for key, value in made.items() if key != "passed_over"} if isinstance(made, Mapping) else made


def _sha256(tokenizer: Tokenizer) -> str:
    return hashlib.sha256(tokenizer.to_json().encode()).hexdigest()


def _is_whole(folder: Path, done: Round, id_type: str) -> bool:
    return all(size_fault(folder, shard, id_type) is None for shard in done.shards)
