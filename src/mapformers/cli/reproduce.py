"""`mapformers reproduce`: run the cells of a table of the paper, or of one's own."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from mapformers.benchmarks.report import REPORTS
from mapformers.cli.parse import parse
from mapformers.errors import UserError, require
from mapformers.files import clear_file_errors
from mapformers.launch.reproduce import reproduce
from mapformers.recipes import RECIPES
from mapformers.recipes.pages import recipe_tables
from mapformers.recipes.record import read_record, results_file
from mapformers.runs.config import Scale

DESCRIPTION = """Train and measure the rows of a table, several seeds each. Runs that are done are not repeated.

  mapformers reproduce table2 --seeds 3 --rows "RoPE (1L)" "MapWM-r2"
"""


@dataclass(frozen=True)
class Arguments:
    recipe: tyro.conf.Positional[str]
    """A name from `mapformers list recipes`."""
    scale: Scale = "cpu"
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
    if asked.recipe in REPORTS and asked.recipe not in RECIPES:
        benchmark = REPORTS[asked.recipe].of or asked.recipe
        command = f"mapformers bench {benchmark} --write {asked.results}"
        raise UserError(
            f"{asked.recipe} is timed, not trained: run `{command}`, then `mapformers report {asked.recipe}`."
        )
    recipe = RECIPES[asked.recipe]
    require(asked.seeds >= 1, f"--seeds must be at least 1, not {asked.seeds}.")
    require(asked.jobs >= 1, f"--jobs must be at least 1, not {asked.jobs}.")
    rows = [recipe.row(label) for label in asked.rows] or None
    file = results_file(asked.results, recipe.name, asked.scale)
    if file.exists():
        read_record(file)
    for folder in (asked.results, asked.runs):  # refuse before anything is made
        require(
            folder.is_dir() or not folder.exists(), f"Cannot write to {folder}: it is a file; choose another folder."
        )
    for folder in (asked.results, asked.runs):
        with clear_file_errors("write to", folder):
            folder.mkdir(parents=True, exist_ok=True)
    record = reproduce(
        recipe, scale=asked.scale, seeds=asked.seeds, rows=rows, jobs=asked.jobs, runs=asked.runs, results=file,
        console=Console(stderr=True),
    )  # fmt: skip
    for table in recipe_tables(recipe, record):
        Console().print(table)
    return 0
