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
JSON = ".json"  # JSON lines too, if its first line is an object
PYTHON = (".py", ".pyi")
UNREADABLE = (OSError, EOFError, zlib.error, UnicodeError)  # what reading a file can end in


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
    ``part``   what of its text is meant: all of it, unless the document is cut.
    """

    name: str
    read: Callable[[], str]
    split: str | None = None
    part: Callable[[str], str] = str


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
    if content_suffix(path) in JSON_LINES or first_row(path, reading) is not None:
        yield from _lines_of(name, path, reading)
    else:
        yield Document(name, partial(_read_text, name, path, reading))


def content_suffix(path: Path) -> str:
    """The suffix of what a file holds: ``.txt`` of ``book.txt.gz``; ``.gz`` of a ``.gz`` that says no more."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    inner = suffixes[-2] if suffixes[-1:] == [".gz"] and len(suffixes) > 1 else ""
    is_suffix = inner[1:2].isalpha() and inner[1:].isalnum() and len(inner) <= 9  # not a number, or part of a name
    return inner if is_suffix else suffixes[-1] if suffixes else ""


def first_row(path: Path, reading: ReadOptions) -> dict[str, Any] | None:
    """The object in the first line of a .json file that holds JSON lines; None of any other file."""
    if content_suffix(path) != JSON:
        return None
    try:
        with _open(path) as file:
            line = next((line for line in _lines(file, reading.encoding) if line.strip()), "")
        row = json.loads(line)
    except (*UNREADABLE, ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if path.suffix.lower() == ".gz" else path.open("rb")


def _read_text(name: str, path: Path, reading: ReadOptions) -> str:
    try:
        with _open(path) as file:
            raw = file.read()
    except UNREADABLE as error:
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
            for number, line in enumerate(_lines(file, reading.encoding), 1):
                if line.strip():
                    here = f"{name}, line {number},"
                    yield Document(here, partial(_text_of_line, here, line, reading))
    except UNREADABLE as error:  # the lines before it are documents all the same
        yield Document(name, partial(_raise, _unreadable(name, error)))


def _lines(file: BinaryIO, encoding: str) -> Iterator[bytes | str]:
    """Lines as bytes, so that one that is no text breaks no other; as text where a line break is not one byte."""
    if len("\n".encode(encoding)) == 1:
        yield from file
    else:
        with io.TextIOWrapper(file, encoding) as text:
            yield from text


def _text_of_line(name: str, line: bytes | str, reading: ReadOptions) -> str:
    text = decode(name, line, reading.encoding) if isinstance(line, bytes) else line
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        raise BrokenDocument(name, f"is not JSON ({error.msg} at {error.pos})") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, or lists in lists in lists
        raise BrokenDocument(name, "is JSON that Python does not read") from None
    return text_of_row(name, row, reading.field)


def text_of_row(name: str, row: Any, field: str) -> str:
    """The text in a row of JSON or of a dataset."""
    text = row.get(field) if isinstance(row, dict) else None
    if text is not None and not isinstance(text, str):
        raise BrokenDocument(name, f"has no text under {field!r}, but {json.dumps(text, default=str)[:20]}")
    if text is None:
        known = f", only {', '.join(map(str, row))}" if isinstance(row, dict) and row else ""
        raise BrokenDocument(name, f"has no text under {field!r}{known}", "name another --field")
    if not is_text(text):  # JSON can spell half of a surrogate pair
        raise BrokenDocument(name, "has half of a surrogate pair, which is no character")
    return text


def is_text(text: str) -> bool:
    """Whether a string can be encoded: not if it has half of a surrogate pair, or bytes that were no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unreadable(name: str, error: Exception) -> BrokenDocument:
    if isinstance(error, EOFError):
        return BrokenDocument(name, "is cut off: its compressed text ends too early")
    if isinstance(error, gzip.BadGzipFile | zlib.error):
        return BrokenDocument(name, "is not whole gzip")
    if isinstance(error, UnicodeError):
        return BrokenDocument(name, "is not text of its encoding", "name its --encoding")
    return BrokenDocument(name, f"cannot be read ({str(getattr(error, 'strerror', None) or error).lower()})")


def _raise(error: Exception) -> str:
    raise error
