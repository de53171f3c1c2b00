"""Learning curves: accuracy on fresh iid sequences over the sequences trained on, a panel per row, a line per seed."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

Curve = Sequence[tuple[float, float]]  # (sequences, accuracy)

COLOURS = ("#1f5fa8", "#e07b1f", "#2e8b57", "#9a3fa0", "#b03030")


def draw_curves(panels: Mapping[str, Mapping[int, Curve]], path: Path, goal: float, metric: str) -> None:
    """``panels``: row -> seed -> curve. Written to ``path`` (PNG), the goal as a dashed line."""
    columns = min(4, len(panels))
    n_rows = -(-len(panels) // columns)
    with matplotlib.rc_context(
        {"font.size": 10, "axes.titlesize": 10.5, "axes.spines.top": False, "axes.spines.right": False}
    ):
        figure = Figure(figsize=(3.3 * columns, 0.5 + 2.5 * n_rows), layout="constrained", dpi=150)
        grid = figure.subplots(n_rows, columns, sharex=True, sharey=True, squeeze=False)
        seeds = sorted({seed for curves in panels.values() for seed in curves})
        for axes, (row, curves) in zip(grid.flat, panels.items()):
            axes.axhline(goal, color="#b8b8b8", lw=1, ls="--")
            for seed, curve in curves.items():
                colour = COLOURS[seeds.index(seed) % len(COLOURS)]
                axes.plot(
                    [n / 1000 for n, _ in curve], [a for _, a in curve], color=colour, lw=1.6, label=f"seed {seed}"
                )
            axes.set(title=row, ylim=(-0.02, 1.03))
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes in grid[:, 0]:
            axes.set_ylabel(f"iid {metric}")
        for index, axes in enumerate(grid.flat[: len(panels)]):
            if index + columns >= len(panels):
                axes.set_xlabel("thousand sequences")
                axes.tick_params(labelbottom=True)
        handles, labels = grid.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
        figure.savefig(path, bbox_inches="tight", pad_inches=0.1)
