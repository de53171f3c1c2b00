"""Benchmark figures as tables: on the terminal and in the documents."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from mapformers.benchmarks.learning import median_or_none


@dataclass(frozen=True)
class Figures:
    """A small table: a title, headings, rows of text."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]

    def for_terminal(self) -> Table:
        table = Table(title=self.title, title_justify="left")
        for index, heading in enumerate(self.headings):
            table.add_column(heading, justify="right" if index else "left")
        for row in self.rows:
            table.add_row(*row)
        return table

    def for_document(self) -> str:
        lines = [f"{self.title}.", "", f"| {' | '.join(self.headings)} |", f"|---|{'--:|' * (len(self.headings) - 1)}"]
        return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in self.rows)])


def throughput_tables(record: Mapping[str, Any]) -> list[Figures]:
    headings = ("mixer", "ms a step", "tokens/s", "ratio to rope", "of matmul peak", "peak MiB")
    return [
        Figures(
            f"Training, {size['title']}, {_threads(record)}{_against_peer(size['rows'])}",
            headings,
            [
                (
                    row["row"],
                    f"{1000 * row['seconds']:.0f}",
                    f"{row['tokens_per_second']:,.0f}",
                    f"{row['ratio_to_rope']:.2f}",
                    f"{row['share_of_peak']:.2f}",
                    "–" if row["peak_mib"] is None else f"{row['peak_mib']:,.0f}",
                )
                for row in size["rows"]
            ],
        )
        for size in record["sizes"].values()
    ]


def _against_peer(rows: Sequence[Mapping[str, Any]]) -> str:
    """How `rope` compares with Llama of `transformers`, where that was timed beside it."""
    peer = next((row for row in rows if row["row"] == "Llama"), None)
    return "" if peer is None else f"; rope runs at {1 / peer['ratio_to_rope']:.2f} of transformers' Llama"


def mixers_tables(record: Mapping[str, Any]) -> list[Figures]:
    lengths = record["lengths"]
    headings = ("mixer", *(f"{unit} at {n}" for n in lengths for unit in ("ratio", "MiB")))
    by_row = {label: [each[label] for each in map(_by_label, lengths.values())] for label in _by_label(lengths["256"])}
    rows = [
        (label, *(text for cell in cells for text in (f"{cell['ratio_to_rope']:.2f}", f"{cell['peak_mib']:,.0f}")))
        for label, cells in by_row.items()
    ]
    tokens = f"{record['tokens']:,} tokens a step"
    return [Figures(f"Training speed relative to rope and peak memory, {tokens}, {_threads(record)}", headings, rows)]


def _by_label(rows: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {row["row"]: row for row in rows}


def memory_tables(record: Mapping[str, Any]) -> list[Figures]:
    small = _growth("Peak memory of a training step, 1 layer of 64, batch 4", record["rows"], "{} tokens")
    return [small, _growth(f"Peak memory of a training step, {record['large']}", record["by_batch"], "batch {}")]


def _growth(title: str, grown: Sequence[Mapping[str, Any]], heading: str) -> Figures:
    columns = list(grown[0]["mib"])
    rows = [
        (row["row"], *(f"{row['mib'][column]:,.0f} MiB" for column in columns), f"{row['growth']:.1f} x")
        for row in grown
    ]
    return Figures(title, ("mixer", *(heading.format(column) for column in columns), "growth"), rows)


def tasks_tables(record: Mapping[str, Any]) -> list[Figures]:
    rows = [
        (
            row["task"],
            f"{row['length']}",
            f"{row['sampled_per_second']:,.0f}",
            f"{row['trained_per_second']:,.0f}",
            f"{row['ratio']:.0f} x",
        )
        for row in record["rows"]
    ]
    headings = ("task", "tokens", "sampled tokens/s", "trained tokens/s", "ratio")
    return [Figures("Sampling against training MapWM, 1 layer of 64, batch 128, 1 thread", headings, rows)]


def learning_tables(record: Mapping[str, Any]) -> list[Figures]:
    runs = record["runs"]
    rows = [(f"seed {run['seed']}", _count(run["sequences"]), _seconds(run["seconds"])) for run in runs]
    medians = (median_or_none([run[key] for run in runs]) for key in ("sequences", "seconds"))
    sequences, seconds = medians
    rows.append(("median", _count(sequences), _seconds(seconds)))
    title = f"MapWM on 2D navigation, until {record['goal']:g} on fresh iid sequences, {_threads(record)}"
    return [Figures(title, ("", "sequences", "seconds"), rows)]


def _threads(record: Mapping[str, Any]) -> str:
    count = record["hardware"]["threads"]
    return f"{count} thread{'s' if count > 1 else ''}"


def _count(value: float | None) -> str:
    return "never" if value is None else f"{value:,.0f}"


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.0f}"


TABLES: Mapping[str, Callable[[Mapping[str, Any]], list[Figures]]] = {
    "throughput": throughput_tables,
    "mixers": mixers_tables,
    "memory": memory_tables,
    "tasks": tasks_tables,
    "learning": learning_tables,
}
