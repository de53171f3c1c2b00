"""Documents in files: plain text, source code, JSON lines; any of them also as .gz."""

import gzip
import io
import json
import tokenize
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from mapformers.errors import UserError

JSON_LINES = (".jsonl", ".ndjson")
PYTHON = (".py", ".pyi")


class BrokenDocument(UserError):
    """A document that cannot be read: its name and why, and what can be done about it."""

    def __init__(self, name: str, why: str, remedy: str = "repair it"):
        super().__init__(f"{name} {why}; {remedy}, or leave out what is broken with --skip-broken.")
        self.name, self.why = name, why


@dataclass(frozen=True)
class Document:
    """A text that has not been read yet.

    ``name``   for messages and the manifest: relative to its source, so that it says nothing of a machine.
    ``read``   its text, or `BrokenDocument`.
    ``split``  the split it must go to; None: the rule of the corpus decides.
    """

    name: str
    read: Callable[[], str]
    split: str | None = None


@dataclass(frozen=True)
class ReadOptions:
    """How files become text.

    ``encoding``  of text files. Python's own files say theirs in a first line (PEP 263), and are read so.
    ``field``     where the text is in a line of JSON, or in a row of a dataset.
    """

    encoding: str = "utf-8"
    field: str = "text"


def documents_in(name: str, path: Path, reading: ReadOptions) -> Iterator[Document]:
    """The documents of one file: each line of JSON lines, otherwise the file as a whole."""
    if content_suffix(path) in JSON_LINES:
        yield from _lines_of(name, path, reading)
    else:
        yield Document(name, partial(_read_text, name, path, reading))


def content_suffix(path: Path) -> str:
    """The suffix of what a file holds: ``.txt`` of ``book.txt.gz``; ``.gz`` of a ``.gz`` that says no more."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    inner = suffixes[-2] if suffixes[-1:] == [".gz"] and len(suffixes) > 1 else ""
    is_suffix = inner[1:].isalnum() and len(inner) <= 9  # and not the rest of a name with a point in it
    return inner if is_suffix else suffixes[-1] if suffixes else ""


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if path.suffix.lower() == ".gz" else path.open("rb")


def _read_text(name: str, path: Path, reading: ReadOptions) -> str:
    try:
        with _open(path) as file:
            raw = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(name, error) from None
    encoding = _python_encoding(name, raw) if content_suffix(path) in PYTHON else reading.encoding
    return decode(name, raw, encoding)


def decode(name: str, raw: bytes, encoding: str) -> str:
    """The text that bytes stand for; a byte order mark at the start is no part of it."""
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        byte = f"byte 0x{raw[error.start]:02x} at {error.start}"
        raise BrokenDocument(name, f"is not {encoding} text ({byte})", "name its --encoding") from None
    if "\0" in text:
        raise BrokenDocument(name, "is not text: it has characters of value zero", "name its --encoding")
    return text.removeprefix("\ufeff")


def _python_encoding(name: str, raw: bytes) -> str:
    try:
        return tokenize.detect_encoding(io.BytesIO(raw).readline)[0]
    except SyntaxError as error:
        raise BrokenDocument(name, f"is not Python source ({error.msg})") from None


def _lines_of(name: str, path: Path, reading: ReadOptions) -> Iterator[Document]:
    try:
        with _open(path) as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    here = f"{name}, line {number},"
                    yield Document(here, partial(_text_of_line, here, line, reading))
    except (OSError, EOFError, zlib.error) as error:
        broken = _unreadable(name, error)  # the lines before it are documents all the same
        yield Document(name, partial(_raise, broken))


def _text_of_line(name: str, line: bytes, reading: ReadOptions) -> str:
    try:
        row = json.loads(decode(name, line, reading.encoding))
    except json.JSONDecodeError as error:
        raise BrokenDocument(name, f"is not JSON ({error.msg} at {error.pos})") from None
    return text_of_row(name, row, reading.field)


def text_of_row(name: str, row: Any, field: str) -> str:
    """The text in a row of JSON or of a dataset."""
    text = row.get(field) if isinstance(row, dict) else None
    if not isinstance(text, str):
        known = f", only {', '.join(map(str, row))}" if isinstance(row, dict) and row else ""
        raise BrokenDocument(name, f"has no text under {field!r}{known}", "name another --field")
    try:
        text.encode()
    except UnicodeEncodeError:  # JSON can spell half of a surrogate pair
        raise BrokenDocument(name, "has half of a surrogate pair, which is no character") from None
    return text


def _unreadable(name: str, error: Exception) -> BrokenDocument:
    if isinstance(error, EOFError):
        return BrokenDocument(name, "is cut off: its compressed text ends too early")
    if isinstance(error, gzip.BadGzipFile | zlib.error):
        return BrokenDocument(name, "is not whole gzip")
    return BrokenDocument(name, f"cannot be read ({str(getattr(error, 'strerror', None) or error).lower()})")


def _raise(error: Exception) -> str:
    raise error
