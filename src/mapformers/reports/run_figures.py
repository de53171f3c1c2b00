"""Every figure of a run by the name of what was found: PNG for a page, PDF for a paper."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mapformers.errors import require
from mapformers.reports.bracket_figures import (
    draw_bracket_attention,
    draw_bracket_codes,
    draw_continuations,
    draw_lengths_and_depths,
    draw_trajectory,
)
from mapformers.reports.matrix_figures import draw_compositions, draw_velocities
from mapformers.reports.token_figures import draw_movements, draw_values
from mapformers.reports.training_figures import draw_curves_of_run, draw_movement_curves
from mapformers.reports.walk_figures import draw_rate_maps, draw_revisits, draw_walks

DRAWINGS: Mapping[str, Callable[[Mapping[str, Any], Path], None]] = {
    "curves": draw_curves_of_run,
    "movements": draw_movements,
    "values": draw_values,
    "learning": draw_movement_curves,
    "velocities": draw_velocities,
    "walks": draw_walks,
    "rate-maps": draw_rate_maps,
    "revisits": draw_revisits,
    "compositions": draw_compositions,
    "trajectory": draw_trajectory,
    "bracket-codes": draw_bracket_codes,
    "bracket-attention": draw_bracket_attention,
    "continuations": draw_continuations,
    "lengths-depths": draw_lengths_and_depths,
}


def draw_figure(name: str, data: Mapping[str, Any], folder: Path) -> Path:
    """Write ``folder/NAME.png`` and ``folder/NAME.pdf``, and return the first."""
    require(name in DRAWINGS, f"There is no drawing {name!r}, only {', '.join(DRAWINGS)}.")
    path = folder / f"{name}.png"
    DRAWINGS[name](data, path)
    return path
