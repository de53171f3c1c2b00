"""Layers, tasks and recipes of one's own: a file or a module whose import registers them."""

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from mapformers.errors import UserError, require

VARIABLE = "MAPFORMERS_IMPORT"  # inherited by worker processes, which must know the same names


def import_plugins(names: Sequence[str]) -> None:
    """Import files (``mine.py``) and modules (``package.mine``); what they register is then known by name."""
    for name in names:
        _import(name)
    given = [str(Path(name).resolve()) if name.endswith(".py") else name for name in names]
    before = [name for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]
    if given:
        os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys([*before, *given]))


def import_inherited_plugins() -> None:
    """Import what the process that started this one was told to import."""
    for name in os.environ.get(VARIABLE, "").split(os.pathsep):
        if name:
            _import(name)


def _import(name: str) -> None:
    try:
        if name.endswith(".py"):
            _import_file(Path(name).resolve())
        else:
            importlib.import_module(name)
    except UserError as error:
        raise UserError(f"{name} cannot be imported: {error}") from None
    except ImportError as error:
        raise UserError(f"{name} cannot be imported: {error}; give a Python file or an installed module.") from None
    except SyntaxError as error:
        raise UserError(f"{name} cannot be imported: {error.msg} in line {error.lineno}.") from None


def _import_file(path: Path) -> None:
    require(path.is_file(), f"There is no file {path}; name an existing Python file.")
    if path.stem in sys.modules:
        own = Path(getattr(sys.modules[path.stem], "__file__", None) or "").resolve()
        require(own == path, f"A module named {path.stem!r} is already loaded; rename {path.name}.")
        return
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
