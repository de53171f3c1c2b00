"""What stands beside a result: players of the task that say what its score is worth."""

import math
from collections.abc import Sequence
from typing import Any

from mapformers.evaluation.evaluate import evaluate
from mapformers.players import build
from mapformers.tasks import Task

MOST_SEQUENCES = 128  # some players think for a while


def scores_beside(
    task: Task[Any], splits: Sequence[str] | None = None, n_sequences: int = 512, seed: int = 0
) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """For every player of ``task.beside`` what it scores on each split (all unless named), as plain data.

    On the first of the sequences that :func:`evaluate` gives a model for the same seed, at most 128 of them.

    >>> import mapformers as mf
    >>> list(scores_beside(mf.build_task("family-tree"), ["iid"], n_sequences=8))
    ['logician']
    """

    def plain(player: str, split: str) -> dict[str, dict[str, Any]]:
        found = evaluate(
            build(player, task, split), task, split, n_sequences=min(n_sequences, MOST_SEQUENCES), seed=seed
        )
        return {
            name: {"value": None if math.isnan(metric) else float(metric), "count": metric.count}
            for name, metric in found.items()
        }

    return {player: {split: plain(player, split) for split in splits or task.splits} for player in task.beside}
