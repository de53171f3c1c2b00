"""Heat maps: a metric over two settings, a panel per row, one scale of colours, the figure in every cell."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

from mapformers.reports.style import figure_file, words

Matrix = Sequence[Sequence[float | None]]
Ticks = tuple[Sequence[Any], Sequence[Any]]


def draw_heat_maps(
    panels: Mapping[str, Matrix], path: Path, axes_names: tuple[str, str], ticks: Ticks, metric: str
) -> None:
    """``panels``: row -> matrix of shares between 0 and 1, None where there is no value. Written to ``path`` (PNG)."""
    columns = min(4, len(panels))
    n_rows = -(-len(panels) // columns)
    width, height = max(1.6, 0.33 * len(ticks[1])), max(1.2, 0.26 * len(ticks[0]))
    with figure_file(path, 1.2 + (width + 0.5) * columns, (height + 0.75) * n_rows) as figure:
        grid = figure.subplots(n_rows, columns, squeeze=False)
        image = None
        for index, (axes, (row, matrix)) in enumerate(zip(grid.flat, panels.items())):
            image = _panel(axes, matrix, ticks)
            axes.set_title(row, fontsize=9.5)
            axes.set(ylabel=words(axes_names[0]) if index % columns == 0 else "")
            axes.set(xlabel=words(axes_names[1]) if index + columns >= len(panels) else "")
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        if image is not None:
            figure.colorbar(image, ax=grid.ravel().tolist(), shrink=0.8, label=metric, pad=0.01)


def _panel(axes: Axes, matrix: Matrix, ticks: Ticks) -> AxesImage:
    values = np.array([[np.nan if value is None else value for value in line] for line in matrix], dtype=float)
    image = axes.imshow(values, vmin=0, vmax=1, cmap="viridis", origin="lower", aspect="auto")
    for (i, j), value in np.ndenumerate(values):
        if not np.isnan(value):
            axes.text(
                j, i, short(value), ha="center", va="center", fontsize=6.5, color="white" if value < 0.6 else "black"
            )
    axes.set_xticks(range(len(ticks[1])), [str(tick) for tick in ticks[1]], fontsize=7.5)
    axes.set_yticks(range(len(ticks[0])), [str(tick) for tick in ticks[0]], fontsize=7.5)
    axes.tick_params(length=2)
    return image


def short(value: float) -> str:
    """``.98``, and ``1`` where it rounds to that: two digits that fit a cell."""
    return "1" if value >= 0.995 else f"{value:.2f}".removeprefix("0")
