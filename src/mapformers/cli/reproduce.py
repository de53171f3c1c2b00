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
from mapformers.recipes.reproduce import read_record, reproduce
from mapformers.training.files import clear_file_errors, write_atomically, write_json

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
    for world in recipe.worlds:
        Console().print(terminal_table(recipe, record, world))
    return 0


def results_file(folder: Path, name: str, scale: str) -> Path:
    """Where a recipe's results are kept: NAME.json, or NAME-SCALE.json for scales other than cpu."""
    return folder / (f"{name}.json" if scale == "cpu" else f"{name}-{scale}.json")


def adopt_demo(demo: Path, root: Path) -> None:
    """Make a demo's figures and picture those that the documents show."""
    write_json(root / "results" / "demo.json", read_record(demo / "demo.json"))
    picture = root / "docs" / "images" / "demo.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(picture, (demo / "map.png").read_bytes())


@dataclass(frozen=True)
class ReportArguments:
    recipe: tyro.conf.Positional[str | None] = None
    """A name from `mapformers list recipes` (all that have results unless given)."""
    scale: Literal["smoke", "cpu", "paper"] = "cpu"
    """Which results."""
    results: Path = Path("results")
    """Where RECIPE.json is kept."""
    write: bool = False
    """Also refresh README.md and docs/results.md of the checkout one is in."""
    demo: Path | None = None
    """With --write: a demo folder whose figures and picture become those of the README."""


def report_main(args: Sequence[str]) -> int:
    asked = parse(ReportArguments, args, "mapformers report", "Print a table of the paper beside what was measured.")
    names = [asked.recipe] if asked.recipe else list(RECIPES)
    measured = [name for name in names if results_file(asked.results, RECIPES[name].name, asked.scale).exists()]
    require(
        bool(measured),
        f"{asked.results} has no results of {' or '.join(names)} at {asked.scale} scale; "
        f"run `mapformers reproduce {names[0]}` first.",
    )
    for name in measured:
        record = read_record(results_file(asked.results, name, asked.scale))
        for world in RECIPES[name].worlds:
            Console().print(terminal_table(RECIPES[name], record, world))
    if asked.write:
        if asked.demo is not None:
            adopt_demo(asked.demo, Path())
        for path in write_documents(Path()):
            print(f"wrote {path}")
    return 0
