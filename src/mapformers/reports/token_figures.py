"""Figures of single tokens: their movements and their values, before and after training."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from mapformers.reports.style import ACTION, INK, OBSERVATION, SOFT, figure_file

Data = Mapping[str, Any]


def draw_movements(data: Data, path: Path) -> None:
    """Arrows of actions and dots of observations, twice, and the cosines of actions as a table of colours."""
    names = [data["names"][action] for action in data["actions"]]
    with figure_file(path, 12.4 if names else 8.2, 4.3, "pdf") as figure:
        grid = figure.subplots(1, 3 if names else 2, width_ratios=(1, 1, 1.05) if names else None)
        for axes, panel in zip(grid, data["panels"]):
            arrows(axes, panel["points"], data["names"], data["actions"])
            axes.set(title=panel["title"], xlabel=panel["axes"][0], ylabel=panel["axes"][1])
        if names:
            matrix_of_figures(grid[2], data["cosines"], names, "cosines of actions", (-1, 1), "RdBu_r")


def arrows(axes: Axes, points: np.ndarray, names: Sequence[str], actions: Sequence[int]) -> None:
    """Actions as arrows from the origin, other tokens as dots that should sit on it."""
    others = [index for index in range(len(points)) if index not in set(actions)]
    reach = float(np.abs(points).max()) * 1.35 or 1.0
    for index in actions:
        x, y = points[index]
        arrow = {"arrowstyle": "-|>", "color": ACTION, "lw": 1.8, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (x, y), (0, 0), arrowprops=arrow)
        length = float(np.hypot(x, y)) or 1.0
        axes.text(
            x + 0.11 * reach * x / length,
            y + 0.11 * reach * y / length,
            names[index],
            color=INK,
            ha="center",
            va="center",
            fontsize=12,
        )
    if others:
        axes.scatter(
            points[others, 0],
            points[others, 1],
            s=24,
            color=OBSERVATION,
            edgecolor="white",
            lw=0.4,
            zorder=5,
            label=f"{len(others)} {'observations' if actions else 'tokens'}",
        )
    if actions:
        axes.plot([], [], color=ACTION, lw=1.8, label=f"{len(actions)} actions")
    axes.axhline(0, color=SOFT, lw=0.6, zorder=0)
    axes.axvline(0, color=SOFT, lw=0.6, zorder=0)
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncol=2, frameon=False, fontsize=9)


def matrix_of_figures(
    axes: Axes,
    matrix: np.ndarray,
    names: Sequence[str],
    title: str,
    limits: tuple[float, float],
    colours: str,
    texts: np.ndarray | None = None,
) -> None:
    """A square table: colours for the eye, and the figure (or another text) in every cell that has room for one."""
    image = axes.imshow(matrix, vmin=limits[0], vmax=limits[1], cmap=colours)
    shown = matrix if texts is None else texts
    if len(matrix) <= 12:
        middle, half = sum(limits) / 2, (limits[1] - limits[0]) / 2
        for (i, j), value in np.ndenumerate(shown):
            if not np.isnan(value):
                level = (matrix[i, j] - middle) / half
                dark = abs(level) > 0.6 if colours == "RdBu_r" else level < 0.2
                text = f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")
                axes.text(
                    j,
                    i,
                    text,
                    ha="center",
                    va="center",
                    fontsize=8.5 if len(matrix) <= 6 else 6.5,
                    color="white" if dark else INK,
                )
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(names)), names)
    longest = max(map(len, names))
    if longest > 3:
        axes.tick_params(axis="x", rotation=40)
    axes.tick_params(length=0, labelsize=11 if longest <= 2 else 8.5)
    axes.spines[:].set_visible(False)
    axes.set_title(title)
    axes.figure.colorbar(image, ax=axes, shrink=0.7, pad=0.02)


def draw_values(data: Data, path: Path) -> None:
    """Principal components of the values before and after, and their lengths."""
    actions = set(data["actions"])
    others = [index for index in range(len(data["names"])) if index not in actions]
    with figure_file(path, 12.4, 4.1, "pdf") as figure:
        left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 0.9))
        for axes, panel in zip((left, middle), data["panels"]):
            points = panel["points"]
            for ids, colour, marker in ((others, OBSERVATION, "o"), (sorted(actions), ACTION, "D")):
                axes.scatter(points[ids, 0], points[ids, 1], s=30, color=colour, marker=marker, lw=0, alpha=0.9)
            if len(points) <= 40:
                name_points(axes, points, data["names"])
            axes.margins(0.12)
            axes.set(title=panel["title"], xlabel=panel["axes"][0], ylabel=panel["axes"][1])
        _lengths(right, data["norms"], others, sorted(actions))


def name_points(axes: Axes, points: np.ndarray, names: Sequence[str]) -> None:
    for (x, y), name in zip(points, names):
        axes.annotate(name, (x, y), (4, 4), textcoords="offset points", fontsize=8, color=INK)


def _lengths(axes: Axes, norms: Sequence[np.ndarray], others: Sequence[int], actions: Sequence[int]) -> None:
    """‖v‖ of every token as dots, and their means as bars, before and after."""
    for place, sizes in enumerate(norms):
        for shift, ids, colour, marker in ((-0.18, others, OBSERVATION, "o"), (0.18, actions, ACTION, "D")):
            if ids:
                axes.bar(place + shift, sizes[ids].mean(), 0.32, color=colour, alpha=0.35)
                spread = np.linspace(-0.1, 0.1, len(ids)) if len(ids) > 1 else np.zeros(1)
                axes.scatter(place + shift + spread, sizes[ids], s=12, color=colour, marker=marker, lw=0)
                axes.text(
                    place + shift,
                    sizes[ids].max() * 1.03,
                    f"{sizes[ids].mean():.3g}",
                    ha="center",
                    va="bottom",
                    fontsize=9,
                )
    axes.set_xticks(range(2), ["before", "after training"])
    axes.set(title="length of values, with its mean", ylabel="‖v‖")
    handles = [axes.scatter([], [], color=c, marker=m, s=24) for c, m in ((OBSERVATION, "o"), (ACTION, "D"))]
    labels = ["observations", "actions"]
    shown = slice(None) if others else slice(1, None)
    axes.legend(
        handles[shown], labels[shown], loc="upper center", bbox_to_anchor=(0.5, -0.1), ncol=2, frameon=False, fontsize=9
    )
    axes.margins(y=0.18)
