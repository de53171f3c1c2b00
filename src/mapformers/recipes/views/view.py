"""What a view is: it turns the record of a recipe into tables, or into figures."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mapformers.evaluation.aggregate import Summary
from mapformers.recipes.recipe import Recipe
from mapformers.reports.table import Table

Draw = Callable[[Path], None]


class View(ABC):
    """Turns the record of a recipe into tables, or into figures: name of the file -> what draws it."""

    def tables(self, recipe: Recipe, record: Mapping[str, Any]) -> list[Table]:
        return []

    def plots(self, recipe: Recipe, record: Mapping[str, Any]) -> dict[str, Draw]:
        return {}

    @property
    @abstractmethod
    def caption(self) -> str:
        """What it shows, after the name of the recipe."""


def spread(figures: Summary, digits: int = 3) -> str:
    """A mean, with its standard deviation where there are several seeds."""
    return f"{figures.mean:.{digits}f}" + (f" ± {figures.std:.{digits}f}" if figures.n > 1 else "")


def figure_text(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def file_name(*parts: str) -> str:
    """``dyck-length-depth.png``: words of any kind as the name of a picture."""
    return re.sub(r"[^\w]+", "-", "-".join(parts)).strip("-") + ".png"
