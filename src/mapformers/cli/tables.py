"""Tables of a single run, for the commands that measure one."""

from collections.abc import Mapping, Sequence
from typing import Any

from mapformers.evaluation import player_sequences
from mapformers.reports.table import Table

Scores = Mapping[str, Mapping[str, Mapping[str, Any]]]  # split -> metric -> its value and count


def split_table(splits: Scores, title: str, notes: Sequence[str] = ()) -> Table:
    """One row per split, one column per metric, with the number of cases behind it, once where several share it."""
    metrics = list(next(iter(splits.values())))
    counts = {name: [scores[name]["count"] for scores in splits.values()] for name in metrics}
    closes = [after is None or counts[name] != counts[after] for name, after in zip(metrics, [*metrics[1:], None])]
    headings = ["split"]
    for name, close in zip(metrics, closes):
        headings += [name.replace("_", " "), *(["cases"] if close else [])]
    rows = []
    for split, scores in splits.items():
        cells = [split]
        for name, close in zip(metrics, closes):
            value = scores[name]["value"]
            cells += ["–" if value is None else f"{value:.4f}", *([str(scores[name]["count"])] if close else [])]
        rows.append(cells)
    return Table(title, headings, rows, notes=notes, faint=["cases"])


def player_table(player: str, scores: Scores, n_sequences: int) -> Table:
    """What a player scores; a note says so where it has fewer cases than the model that ``n_sequences`` were for."""
    fewer = player_sequences(n_sequences)
    note = f"Players answer the first {fewer} of the {n_sequences} sequences, so they have fewer cases."
    return split_table(scores, f"player: {player}", [note] if fewer < n_sequences else [])
