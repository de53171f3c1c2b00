"""`mapformers eval`: measure a trained run on splits of its task."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from mapformers.cli.parse import parse
from mapformers.cli.tables import split_table
from mapformers.errors import require
from mapformers.evaluation import evaluate_splits, player_scores
from mapformers.runs.folder import RunFolder
from mapformers.runs.run import load
from mapformers.training.train import title_of

PROG = "mapformers eval"
DESCRIPTION = """Measure a trained run on its task's splits.

  mapformers eval runs/navigation-mapwm-seed0
  mapformers eval runs/navigation-mapwm-seed0 --splits iid ood-sparse --n-sequences 2048
"""


@dataclass(frozen=True)
class Arguments:
    run_dir: tyro.conf.Positional[Path]
    """The folder that `mapformers train` wrote."""
    splits: tuple[str, ...] = ()
    """Names of splits (all of the task's unless given)."""
    n_sequences: int = 512
    """Sequences per split."""
    seed: int = 0
    """Which sequences; 0 are those of result.json."""


def main(args: Sequence[str]) -> int:
    asked = parse(Arguments, args, PROG, DESCRIPTION)
    require(asked.n_sequences >= 1, f"--n-sequences must be at least 1, not {asked.n_sequences}.")
    _, config = RunFolder.open(asked.run_dir)
    for split in asked.splits:  # refused before anything is loaded
        config.build_task().split_settings(split)
    run = load(asked.run_dir)
    console = Console(stderr=True)
    for fault in run.faults:
        console.print(fault, highlight=False, soft_wrap=True)
    splits = evaluate_splits(run.model, run.task, asked.splits, asked.n_sequences, asked.seed)
    Console().print(split_table(splits, f"{title_of(run.config)}, step {run.step}"))
    for player, scores in player_scores(run.task, asked.splits, asked.n_sequences, asked.seed).items():
        Console().print(split_table(scores, f"player: {player}"))
    return 0
