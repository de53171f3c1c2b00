"""Tokenizers: bytes, GPT-2's BPE, a BPE trained on the text itself, or a file of the library `tokenizers`.

Every prepared folder has a `tokenizer.json` that the library and `transformers` read, the byte tokenizer's too. The
text of a document never turns into the separator, not even where it spells it.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapformers.errors import UserError, require
from mapformers.files import read_json

SEPARATOR = "<|endoftext|>"
SEPARATORS = (SEPARATOR, "<|end_of_text|>", "</s>", "<eos>", "<|eot_id|>", "[SEP]")
PIECE = 2**20  # characters that are encoded at once
DEFAULT_VOCABULARY = 4096
LARGEST_BPE = 10**7  # tokens; the library takes memory for as many as it is asked for
PLACE_TO_CUT = re.compile(r"(?<=\S)[ \n]")
Ids = NDArray[np.integer[Any]]


class Tokenizer(ABC):
    """Text to token ids and back.

    ``kind``       what it is: bytes, gpt2, bpe or file.
    ``separator``  the token that ends every document.
    """

    kind: str
    vocab_size: int
    separator: int

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text, without separators."""

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """The text that ids stand for; separators are shown as ``<|endoftext|>`` or as their own name."""

    @abstractmethod
    def to_json(self) -> str:
        """The content of tokenizer.json."""

    def token_name(self, token: int) -> str:
        """One token as a person reads it."""
        return self.decode([token])


class ByteTokenizer(Tokenizer):
    """The 256 bytes of UTF-8 are the tokens 0 to 255; the separator is 256."""

    kind, vocab_size, separator = "bytes", 257, 256

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        return [np.frombuffer(text.encode(), dtype=np.uint8) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        parts = (SEPARATOR.encode() if token == self.separator else bytes([token]) for token in ids)
        return b"".join(parts).decode(errors="replace")

    def token_name(self, token: int) -> str:
        return self.decode([token]) if token < 128 or token == self.separator else f"0x{token:02x}"

    def to_json(self) -> str:
        """The same as a BPE without merges: byte b is the token b."""
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        model: dict[str, Any] = {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {letter: byte for byte, letter in enumerate(byte_letters())}, "merges": [],
        }  # fmt: skip
        whole = {
            "version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": self.separator, "content": SEPARATOR, **special}],
            "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level, "model": model,
        }  # fmt: skip
        return json.dumps(whole, ensure_ascii=False)


def byte_letters() -> list[str]:
    """The letter by which byte-level BPE writes each byte: itself if it can be seen, else one from U+0100 on."""
    seen = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    unseen = iter(range(0x100, 0x200))
    return [chr(byte if byte in seen else next(unseen)) for byte in range(256)]


class LibraryTokenizer(Tokenizer):
    """Whatever a `tokenizer.json` of the library `tokenizers` describes."""

    def __init__(self, content: str, kind: str, separator: int | None = None, name: str = "The tokenizer"):
        self.kind = kind
        self._content = content
        try:
            self._library = library().Tokenizer.from_str(content)
        except Exception as error:  # the library raises nothing more special
            raise UserError(f"{name} is none that the library `tokenizers` reads ({error}); give another.") from None
        self._library.encode_special_tokens = True  # a text may spell the separator without ending there
        self._library.no_truncation()
        self._library.no_padding()
        vocabulary = self._library.get_vocab()
        self.vocab_size = 1 + max(vocabulary.values(), default=0)
        known = next((vocabulary[name] for name in SEPARATORS if name in vocabulary), None)
        found = known if separator is None else separator
        require(found is not None, f"{name} has no token that ends a document ({', '.join(SEPARATORS)}); give another.")
        assert found is not None
        self.separator = found

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        cut = [list(pieces(text)) if self._cuttable else [text] for text in texts]
        every = [piece for parts in cut for piece in parts]
        try:
            found = iter(self._library.encode_batch_fast(every, add_special_tokens=False))
        except Exception as error:  # as above
            raise UserError(f"The tokenizer cannot encode this text ({error}); give another --tokenizer.") from None
        encoded = ([np.array(next(found).ids, dtype=np.uint32) for _ in parts] for parts in cut)
        return [np.concatenate(parts) if parts else np.empty(0, np.uint32) for parts in encoded]

    def decode(self, ids: Iterable[int]) -> str:
        return str(self._library.decode(list(ids), skip_special_tokens=False))

    def token_name(self, token: int) -> str:
        name = self._library.id_to_token(token)
        return f"<{token}>" if name is None else self.decode([token]) or name

    def to_json(self) -> str:
        return self._content

    @cached_property
    def _cuttable(self) -> bool:
        """Whether words are found as GPT-2 finds them: none then begins before a space and ends behind it."""
        said = json.loads(self._content)
        words = said.get("pre_tokenizer") or {}
        plain = words.get("type") == "ByteLevel" and words.get("use_regex", True) and not words.get("add_prefix_space")
        return bool(plain) and said.get("normalizer") is None


def pieces(text: str, size: int = PIECE) -> Iterator[str]:
    """A long text in pieces of at least ``size`` characters, each cut before white space that follows a word.

    GPT-2's rule for words never joins what stands on both sides of such a place, so the tokens are those of the whole
    text, and a book takes the memory of a piece and the time of all processors together.
    """
    start = 0
    while start < len(text):
        place = PLACE_TO_CUT.search(text, start + size)
        end = place.start() if place else len(text)
        yield text[start:end]
        start = end


def train_bpe(texts: Iterable[str], vocab_size: int) -> LibraryTokenizer:
    """A byte-level BPE of these texts, the same for the same texts. The separator is token 0."""
    require(vocab_size >= 257, f"A BPE has 256 bytes and the separator, so at least 257 tokens, not {vocab_size}.")
    require(vocab_size <= LARGEST_BPE, f"A BPE has at most {LARGEST_BPE:,} tokens, not {vocab_size:,}; ask for fewer.")
    made = library().Tokenizer(library().models.BPE())
    made.pre_tokenizer = library().pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = library().decoders.ByteLevel()
    trainer = library().trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[SEPARATOR],
        initial_alphabet=sorted(library().pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    made.train_from_iterator((piece for text in texts for piece in pieces(text)), trainer)
    return LibraryTokenizer(made.to_str(), "bpe")


def vocabulary_of(spec: str) -> int:
    """``bpe:4096`` -> 4096."""
    _, colon, size = spec.partition(":")
    require(not colon or size.isdigit(), f"The size of a BPE's vocabulary is a number, as in bpe:4096, not {size!r}.")
    return int(size) if colon else DEFAULT_VOCABULARY


def from_merges(vocabulary: dict[str, int], merges: Sequence[tuple[str, ...]], kind: str) -> LibraryTokenizer:
    """The byte-level BPE of a vocabulary and its merges, as GPT-2 came."""
    require(SEPARATOR in vocabulary, f"The vocabulary has no token {SEPARATOR}.")
    made = library().Tokenizer(library().models.BPE(vocabulary, list(merges)))
    made.pre_tokenizer = library().pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = library().decoders.ByteLevel()
    made.add_special_tokens([SEPARATOR])
    return LibraryTokenizer(made.to_str(), kind)


def from_path(path: Path) -> LibraryTokenizer:
    """A tokenizer.json, or a folder with one, or one with vocab.json and merges.txt."""
    if path.is_dir():
        merges = path / "merges.txt"
        if merges.is_file() and (path / "vocab.json").is_file():
            return from_merges(read_json(path / "vocab.json"), read_merges(merges.read_text("utf-8")), "file")
        path = path / "tokenizer.json"
    require(path.is_file(), f"There is no tokenizer {path}; give bytes, gpt2, bpe:VOCAB or a tokenizer.json.")
    return LibraryTokenizer(path.read_text("utf-8"), "file", name=f"The tokenizer {path}")


def read_merges(content: str) -> list[tuple[str, ...]]:
    """The pairs of a merges.txt, in their order; the first line may be a version."""
    lines = content.rstrip("\n").split("\n")
    return [tuple(line.split(" ")) for line in lines if not line.startswith("#version")]


def library() -> Any:
    """The package `tokenizers`, needed by all but bytes."""
    try:
        import tokenizers
    except ImportError:
        raise UserError(
            "A BPE needs the package `tokenizers`: pip install 'mapformers[hf]', or give --tokenizer bytes."
        ) from None
    return tokenizers
