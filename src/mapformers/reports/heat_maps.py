"""Heat maps: a metric over two settings, a panel per row."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mapformers.reports.style import figure_file

Matrix = Sequence[Sequence[float | None]]


def draw_heat_maps(
    panels: Mapping[str, Matrix], path: Path, axes_names: tuple[str, str], ticks: tuple[Sequence[Any], Sequence[Any]]
) -> None:
    """``panels``: row -> matrix of shares between 0 and 1, None where there is no value. Written to ``path`` (PNG)."""
    columns = min(4, len(panels))
    n_rows = -(-len(panels) // columns)
    with figure_file(path, 1.0 + 2.9 * columns, 2.8 * n_rows) as figure:
        grid = figure.subplots(n_rows, columns, squeeze=False)
        image = None
        for axes, (row, matrix) in zip(grid.flat, panels.items()):
            values = np.array([[np.nan if value is None else value for value in line] for line in matrix], dtype=float)
            image = axes.imshow(values, vmin=0, vmax=1, cmap="viridis", origin="lower", aspect="auto")
            axes.set_xticks(range(len(ticks[1])), [str(tick) for tick in ticks[1]])
            axes.set_yticks(range(len(ticks[0])), [str(tick) for tick in ticks[0]])
            axes.set(title=row, ylabel=axes_names[0], xlabel=axes_names[1])
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        if image is not None:
            figure.colorbar(image, ax=grid.ravel().tolist(), shrink=0.8)
