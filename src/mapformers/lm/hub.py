"""Datasets of the Hugging Face hub, row by row as they arrive: nothing is stored but the shards.

Examples:
    >>> source = HubSource.named("Skylion007/openwebtext", "text")  # doctest: +SKIP
"""

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from mapformers.errors import UserError, require
from mapformers.lm.documents import Document, text_of_row

CONVERTED = "refs/convert/parquet"  # where the hub keeps the rows of datasets that are scripts


@dataclass(frozen=True)
class HubSource:
    """A split of a dataset, streamed with the package `datasets`."""

    dataset: str
    config: str | None
    split: str
    field: str
    countable: bool = False

    @classmethod
    def named(cls, text: str, field: str) -> "HubSource":
        """``NAME``, ``NAME@CONFIG``, ``NAME:SPLIT`` or all three: ``wikitext@wikitext-103-raw-v1:train``."""
        name, _, split = text.partition(":")
        name, _, config = name.partition("@")
        require(bool(name), "Name a dataset of the hub: hf:NAME, hf:NAME@CONFIG or hf:NAME:SPLIT.")
        return cls(name, config or None, split or "train", field)

    @property
    def name(self) -> str:
        config = f"@{self.config}" if self.config else ""
        return f"hf:{self.dataset}{config}:{self.split}"

    @property
    def passed_over(self) -> dict[str, int]:
        return {}

    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self.name} {self.field}".encode()).hexdigest()

    def documents(self, start: int = 0) -> Iterator[Document]:
        rows = iter(self._rows().skip(start))
        number = start
        while True:
            try:
                row = next(rows)
            except StopIteration:
                return
            except Exception as error:  # of whatever kind the network, the hub or a file of the dataset brings
                raise self._unavailable(error) from error
            here = f"{self.name}, row {number},"
            yield Document(here, partial(text_of_row, here, row, self.field))
            number += 1

    def _rows(self) -> Any:
        try:
            import datasets
        except ImportError:
            raise UserError(
                f"{self.name} needs the package `datasets`: pip install 'mapformers[hf]', or give a file or folder."
            ) from None
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it tells of every attempt; we say the last
        load = partial(datasets.load_dataset, self.dataset, self.config, split=self.split, streaming=True)
        try:
            try:
                return load()
            except RuntimeError as error:
                if "scripts are no longer supported" not in str(error):
                    raise
                return load(revision=CONVERTED)
        except Exception as error:  # as above
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> UserError:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")
        return UserError(
            f"{self.name} cannot be read: {first}; check the name and the network, then give the same command again, "
            "which continues where it stopped."
        )
