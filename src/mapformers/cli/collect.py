"""`mapformers collect`: rebuild the records of recipes from run folders alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from mapformers.cli.parse import parse
from mapformers.errors import require
from mapformers.files import clear_file_errors, write_json
from mapformers.recipes import collect
from mapformers.recipes.record import key_of, read_record, results_file, with_run

DESCRIPTION = """Rebuild RECIPE.json from the folders of its runs, wherever they were run.

  mapformers collect runs
  mapformers collect from-one-machine from-another --results results

Runs of other cells that RECIPE.json already has are kept.
"""


@dataclass(frozen=True)
class Arguments:
    folders: tyro.conf.Positional[tuple[Path, ...]]
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
    with clear_file_errors("write to", asked.results):
        asked.results.mkdir(parents=True, exist_ok=True)
        for (name, scale), record in collected.records.items():
            file = results_file(asked.results, name, scale)
            older = read_record(file)["runs"] if file.exists() else []
            for entry in older:
                if key_of(entry) not in map(key_of, record["runs"]):
                    record = with_run(record, entry)
            write_json(file, record)
            print(f"wrote {file}: {len(record['runs'])} runs of {name} at {scale} scale")
    return 0
