"""`mapformers reproduce` and `mapformers report`: run a table of the paper, and print it beside ours."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console

from mapformers.cli.parse import parse
from mapformers.errors import require
from mapformers.recipes import RECIPES
from mapformers.recipes.report import terminal_table, write_documents
from mapformers.recipes.reproduce import reproduce
from mapformers.training.files import clear_file_errors, read_json

DESCRIPTION = """Train and measure the rows of a table, several seeds each. Runs that are done are not repeated.

  mapformers reproduce table2 --seeds 3 --rows "RoPE (1L)" "MapWM-r2"
"""


@dataclass(frozen=True)
class Arguments:
    recipe: tyro.conf.Positional[str]
    """A name from `mapformers list recipes`."""
    scale: Literal["smoke", "cpu", "paper"] = "cpu"
    """Budget of each run."""
    seeds: int = 1
    """Seeds 0 to N-1."""
    rows: tuple[str, ...] = ()
    """Rows by their label in the table (all unless given)."""
    jobs: int = 1
    """Runs at a time; the cores are shared out between them."""
    runs: Path = Path("runs")
    """Where run folders go."""
    results: Path = Path("results")
    """Where RECIPE.json is kept."""


def main(args: Sequence[str]) -> int:
    asked = parse(Arguments, args, "mapformers reproduce", DESCRIPTION)
    recipe = RECIPES[asked.recipe]
    require(asked.seeds >= 1, f"--seeds must be at least 1, not {asked.seeds}.")
    require(asked.jobs >= 1, f"--jobs must be at least 1, not {asked.jobs}.")
    rows = [recipe.row(label) for label in asked.rows] or list(recipe.rows)
    with clear_file_errors("write to", asked.results):
        asked.results.mkdir(parents=True, exist_ok=True)
    file = asked.results / f"{recipe.name}{'' if asked.scale == 'cpu' else '-' + asked.scale}.json"
    record = reproduce(
        recipe, scale=asked.scale, seeds=asked.seeds, rows=rows, jobs=asked.jobs, runs=asked.runs, results=file,
        console=Console(stderr=True),
    )  # fmt: skip
    for world in recipe.worlds:
        Console().print(terminal_table(recipe, record, world))
    return 0


@dataclass(frozen=True)
class ReportArguments:
    recipe: tyro.conf.Positional[str | None] = None
    """A name from `mapformers list recipes` (all that have results unless given)."""
    results: Path = Path("results")
    """Where RECIPE.json is kept."""
    write: bool = False
    """Also refresh README.md and docs/results.md of this checkout."""


def report_main(args: Sequence[str]) -> int:
    asked = parse(ReportArguments, args, "mapformers report", "Print a table of the paper beside what was measured.")
    names = [asked.recipe] if asked.recipe else [name for name in RECIPES if (asked.results / f"{name}.json").exists()]
    for name in names:
        recipe = RECIPES[name]
        record = read_json(asked.results / f"{name}.json")
        for world in recipe.worlds:
            Console().print(terminal_table(recipe, record, world))
    if asked.write:
        for path in write_documents(asked.results.parent):
            print(f"wrote {path}")
    return 0
