"""One small registry: what is registered is listed, built, tested and benchmarked by itself."""

from collections.abc import Iterator
from typing import Generic, TypeVar

from mapformers.errors import unknown

Entry = TypeVar("Entry")


class Registry(Generic[Entry]):
    """Named entries of one kind (``"model"``, ``"task"``, ``"recipe"``), in order of registration."""

    def __init__(self, kind: str):
        self.kind = kind
        self._entries: dict[str, Entry] = {}

    def add(self, name: str, entry: Entry) -> None:
        if name in self._entries:
            raise RuntimeError(f"two {self.kind}s are registered as {name!r}")
        self._entries[name] = entry

    def __getitem__(self, name: str) -> Entry:
        if name not in self._entries:
            raise unknown(self.kind, name, self._entries)
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def names(self) -> list[str]:
        return list(self._entries)
