"""`mapformers confirm`: keep recorded runs after a change to the sources that changes nothing they compute."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from mapformers.cli.parse import parse
from mapformers.errors import require
from mapformers.launch.confirm import confirm
from mapformers.recipes import RECIPES
from mapformers.recipes.record import read_record, results_file
from mapformers.runs.config import Scale
from mapformers.stages import doing

DESCRIPTION = """Compare old and new sources for recorded runs whose sources have changed since they were measured.

  mapformers confirm table2 --jobs 2
  mapformers confirm all

A run of a few steps is made with the sources of the commit that was measured and with those of now, both on this
machine. If it ends with the same weights, to the last bit, and the same figures on every split, the recorded run counts
as measured with the sources as they are now. Of runs that differ in the seed or the learning rate alone, one is
compared for all. The exit code is 1 if a run is not confirmed.
"""


@dataclass(frozen=True)
class Arguments:
    recipe: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RECIPE")]
    """A name from `mapformers list recipes`, or all that have a record."""
    scale: Scale = "cpu"
    """Scale of the runs."""
    jobs: int = 1
    """Runs at a time."""
    results: Path = Path("results")
    """Where RECIPE.json is kept."""


def main(args: Sequence[str]) -> int:
    asked = parse(Arguments, args, "mapformers confirm", DESCRIPTION)
    require(asked.jobs >= 1, f"--jobs must be at least 1, not {asked.jobs}.")
    names = list(RECIPES) if asked.recipe == "all" else [RECIPES[asked.recipe].name]
    files = {name: results_file(asked.results, name, asked.scale) for name in names}
    there = {name: file for name, file in files.items() if file.exists()}
    require(bool(there), f"{asked.results} has no record to confirm; run `mapformers reproduce {names[0]}` first.")
    compared, agreed = 0, 0
    for name, file in there.items():
        with doing(f"confirming {name}"):
            for confirmation in confirm(file, read_record(file), asked.jobs):
                print(f"{name}: {confirmation}", flush=True)
                compared, agreed = compared + 1, agreed + confirmation.holds
    print(f"{agreed} of {compared} runs whose sources have changed are confirmed.")
    return 0 if agreed == compared else 1
