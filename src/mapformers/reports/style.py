"""The look that all figures share."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from mapformers.files import write_atomically

COLOURS = ("#1f5fa8", "#e07b1f", "#2e8b57", "#9a3fa0", "#b03030")


def colour_of(value: object, among: Sequence[object]) -> str:
    return COLOURS[list(among).index(value) % len(COLOURS)]


@contextmanager
def figure_file(path: Path, width: float, height: float) -> Iterator[Figure]:
    """A figure to draw on; it is written to ``path`` (PNG) at the end, whole or not at all."""
    with matplotlib.rc_context(
        {"font.size": 10, "axes.titlesize": 10.5, "axes.spines.top": False, "axes.spines.right": False}
    ):
        figure = Figure(figsize=(width, height), layout="constrained", dpi=150)
        yield figure
        drawn = io.BytesIO()
        figure.savefig(drawn, format="png", bbox_inches="tight", pad_inches=0.1)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, drawn.getvalue())
