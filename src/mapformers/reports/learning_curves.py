"""Learning curves: a metric over the sequences trained on, a panel per row, a line per seed."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.lines import Line2D

from mapformers.reports.style import SOFT, colour_of, figure_file, log_scale

Curve = Sequence[tuple[float, float]]  # (sequences, value)


def draw_curves(panels: Mapping[str, Mapping[int, Curve]], path: Path, goal: float | None, ylabel: str) -> None:
    """``panels``: row -> seed -> curve. Written to ``path`` (PNG), the goal, if any, as a dashed line.

    A share, for which there is a goal, is drawn from 0 to 1; anything else over the values it takes, on a log scale.
    """
    columns = min(4, len(panels))
    n_rows = -(-len(panels) // columns)
    seeds = sorted({seed for curves in panels.values() for seed in curves})
    with figure_file(path, 3.3 * columns, 0.5 + 2.5 * n_rows) as figure:
        grid = figure.subplots(n_rows, columns, sharex=True, sharey=True, squeeze=False)
        for axes, (row, curves) in zip(grid.flat, panels.items()):
            if goal is not None:
                axes.axhline(goal, color=SOFT, lw=1, ls="--")
                axes.set_ylim(-0.02, 1.03)
            else:
                log_scale(axes)
            for seed, curve in curves.items():
                thousands, values = [n / 1000 for n, _ in curve], [value for _, value in curve]
                axes.plot(thousands, values, color=colour_of(seed, seeds), lw=1.6)
            axes.set_title(row)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes in grid[:, 0]:
            axes.set_ylabel(ylabel)
        for index, axes in enumerate(grid.flat[: len(panels)]):
            if index + columns >= len(panels):
                axes.set_xlabel("thousand sequences")
                axes.tick_params(labelbottom=True)
        lines = [Line2D([], [], color=colour_of(seed, seeds), lw=1.6, label=f"seed {seed}") for seed in seeds]
        figure.legend(handles=lines, loc="outside lower center", ncols=len(lines), frameon=False)
