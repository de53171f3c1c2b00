"""One small registry: what is registered is listed, built, tested and benchmarked automatically.

The entries of the library are files, one each, whose first line is a name in backquotes and a summary. A registry
reads those lines, so that names and summaries are known without importing anything, and imports a file when its entry
is asked for. Entries of other packages are entry points of the group
`mapformers.<folder>`, such as `mapformers.layers`, named as they register.
"""

import re
import sys
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from mapformers.errors import UserError, require, unknown

Entry = TypeVar("Entry")
FIRST_LINE = re.compile(r'"""`([\w-]+)`: (.+?)(?:""")?$')


class Listing(NamedTuple):
    """An entry that can be listed before it is imported."""

    module: str
    summary: str


class Registry(Generic[Entry]):
    """Named entries of one kind (``"model"``, ``"task"``, ``"recipe"``): those of its folders, then those of plug-ins.

    The first folder gives the entry points of plug-ins their name.
    """

    def __init__(self, kind: str, *folders: str):
        self.kind, self.folders = kind, folders
        self._entries: dict[str, Entry] = {}

    def add(self, name: str, entry: Entry) -> None:
        listed = self._listed.get(name)
        taken = name in self._entries or (listed is not None and listed.module not in sys.modules)
        require(not taken, f"There is already a {self.kind} named {name!r}; register yours under another name.")
        self._entries[name] = entry

    def __getitem__(self, name: str) -> Entry:
        if name not in self._entries and name in self._listed:
            import_module(self._listed[name].module)
        if name not in self._entries and name in self._listed:
            raise UserError(f"The module {self._listed[name].module} does not register the {self.kind} {name!r}.")
        if name not in self._entries:
            raise unknown(self.kind, name, self.names(), "if it is your own, import its file first (--import FILE)")
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._listed

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def names(self) -> list[str]:
        """Every name, in alphabetical order; imports nothing."""
        return sorted({*self._listed, *self._entries})

    def is_own(self, name: str) -> bool:
        """Whether an entry is a file of the library, and not of a plug-in."""
        homes = tuple(f"mapformers.{folder}." for folder in self.folders)
        return name in self._listed and self._listed[name].module.startswith(homes)

    def summary(self, name: str) -> str:
        """What a name stands for, in one line."""
        if name in self._listed:
            return self._listed[name].summary
        return str(getattr(self[name], "summary", ""))

    @cached_property
    def _listed(self) -> dict[str, Listing]:
        return self._plugins() | self._files()

    def _files(self) -> dict[str, Listing]:
        """The files and packages of the folders that open with a name."""
        listed = {}
        for folder in self.folders:
            there = Path(__file__).parent / folder
            for path in [*there.glob("*.py"), *there.glob("*/__init__.py")]:
                with path.open(encoding="utf-8") as file:
                    found = FIRST_LINE.match(file.readline().rstrip())
                if found:
                    stem = path.parent.name if path.name == "__init__.py" else path.stem
                    listed[found[1]] = Listing(f"mapformers.{folder}.{stem}", found[2])
        return listed

    def _plugins(self) -> dict[str, Listing]:
        points = metadata.entry_points(group=f"mapformers.{self.folders[0]}")
        return {point.name: Listing(point.module, f"of the plug-in {point.module}") for point in points}


LAYERS: Registry[Any] = Registry("model", "layers")
TASKS: Registry[Any] = Registry("task", "tasks", "lm")
RECIPES: Registry[Any] = Registry("recipe", "recipes")


def list_models() -> list[str]:
    """Names that `mf.build_model` knows."""
    return LAYERS.names()


def list_tasks() -> list[str]:
    """Names that `mf.build_task` knows."""
    return TASKS.names()


def list_recipes() -> list[str]:
    """Tables and figures that can be run by name."""
    return RECIPES.names()
