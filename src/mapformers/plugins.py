"""Layers, tasks and recipes of one's own: a file or a module whose import registers them."""

import hashlib
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from mapformers.errors import UserError, require

VARIABLE = "MAPFORMERS_IMPORT"  # a JSON list, inherited by worker processes, which must know the same names


def import_plugins(names: Sequence[str]) -> None:
    """Import files (``mine.py``) and modules (``package.mine``); what they register is then known by name."""
    require(not isinstance(names, str), f"Give a list of files or modules: [{names!r}].")
    for name in names:
        _import(name)
    given = [str(Path(name).resolve()) if name.endswith(".py") else name for name in names]
    if given:
        os.environ[VARIABLE] = json.dumps(list(dict.fromkeys([*_inherited(), *given])))


def import_inherited_plugins() -> None:
    """Import what the process that started this one was told to import."""
    for name in _inherited():
        _import(name)


def _inherited() -> list[str]:
    names: list[str] = json.loads(os.environ.get(VARIABLE) or "[]")
    return names


def _import(name: str) -> None:
    try:
        if name.endswith(".py"):
            _import_file(Path(name).resolve())
        else:
            importlib.import_module(name)
    except UserError as error:
        raise UserError(f"{name} cannot be imported: {error}") from None
    except SyntaxError as error:
        raise UserError(f"{name} cannot be imported: {error.msg} in line {error.lineno}.") from None
    except Exception as error:  # whatever a user's file may do
        kind = "" if isinstance(error, ImportError) else f"{type(error).__name__}: "
        raise UserError(f"{name} cannot be imported: {kind}{error}.") from error


def _import_file(path: Path) -> None:
    """Under a name of its own, so that a file may be called like a package it imports."""
    require(path.is_file(), f"There is no file {path}; name an existing Python file.")
    name = f"mapformers_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
