"""Tables as the terminal shows them."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table


def split_table(splits: Mapping[str, Mapping[str, Mapping[str, Any]]], title: str) -> Table:
    """One row per split, one column per metric, with the number of cases behind it, once where several share it."""
    metrics = list(next(iter(splits.values())))
    counts = {name: [scores[name]["count"] for scores in splits.values()] for name in metrics}
    closes = [after is None or counts[name] != counts[after] for name, after in zip(metrics, [*metrics[1:], None])]
    table = Table(title=title, title_justify="left")
    table.add_column("split", no_wrap=True)
    for name, close in zip(metrics, closes):
        table.add_column(name.replace("_", " "), justify="right")
        if close:
            table.add_column("cases", justify="right", style="dim")
    for split, scores in splits.items():
        cells = []
        for name, close in zip(metrics, closes):
            value = scores[name]["value"]
            cells += ["–" if value is None else f"{value:.4f}", *([str(scores[name]["count"])] if close else [])]
        table.add_row(split, *cells)
    return table


def names_table(title: str, rows: list[tuple[str, str]]) -> Table:
    """Names and what they are."""
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, summary in rows:
        table.add_row(name, summary)
    return table
