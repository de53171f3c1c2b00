"""Tables of a single run, for the commands that measure one."""

from collections.abc import Mapping
from typing import Any

from mapformers.reports.table import Table


def split_table(splits: Mapping[str, Mapping[str, Mapping[str, Any]]], title: str) -> Table:
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
    return Table(title, headings, rows, faint=["cases"])
