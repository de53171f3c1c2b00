"""Where text comes from: a file, a folder, the Python code of this machine, a dataset of the Hugging Face hub."""

import hashlib
import importlib.util
import itertools
import os
import platform
import site
import sysconfig
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from mapformers.errors import UserError, require
from mapformers.files import sha256
from mapformers.lm.documents import JSON, JSON_LINES, Document, ReadOptions, content_suffix, documents_in, first_row
from mapformers.stages import doing

PROSE = (".txt", ".text", ".md", ".rst", ".tex", ".org", ".gz", *JSON_LINES)
CODE = (
    ".py", ".pyi", ".c", ".h", ".cc", ".cpp", ".hpp", ".cu", ".java", ".kt", ".scala", ".js", ".ts", ".tsx", ".rs",
    ".go", ".rb", ".php", ".swift", ".lua", ".jl", ".r", ".hs", ".ml", ".sh", ".sql", ".lean", ".v",
)  # fmt: skip
SUFFIXES = (*PROSE, *CODE)
KINDS_SHOWN = 6  # of files that are passed over
# Tests, packages beside the library, and tables of encodings, which are a hundred copies of one file.
NOT_THE_LIBRARY = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__phello__", "encodings"}


class Source(Protocol):
    """Documents in an order that never changes."""

    @property
    def name(self) -> str:
        """What it is, without the path of any machine."""

    @property
    def countable(self) -> bool:
        """Whether all its documents can well be read twice, unlike those that come over a network."""

    @property
    def passed_over(self) -> Mapping[str, int]:
        """How many files are there that are not taken for text, by their suffix."""

    def documents(self, start: int = 0) -> Iterator[Document]:
        """All documents from number ``start`` on."""

    def fingerprint(self) -> str:
        """A hash that changes if the source does, as far as can be told here."""


@dataclass(frozen=True)
class FileSource:
    """Files by name, read in the order of their names."""

    name: str
    files: Sequence[tuple[str, Path]]
    reading: ReadOptions
    passed_over: Mapping[str, int] = field(default_factory=dict)
    countable: bool = True

    def documents(self, start: int = 0) -> Iterator[Document]:
        found = (doc for name, path in self.files for doc in documents_in(name, path, self.reading))
        return itertools.islice(found, start, None)

    def fingerprint(self) -> str:
        """Of what the files hold: one letter may have changed. To read them takes little of the time to encode them."""
        whole = hashlib.sha256(repr(self.reading).encode())
        with doing(f"reading {self.name}", len(self.files)) as stage:
            for name, path in self.files:
                whole.update(f"{name}\0{_checksum(path)}\n".encode(errors="surrogateescape"))
                stage.advance()
        return whole.hexdigest()


def _checksum(path: Path) -> str:
    try:
        return sha256(path)
    except OSError:
        return "unreadable"  # which is said when its turn comes


def find_source(text: str, reading: ReadOptions | None = None, suffixes: Sequence[str] = ()) -> Source:
    """The source that a word on the command line stands for.

    ``hf:NAME[@CONFIG][:SPLIT]``  a dataset of the hub, streamed.
    ``python:``                   Python's standard library; ``python:all`` with all that is installed beside it;
                                  ``python:NAME`` one installed package.
    anything else                 the path of a file or of a folder.
    """
    reading = reading or ReadOptions()
    require(bool(text.strip()), "A SOURCE is empty; give a path (. for the folder you are in), python: or hf:NAME.")
    if text.startswith("hf:"):
        from mapformers.lm.hub import HubSource  # `datasets` is imported for those alone who ask for it

        return HubSource.named(text.removeprefix("hf:"), reading.field)
    if text.startswith("python:"):
        return _python(text.removeprefix("python:"), reading)
    path = Path(text)
    require(path.exists(), f"There is no file or folder {text}; give a path, python: or hf:NAME.")
    if path.is_dir():
        return _folder(path, reading, suffixes)
    require(path.is_file(), f"{text} is no regular file; write its text into one, as it is read more than once.")
    require(path.stat().st_size > 0, f"{text} is empty; give one with text in it.")
    lines = content_suffix(path) != JSON or first_row(path, reading) is not None
    remedy = "write each document as an object on one line, or rename the file to .txt to read it as plain text"
    require(lines, f"{text} is not JSON lines; {remedy}.")
    return FileSource(path.name, [(path.name, path)], reading)


def _folder(path: Path, reading: ReadOptions, suffixes: Sequence[str]) -> FileSource:
    wanted = {suffix.lower() if suffix.startswith(".") else f".{suffix.lower()}" for suffix in suffixes}
    everything = list(_walk(path))
    files = [(name, file) for name, file in everything if _is_text(file, reading, wanted)]
    known = " ".join(suffixes) if suffixes else ".txt, .md, .jsonl, .gz or source code"
    require(
        bool(files),
        f"{path} holds no text: none of its {len(everything)} files is {known}; name other --suffixes or a folder.",
    )
    taken = {name for name, _ in files}
    others = Counter(content_suffix(file) or "no suffix" for name, file in everything if name not in taken)
    return FileSource(path.resolve().name, files, reading, dict(others.most_common()))


def _is_text(path: Path, reading: ReadOptions, wanted: Collection[str]) -> bool:
    """Whether a file of a folder is taken: by the suffixes that are wanted, or by those that are known."""
    suffix = content_suffix(path)
    if wanted:
        return suffix in wanted or path.suffix.lower() in wanted
    return suffix in SUFFIXES or reading.field in (first_row(path, reading) or ())


def _walk(root: Path, without: frozenset[str] = frozenset()) -> Iterator[tuple[str, Path]]:
    """Every file below a folder by its name there, in one order on every machine; hidden ones are left out.

    Links to folders are followed, each folder once. A link that leads nowhere counts as a file, which cannot be read.
    """
    found = []
    seen: set[Path] = set()
    for folder, folders, names in os.walk(root, onerror=_refuse_folder, followlinks=True):
        real = Path(folder).resolve()
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in without)
        found += [Path(folder) / name for name in names if not name.startswith(".")]
    named = ((path.relative_to(root).as_posix(), path) for path in found if path.is_file() or not path.exists())
    return iter(sorted(named))


def _refuse_folder(error: OSError) -> None:
    why = (error.strerror or str(error)).lower()
    raise UserError(f"Cannot read the folder {error.filename}: {why}; make it readable, or move it out of the source.")


def _python(which: str, reading: ReadOptions) -> FileSource:
    """Python source: of the standard library without its tests and encodings, of a package, or of all packages."""
    library = Path(sysconfig.get_paths()["stdlib"])
    version = f"Python {platform.python_version()}"
    if which in ("", "all"):
        roots = [(library, frozenset(NOT_THE_LIBRARY))]
        if which == "all":
            roots += [(Path(folder), frozenset[str]()) for folder in site.getsitepackages() if Path(folder).is_dir()]
        files = [found for root, without in roots for found in _walk(root, without)]
        name = f"{version}, standard library" + (" and all packages" if which else "")
    else:
        files, name = list(_package(which)), f"{version}, package {which}"
    files = [(name, path) for name, path in files if path.suffix == ".py" and path.exists()]  # no dead links
    require(bool(files), f"No Python source is installed for python:{which}.")
    return FileSource(name, files, reading)


def _package(name: str) -> Iterator[tuple[str, Path]]:
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    if spec is None:
        raise UserError(f"There is no installed package {name!r}; leave the name out for the standard library.")
    for folder in spec.submodule_search_locations or ():
        yield from ((f"{name}/{inner}", path) for inner, path in _walk(Path(folder)))
    if not spec.submodule_search_locations and spec.origin:
        yield Path(spec.origin).name, Path(spec.origin)


def passed_over_text(source: Source) -> str:
    """``books: 3 files are not taken for text (2 .png, 1 .tar); name --suffixes to take others.``"""
    total = sum(source.passed_over.values())
    kinds = [f"{count:,} {suffix}" for suffix, count in source.passed_over.items()]
    shown = ", ".join(kinds[:KINDS_SHOWN]) + (", …" if len(kinds) > KINDS_SHOWN else "")
    files = "1 file is" if total == 1 else f"{total:,} files are"
    return f"{source.name}: {files} not taken for text ({shown}); name --suffixes to take others."


def describe(source: Source) -> dict[str, Any]:
    """What the manifest keeps of a source."""
    return {"name": source.name, "fingerprint": source.fingerprint(), "passed_over": dict(source.passed_over)}
