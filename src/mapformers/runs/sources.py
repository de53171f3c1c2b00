"""Which files decide a run's figures, and a hash of what they do.

The files are found without running them: from the layers and the task of a run, the decoder, the training step and
`evaluate`, along their imports, within the rooms where figures are made.
"""

import ast
import hashlib
import io
import json
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from mapformers.registry import LAYERS, TASKS
from mapformers.runs.config import RunConfig

IGNORED = {tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER}
F_STRING_START, F_STRING_END = (getattr(tokenize, f"FSTRING_{end}", -1) for end in ("START", "END"))  # from 3.12


def fingerprint(path: Path) -> str:
    """A hash of one file: of the tokens of Python, of the data of JSON."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        content = json.dumps(json.loads(text), sort_keys=True)
    else:
        content = "\n".join(" ".join(line) for line in meaningful_lines(text))
    return hashlib.sha256(content.encode()).hexdigest()


def meaningful_lines(text: str) -> Iterator[list[str]]:
    """The logical lines of Python as words; a line that is nothing but a string, such as a docstring, is left out.

    An f-string is one word in every version of Python, as it was before 3.12.
    """
    line: list[str] = []
    only_strings = True
    for kind, word in _words(text):
        if kind == tokenize.NEWLINE:
            if line and not only_strings:
                yield line
            line, only_strings = [], True
        elif kind in (tokenize.INDENT, tokenize.DEDENT):
            yield ["indent" if kind == tokenize.INDENT else "dedent"]
        else:
            line.append(word)
            only_strings = only_strings and kind == tokenize.STRING


def _words(text: str) -> Iterator[tuple[int, str]]:
    lines = text.splitlines(keepends=True)
    depth, began = 0, (0, 0)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == F_STRING_START:
            began = began if depth else token.start
            depth += 1
        elif token.type == F_STRING_END:
            depth -= 1
            if depth == 0:
                yield tokenize.STRING, _between(lines, began, token.end)
        elif depth == 0 and token.type not in IGNORED:
            yield token.type, token.string


def _between(lines: Sequence[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    if start[0] == end[0]:
        return lines[start[0] - 1][start[1] : end[1]]
    middle = lines[start[0] : end[0] - 1]
    return "".join([lines[start[0] - 1][start[1] :], *middle, lines[end[0] - 1][: end[1]]])


PACKAGE = Path(__file__).resolve().parents[1]
ROOMS = ("lie", "ops", "modules", "layers", "tasks", "training", "evaluation")
FILES = ("model.py", "model_config.py", "seeding.py")
ROOTS = ("model", "training.loop", "training.optimizer", "training.zero_mean", "evaluation.evaluate")
LIBRARY_ROOMS = ("lie", "ops", "modules", "layers")  # what a benchmark of speed or memory depends on


def sources_of(config: RunConfig | Mapping[str, Any]) -> list[Path]:
    """The files that decide the figures of a run, given its config or what ``config.to_dict()`` gave."""
    plain = config.to_dict() if isinstance(config, RunConfig) else config
    task = plain["task"]
    layers = tuple(dict.fromkeys(layer["name"] for layer in plain["model"].get("layers", ())))
    words = tuple(sorted(value for value in task["settings"].values() if isinstance(value, str)))
    return list(_files_of(task["name"], layers, words))


def sources_hash(config: RunConfig | Mapping[str, Any]) -> str:
    """A hash of what those files do, without comments, documentation and blank lines."""
    return _hash_of(tuple(sources_of(config)))


def library_hash() -> str:
    """The same of every layer and all it is built from."""
    files = [*PACKAGE.glob("model*.py"), *(path for room in LIBRARY_ROOMS for path in (PACKAGE / room).rglob("*.py"))]
    return _hash_of(tuple(sorted(files)))


@cache
def _files_of(task: str, layers: tuple[str, ...], words: tuple[str, ...]) -> tuple[Path, ...]:
    begin = [PACKAGE.joinpath(*root.split(".")).with_suffix(".py") for root in ROOTS]
    begin += [_file_of(entry.__module__) for entry in (TASKS[task].build, *(LAYERS[name].layer for name in layers))]
    data = [path for word in words for path in (PACKAGE / "tasks").rglob("*.json") if path.stem == word]
    return tuple(sorted({*_closure(begin), *data}))


@cache
def _hash_of(files: tuple[Path, ...]) -> str:
    """Kept for the life of the process: what was imported does not change either."""
    whole = hashlib.sha256()
    for path in files:
        inside = path.is_relative_to(PACKAGE)
        name = path.relative_to(PACKAGE).as_posix() if inside else path.name
        whole.update(f"{name}\n{fingerprint(path)}\n".encode())
    return whole.hexdigest()[:16]


def _closure(begin: Iterable[Path]) -> set[Path]:
    """The files that are given, and all that they import from the rooms where figures are made."""
    found: set[Path] = set()
    waiting = list(begin)
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += [other for other in imports_of(path) if _decides(other)]
    return found


def _decides(path: Path) -> bool:
    room = path.relative_to(PACKAGE).parts[0]
    return room in ROOMS or room in FILES


@cache
def imports_of(path: Path) -> tuple[Path, ...]:
    """The files of this package that a file imports, wherever in it the import stands."""
    found: dict[Path, None] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [(node.module, alias.name) for alias in node.names]
        else:
            continue
        for module, name in names:
            home = _home(module, name)
            if home is not None:
                found[home] = None
    return tuple(found)


def _home(module: str, name: str) -> Path | None:
    """The file in which a name is defined: of a package that hands names on, the file it has them from."""
    place = _find(module)
    if place is None or not name:
        return place
    below = _find(f"{module}.{name}")
    if below is not None or place.name != "__init__.py":
        return below or place
    for node in ast.parse(place.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module and any(alias.name == name for alias in node.names):
            return _home(node.module, name)
    return place


def _find(module: str) -> Path | None:
    root, *parts = module.split(".")
    if root != "mapformers":
        return None
    path = PACKAGE.joinpath(*parts)
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


def _file_of(module: str) -> Path:
    """Where a module that is loaded comes from, which may be a plug-in."""
    return Path(str(sys.modules[module].__file__)).resolve()
