"""`mapformers collect`: rebuild the records of recipes from run folders alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from mapformers.cli.parse import parse
from mapformers.errors import require
from mapformers.recipes import collect
from mapformers.recipes.record import results_file, update_record, with_collected

DESCRIPTION = """Rebuild RECIPE.json from the folders of its runs, wherever they were run.

  mapformers collect runs
  mapformers collect from-one-machine from-another --results results

Of two runs of one cell, in folders or in RECIPE.json, that of the sources as they are now is kept. Runs of other cells
that RECIPE.json already has are kept, too.
"""


@dataclass(frozen=True)
class Arguments:
    folders: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="FOLDER [FOLDER ...]")]
    """Run folders, or folders that hold them at any depth."""
    results: Path = Path("results")
    """Where RECIPE.json is kept."""


def main(args: Sequence[str]) -> int:
    asked = parse(Arguments, args, "mapformers collect", DESCRIPTION)
    require(bool(asked.folders), "mapformers collect needs run folders; see `mapformers collect --help`.")
    collected = collect(asked.folders)
    for folder, why in collected.skipped.items():
        print(f"skipped {folder}: {why}")
    require(bool(collected.records), "None of the folders is a finished run of a recipe; nothing was written.")
    for (name, scale), record in collected.records.items():
        file = results_file(asked.results, name, scale)
        joined = update_record(file, partial(with_collected, record), {**record, "runs": []})
        print(f"wrote {file}: {len(joined['runs'])} runs of {name} at {scale} scale")
    return 0
