"""`mapformers reproduce`: run the cells of a table of the paper, or of one's own."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from mapformers.benchmarks.report import REPORTS
from mapformers.cli.parse import parse
from mapformers.cli.rows import parse_row, parse_seeds, parse_words
from mapformers.errors import UserError, require
from mapformers.files import clear_file_errors
from mapformers.launch.cluster import Cluster
from mapformers.launch.plan import Plan, make_plan, plan_table
from mapformers.launch.reproduce import Where, run_plans
from mapformers.recipes import RECIPES, Recipe
from mapformers.recipes.pages import recipe_tables
from mapformers.recipes.record import read_record, results_file, with_added_rows
from mapformers.runs.config import Scale

DESCRIPTION = """Train and measure the rows of a table, several seeds each. Runs that are done are not repeated.

  mapformers reproduce table2 --seeds 3 --rows "RoPE (1L)" "MapWM-r2" --jobs 2
  mapformers reproduce table2 --row "MapWM-r3=mapwm rank=3 lr=1e-3" --rows "MapWM-r2"
  mapformers reproduce all --dry-run
  mapformers reproduce table2 --cluster slurm --slurm partition=main time=04:00:00 cpus_per_task=2

After a stop or a kill, the same command continues exactly where it was.
"""


@dataclass(frozen=True)
class Arguments:
    recipe: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RECIPE")]
    """A name from `mapformers list recipes`, or all (except those that only choose settings)."""
    scale: Scale = "cpu"
    """Budget of each run."""
    seeds: tuple[str, ...] = ()
    """How many (3 is seeds 0 to 2), or which: 100-102, or 0,4,100. Unless given, seed 0, or those the recipe names."""
    rows: tuple[str, ...] = ()
    """Rows by their label in the table, or single lines of one that is swept, "MapWM, lr=0.001" (all unless given)."""
    row: Annotated[tuple[str, ...], tyro.conf.arg(metavar="'LABEL=MODEL [SETTING=VALUE ...]'")] = ()
    """Rows of your own; a hybrid's layers are joined by +, as in both=mapem+mapwm:rank=4 d_model=32."""
    worlds: tuple[str, ...] = ()
    """Worlds by name (all unless given)."""
    jobs: int | None = None
    """Runs at a time (1 unless given; as many as Slurm likes); the cores are shared out between them."""
    cluster: Cluster | None = None
    """Send the runs as jobs: of Slurm, or of submitit on this machine."""
    slurm: Annotated[tuple[str, ...], tyro.conf.arg(metavar="OPTION=VALUE")] = ()
    """Options for sbatch: partition=gpu time=04:00:00 mem=8G cpus_per_task=2 …"""
    keep_old: bool = False
    """Keep finished runs, and continue the others, even if the sources that decide them have changed since."""
    dry_run: bool = False
    """Only print what would run, and how long it should take."""
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
    require(asked.jobs is None or asked.jobs >= 1, f"--jobs must be at least 1, not {asked.jobs}.")
    plans = plans_of(asked)
    where = Where(asked.runs, asked.jobs, asked.cluster, parse_words(asked.slurm, "--slurm"))
    if asked.dry_run:
        for plan in plans:
            for sentence in plan.sentences():
                print(sentence)
        Console().print(plan_table(plans))
        return 0
    for folder in (asked.results, asked.runs):  # refuse before anything is made
        require(
            folder.is_dir() or not folder.exists(), f"Cannot write to {folder}: it is a file; choose another folder."
        )
    for folder in (asked.results, asked.runs):
        with clear_file_errors("write to", folder):
            folder.mkdir(parents=True, exist_ok=True)
    for record in run_plans(plans, where, asked.keep_old, Console(stderr=True)):
        recipe = with_added_rows(RECIPES[record["recipe"]], record["runs"])
        for table in recipe_tables(recipe, record):
            Console().print(table)
    return 0


def plans_of(asked: Arguments) -> list[Plan]:
    """What is to do, of one recipe or of all; every cell can be composed, or the command is refused."""
    seeds = parse_seeds(asked.seeds) if asked.seeds else None
    given = [parse_row(text) for text in asked.row]
    if asked.recipe == "all":
        named = bool(asked.rows or given or asked.worlds)
        require(not named, "--rows, --row and --worlds are those of one recipe; name it instead of all.")
    plans = []
    names = [name for name in RECIPES if not RECIPES[name].chooses] if asked.recipe == "all" else [asked.recipe]
    for name in names:
        own = RECIPES[name]
        if asked.recipe == "all" and (why := not_ready(own)):
            print(f"{name} is left out: {why}", file=sys.stderr)
            continue
        file = results_file(asked.results, own.name, asked.scale)
        recipe = own.with_rows(*given)
        if file.exists():
            recipe = with_added_rows(recipe, read_record(file)["runs"])  # rows of earlier commands have names too
        rows = rows_of(recipe, asked.rows, [row.label for row in given])
        cells = list(recipe.cells(rows, seeds, asked.worlds or None))
        for cell in cells:
            cell.config(asked.scale)
        plans.append(make_plan(recipe, asked.scale, file, cells, asked.keep_old))
    return plans


def not_ready(recipe: Recipe) -> str:
    """Why a recipe cannot be run here, such as data that are not prepared; empty if it can."""
    try:
        recipe.require_ready()
    except UserError as error:
        return str(error)
    return ""


def rows_of(recipe: Recipe, labels: Sequence[str], given: Sequence[str]) -> list[str]:
    """The rows that are named, or else all of the recipe's own; and those given with --row."""
    return [*(labels or [row.label for row in recipe.rows if not row.added]), *given]
