"""Benchmark figures as tables: on the terminal, a short one in docs/results.md, all on a page of their own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mapformers.benchmarks.learning import median_or_none
from mapformers.benchmarks.speed import speed_tables
from mapformers.reports.marks import MARKS, MEANINGS
from mapformers.reports.page import WRITTEN_BY, join_sections, origins, titled
from mapformers.reports.table import Table
from mapformers.runs.provenance import freshness


def throughput_tables(record: Mapping[str, Any]) -> list[Table]:
    headings = ("layer", "ms a step", "tokens/s", "ratio to rope", "of matmul peak", "peak MiB")
    return [
        Table(
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


def lengths_tables(record: Mapping[str, Any]) -> list[Table]:
    lengths = record["lengths"]
    headings = ("layer", *(f"{unit} at {n}" for n in lengths for unit in ("ratio", "MiB")))
    by_row = {label: [each[label] for each in map(_by_label, lengths.values())] for label in _by_label(lengths["256"])}
    rows = [
        (label, *(text for cell in cells for text in (f"{cell['ratio_to_rope']:.2f}", f"{cell['peak_mib']:,.0f}")))
        for label, cells in by_row.items()
    ]
    tokens = f"{record['tokens']:,} tokens a step"
    return [Table(f"Training speed relative to rope and peak memory, {tokens}, {_threads(record)}", headings, rows)]


def _by_label(rows: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {row["row"]: row for row in rows}


def memory_tables(record: Mapping[str, Any]) -> list[Table]:
    small = _growth("Peak memory of a training step, 1 layer of 64, batch 4", record["rows"], "{} tokens")
    return [small, _growth(f"Peak memory of a training step, {record['large']}", record["by_batch"], "batch {}")]


def _growth(title: str, grown: Sequence[Mapping[str, Any]], heading: str) -> Table:
    columns = list(grown[0]["mib"])
    rows = [
        (row["row"], *(f"{row['mib'][column]:,.0f} MiB" for column in columns), f"{row['growth']:.1f} x")
        for row in grown
    ]
    return Table(title, ("layer", *(heading.format(column) for column in columns), "growth"), rows)


def tasks_tables(record: Mapping[str, Any]) -> list[Table]:
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
    return [
        Table("Speed of sampling beside that of training MapWM, 1 layer of 64, batch 128, 1 thread", headings, rows)
    ]


def learning_tables(record: Mapping[str, Any]) -> list[Table]:
    runs = record["runs"]
    rows = [(f"seed {run['seed']}", _count(run["sequences"]), _seconds(run["seconds"])) for run in runs]
    medians = (median_or_none([run[key] for run in runs]) for key in ("sequences", "seconds"))
    sequences, seconds = medians
    rows.append(("median", _count(sequences), _seconds(seconds)))
    title = f"MapWM on 2D navigation, until {record['goal']:g} on fresh iid sequences, {_threads(record)}"
    return [Table(title, ("", "sequences", "seconds"), rows)]


def ops_tables(record: Mapping[str, Any]) -> list[Table]:
    """One table for each size."""
    headings = ("backward pass by hand (in)", "ms", "ms plain", "plain / ours", "MiB", "MiB plain")
    return [
        Table(
            f"A training step with it and in plain PyTorch, {size.partition(':')[2].strip()}, {_threads(record)}",
            headings,
            [
                (
                    f"{row['piece']} ({row['row']})",
                    f"{1000 * row['seconds']:.0f}",
                    f"{1000 * row['plain_seconds']:.0f}",
                    f"{row['plain_seconds'] / row['seconds']:.2f}",
                    "–" if row["mib"] is None else f"{row['mib']:,.0f}",
                    "–" if row["plain_mib"] is None else f"{row['plain_mib']:,.0f}",
                )
                for row in record["rows"]
                if row["size"] == size
            ],
        )
        for size in dict.fromkeys(row["size"] for row in record["rows"])
    ]


def _short_ops(record: Mapping[str, Any]) -> Table:
    """How many times longer a step takes in plain PyTorch, at each size."""
    sizes = list(dict.fromkeys(row["size"] for row in record["rows"]))
    pieces = list(dict.fromkeys((row["piece"], row["row"]) for row in record["rows"]))
    times = {(row["piece"], row["size"]): row["plain_seconds"] / row["seconds"] for row in record["rows"]}
    rows = [(f"{piece} ({row})", *(f"{times[piece, size]:.2f}" for size in sizes)) for piece, row in pieces]
    title = f"Time of a training step in plain PyTorch over that with the backward pass by hand, {_threads(record)}"
    return Table(title, ("backward pass by hand (in)", *(size.partition(":")[2].strip() for size in sizes)), rows)


def generation_tables(record: Mapping[str, Any]) -> list[Table]:
    rows = [
        (
            row["row"],
            f"{1000 * row['seconds'] / record['tokens']:.2f}",
            f"{row['tokens_per_second']:,.0f}",
            "–" if row["ratio_to_llama"] is None else f"{row['ratio_to_llama']:.2f}",
        )
        for row in record["rows"]
    ]
    title = (
        f"Generating {record['tokens']} tokens one at a time, {record['title'].rpartition(',')[0]}, {_threads(record)}"
    )
    return [Table(title, ("layer", "ms a token", "tokens/s", "ratio to Llama"), rows)]


def startup_tables(record: Mapping[str, Any]) -> list[Table]:
    rows = [(row["what"], f"{row['seconds']:.2f}") for row in record["rows"]]
    return [Table("Processor seconds beyond those of an empty interpreter", ("", "seconds"), rows)]


def _threads(record: Mapping[str, Any]) -> str:
    count = record["hardware"]["threads"]
    return f"{count} thread{'s' if count > 1 else ''}"


def _count(value: float | None) -> str:
    return "never" if value is None else f"{value:,.0f}"


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.0f}"


def _short_throughput(record: Mapping[str, Any]) -> Table:
    """The ratio to rope at every size."""
    sizes = {name: _by_label(size["rows"]) for name, size in record["sizes"].items()}
    labels = [label for label in next(iter(sizes.values())) if label != "rope"]
    rows = [(label, *(_ratio(timed.get(label)) for timed in sizes.values())) for label in labels]
    title = f"Training speed as a ratio to rope, {_threads(record)}"
    return Table(title, ("layer", *(size["title"] for size in record["sizes"].values())), rows)


def _short_lengths(record: Mapping[str, Any]) -> Table:
    """The ratio to rope at every length, of every layer with the options it has unless told otherwise."""
    lengths = {length: _by_label(rows) for length, rows in record["lengths"].items()}
    labels = [label for label in next(iter(lengths.values())) if label != "rope" and " " not in label]
    rows = [(label, *(_ratio(timed.get(label)) for timed in lengths.values())) for label in labels]
    title = f"Training speed as a ratio to rope by length, {record['tokens']:,} tokens a step, {_threads(record)}"
    return Table(title, ("layer", *(f"{length} tokens" for length in lengths)), rows)


def _short_learning(record: Mapping[str, Any]) -> Table:
    table = learning_tables(record)[0]
    return Table(table.title, table.headings, table.rows[-1:])


def _ratio(row: Mapping[str, Any] | None) -> str:
    return "–" if row is None else f"{row['ratio_to_rope']:.2f}"


@dataclass(frozen=True)
class Report:
    """How a benchmark is shown: all its tables, and the one that docs/results.md has.

    ``of``: the benchmark whose figures it shows, where that has another name.
    """

    summary: str
    tables: Callable[[Mapping[str, Any]], list[Table]]
    short: Callable[[Mapping[str, Any]], Table]
    of: str | None = None


REPORTS: Mapping[str, Report] = {
    "speed": Report(
        "training speed beside the paper's (A.9)", speed_tables, lambda record: speed_tables(record)[0], "throughput"
    ),
    "throughput": Report(
        "training speed and memory of every layer as a ratio to rope", throughput_tables, _short_throughput
    ),
    "lengths": Report("the same as sequences grow", lengths_tables, _short_lengths),
    "memory": Report("peak memory of a training step", memory_tables, lambda record: memory_tables(record)[0]),
    "tasks": Report("how fast tasks are sampled", tasks_tables, lambda record: tasks_tables(record)[0]),
    "learning": Report("how soon MapWM knows 2D navigation", learning_tables, _short_learning),
    "ops": Report("what each backward pass written by hand is worth", ops_tables, _short_ops),
    "generation": Report(
        "tokens a second one at a time, beside Llama's", generation_tables, lambda record: generation_tables(record)[0]
    ),
    "startup": Report("how long until anything happens", startup_tables, lambda record: startup_tables(record)[0]),
}


def record_file(folder: Path, name: str) -> Path:
    """Where the figures of a report are kept, as `mapformers bench --write` wrote them."""
    return folder / f"bench-{REPORTS[name].of or name}.json"


def page_name(name: str) -> str:
    """``bench-memory``; the name alone where it is a view of another benchmark."""
    return name if REPORTS[name].of else f"bench-{name}"


def benchmark_section(name: str, record: Mapping[str, Any]) -> str:
    """What docs/results.md says of a benchmark."""
    more = f"[All figures and their origin](results/{page_name(name)}.md)."
    table = titled(REPORTS[name].short(record))
    return join_sections(f"## {_title(name)}", table, f"{_age(record)} {more}".strip())


def benchmark_page(name: str, record: Mapping[str, Any]) -> str:
    """The page of a benchmark below docs/results/."""
    return join_sections(
        f"# {_title(name)}",
        f"{WRITTEN_BY} [All results](../results.md).",
        *map(titled, REPORTS[name].tables(record)),
        "## Origin",
        _age(record),
        origins([record]),
    )


def _title(name: str) -> str:
    return f"{page_name(name).replace('-', ' ')}: {REPORTS[name].summary}"


def _age(record: Mapping[str, Any]) -> str:
    mark = MARKS.get(freshness(record))
    return MEANINGS[mark].capitalize() if mark else ""
