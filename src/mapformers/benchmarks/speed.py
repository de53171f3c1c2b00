"""The paper's table of speed (A.9): its throughput as ratios to RoPE beside ours, at the same size of model."""

from collections.abc import Mapping
from typing import Any

from mapformers.reports.marks import against, footnotes, marked
from mapformers.reports.table import Table

SIZE = "speed"
MEASURE = "mapformers bench throughput --write results"
# Samples per second on an H100 at bfloat16, batch 64 of length 256.
PRINTED = {"rope": 1939, "mapwm": 1869, "mapem": 1210}
OUT_OF_MEMORY = ("mapem-nc",)
ROWS = {"rope": "RoPE", "mapwm": "MapWM", "mapem": "MapEM", "mapem-nc": "MapEM-NC", "mapwm-nc": "MapWM-NC"}


def speed_tables(record: Mapping[str, Any]) -> list[Table]:
    """One table, from the record of `mapformers bench throughput`; it says so where that lacks this size."""
    size = record["sizes"].get(SIZE)
    timed = {row["row"]: row for row in size["rows"]} if size else {}
    rows = [[label, *_printed(name), *_ours(name, timed.get(name))] for name, label in ROWS.items()]
    missing = [] if size else [f"Ours is not measured at this size yet; {MEASURE} does it."]
    title = "Training speed as a ratio to RoPE, 12 layers of 768, length 256"
    headings = ["model", "paper, samples/s", "paper", "ours", "ours, tokens/s", "ours, peak MiB"]
    threads = record["hardware"]["threads"]
    machines = f"The paper measured on an H100 at bfloat16 and batch 64; ours is on a processor, {threads} threads."
    moments = "Each row is timed in turns with RoPE, which gives its ratio; tokens/s also depend on the moment."
    notes = [machines, *([moments] if size else []), *missing, *footnotes([text for row in rows for text in row])]
    return [Table(title, headings, rows, notes=notes)]


def _printed(name: str) -> list[str]:
    if name in PRINTED:
        return [f"{PRINTED[name]:,}", f"{_ratio(name):.2f}"]
    return ["out of memory" if name in OUT_OF_MEMORY else "–", "–"]


def _ours(name: str, row: Mapping[str, Any] | None) -> list[str]:
    if row is None:
        return ["–", "–", "–"]
    states = [against(row["ratio_to_rope"], _ratio(name))] if name in PRINTED else []
    peak = "–" if row["peak_mib"] is None else f"{row['peak_mib']:,.0f}"
    return [marked(f"{row['ratio_to_rope']:.2f}", states), f"{row['tokens_per_second']:,.0f}", peak]


def _ratio(name: str) -> float:
    return PRINTED[name] / PRINTED["rope"]
