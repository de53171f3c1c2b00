"""Which source files a run's metrics depend on, and a hash of what they do.

The files are found without running them: from the layers and the task of a run, the decoder, the training step and
`evaluate`, along their imports, within the folders that metrics depend on.
"""

import ast
import hashlib
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from mapformers.registry import LAYERS, TASKS
from mapformers.runs.config import RunConfig
from mapformers.runs.source_text import fingerprint

PACKAGE = Path(__file__).resolve().parents[1]
FOLDERS = ("lie", "ops", "modules", "layers", "tasks", "training", "evaluation", "lm")
FILES = ("model.py", "modes.py", "seeding.py")
ROOTS = ("model", "training.loop", "training.optimizer", "training.zero_mean", "evaluation.evaluate")
LIBRARY_FOLDERS = ("lie", "ops", "modules", "layers")  # what a benchmark of speed or memory depends on


def sources_of(config: RunConfig | Mapping[str, Any]) -> list[Path]:
    """The files that the metrics of a run depend on, given its config or what ``config.to_dict()`` gave."""
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
    files = [path for folder in LIBRARY_FOLDERS for path in (PACKAGE / folder).rglob("*.py")]
    return _hash_of(tuple(sorted([PACKAGE / "model.py", *files])))


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
        whole.update(f"{name}\n{_fingerprint(path)}\n".encode())
    return whole.hexdigest()[:16]


_fingerprint = cache(fingerprint)  # most files decide the runs of many layers


def _closure(begin: Iterable[Path]) -> set[Path]:
    """The files that are given, and all that they import from the folders that metrics depend on."""
    found: set[Path] = set()
    waiting = list(begin)
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += [other for other in imports_of(path) if _decides(other)]
    return found


def _decides(path: Path) -> bool:
    first = path.relative_to(PACKAGE).parts[0]
    return first in FOLDERS or first in FILES


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
