"""Tables as the terminal shows them."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table


def split_table(splits: Mapping[str, Mapping[str, Mapping[str, Any]]], title: str) -> Table:
    """One row per split, one column per metric, with the number of cases behind it."""
    metrics = list(next(iter(splits.values())))
    table = Table(title=title, title_justify="left")
    table.add_column("split")
    for metric in metrics:
        table.add_column(metric.replace("_", " "), justify="right")
        table.add_column("cases", justify="right", style="dim")
    for split, scores in splits.items():
        cells = []
        for name in metrics:
            value, count = scores[name]["value"], scores[name]["count"]
            cells += ["–" if value is None else f"{value:.4f}", str(count)]
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
