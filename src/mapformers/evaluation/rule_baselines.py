"""What the players of a task score: rule-based baselines that say what a model's score is worth."""

from collections.abc import Sequence
from typing import Any

from mapformers.evaluation.evaluate import evaluate
from mapformers.players import build
from mapformers.stages import doing
from mapformers.tasks import Task

MAX_SEQUENCES = 128  # some players think for a while


def player_sequences(n_sequences: int) -> int:
    """On how many of a model's sequences players are measured."""
    return min(n_sequences, MAX_SEQUENCES)


def player_scores(
    task: Task[Any], splits: Sequence[str] | None = None, n_sequences: int = 512, seed: int = 0
) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """For every player of ``task.reference_players`` what it scores on each split (all unless named), as plain data.

    On the first of the sequences that `evaluate` gives a model for the same seed, at most 128 of them.

    Examples:
        >>> import mapformers as mf
        >>> list(player_scores(mf.build_task("family-tree"), ["iid"], n_sequences=8))
        ['logician']
    """
    n_sequences = player_sequences(n_sequences)

    def plain(player: str, split: str) -> dict[str, dict[str, Any]]:
        with doing(f"player {player}"):
            found = evaluate(build(player, task, split), task, split, n_sequences=n_sequences, seed=seed)
        return {name: metric.to_dict() for name, metric in found.items()}

    with doing("measuring what players score"):
        return {
            player: {split: plain(player, split) for split in splits or task.splits}
            for player in task.reference_players
        }
