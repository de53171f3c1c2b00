"""metrics.jsonl as it is read: every whole line, whatever is between them, and a sentence on what is not."""

import json
import math
from pathlib import Path
from typing import Any

from mapformers.errors import UserError

SHOWN = 5  # numbers of broken lines in a sentence
LAST_STEP = 2**63


def read_metrics(file: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The whole lines of a file that a run writes to, and a sentence that names the broken ones, if there are any.

    A last line without its end is passed over in silence: the process was killed as it wrote, and writes it again.
    """
    try:
        *lines, cut = file.read_bytes().split(b"\n") if file.exists() else [b""]
    except OSError as error:
        raise UserError(f"Cannot read {file}: {(error.strerror or str(error)).lower()}.") from None
    found = [parse_line(line) for line in lines]
    broken = [number for number, record in enumerate(found, start=1) if record is None]
    last = parse_line(cut)
    records = [record for record in [*found, last] if record is not None]
    return records, [_sentence(file, broken)] if broken else []


def parse_line(line: bytes) -> dict[str, Any] | None:
    """One line of metrics.jsonl: figures by name, at a step, of a split or of training; None if it is not that."""
    try:
        record = json.loads(line.decode("utf-8"))
        step = record["step"]
        fits = type(step) is int and 0 <= step < LAST_STEP and isinstance(record.get("split", ""), str)
        figures = [value for name, value in record.items() if name not in ("step", "split")]
        return record if fits and all(_is_figure(value) for value in figures) else None
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError, RecursionError):
        return None


def _is_figure(value: Any) -> bool:
    """A finite number, or null for a mean over no cases."""
    return value is None or (type(value) in (int, float) and math.isfinite(value))


def _sentence(file: Path, broken: list[int]) -> str:
    shown = ", ".join(map(str, broken[:SHOWN])) + (f" and {len(broken) - SHOWN} more" if len(broken) > SHOWN else "")
    what = f"Line {shown}" if len(broken) == 1 else f"Lines {shown}"
    verb = "is" if len(broken) == 1 else "are"
    return f"{what} of {file} {verb} not what a run writes, and {verb} left out; all others are kept."
