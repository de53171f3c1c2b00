"""The picture of a learned map: what each token does, and an unseen walk, true beside path-integrated."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes

from mapformers.reports.style import ACTION, INK, OBSERVATION, SOFT, figure_file


@dataclass(frozen=True)
class MapPicture:
    """All the figure needs: plain arrays, no model."""

    movements: np.ndarray  # (vocab, 2) Δ_in of every token
    token_names: Sequence[str]
    action_ids: Sequence[int]
    truth: np.ndarray  # (T + 1, 2) where the walk really is: at its start, then after each step
    integrated: np.ndarray  # (T + 1, 2) where the model believes it is, in the same basis
    explained: float  # share of the variance of truth that the alignment explains


def draw_map(picture: MapPicture, path: Path) -> None:
    """Write the three panels to ``path`` (PNG)."""
    with figure_file(path, 13, 4.6) as figure:
        left, middle, right = figure.subplots(1, 3)
        _movements(left, picture)
        _walk(middle, picture.truth, "An unseen walk: where it really goes\n")
        _walk(
            right,
            picture.integrated,
            f"The same walk, path-integrated by the model\n(aligned by a linear map, R² = {picture.explained:.4f})",
        )
        limits = _limits(np.concatenate((picture.truth, picture.integrated)))
        for axes in (middle, right):
            axes.set(xlim=limits[0], ylim=limits[1])


def _movements(axes: Axes, picture: MapPicture) -> None:
    """Actions as arrows from the origin, observations as dots that should sit on it."""
    actions = set(picture.action_ids)
    others = np.array([m for i, m in enumerate(picture.movements) if i not in actions])
    reach = float(np.abs(picture.movements).max()) * 1.3
    for index in picture.action_ids:
        x, y = picture.movements[index]
        axes.annotate(
            "", (x, y), (0, 0), arrowprops={"arrowstyle": "-|>", "color": ACTION, "lw": 2, "shrinkA": 0, "shrinkB": 0}
        )
        length = float(np.hypot(x, y)) or 1.0
        offset = 0.09 * reach
        axes.text(
            x + offset * x / length,
            y + offset * y / length,
            picture.token_names[index],
            color=ACTION,
            fontsize=15,
            ha="center",
            va="center",
        )
    axes.scatter(
        others[:, 0], others[:, 1], s=22, color=OBSERVATION, alpha=0.75, zorder=3, label=f"{len(others)} observations"
    )
    axes.plot([], [], color=ACTION, lw=2, label=f"{len(actions)} actions")
    axes.axhline(0, color=SOFT, lw=0.6, zorder=0)
    axes.axvline(0, color=SOFT, lw=0.6, zorder=0)
    axes.set(
        xlim=(-reach, reach),
        ylim=(-reach, reach),
        aspect="equal",
        title=r"What each token does: its learned movement $\Delta_{in}$" + "\n",
    )
    axes.set(xlabel="first inner dimension", ylabel="second inner dimension")
    _legend_below(axes)


def _walk(axes: Axes, points: np.ndarray, title: str) -> None:
    """A path coloured from its start (light) to its end (dark)."""
    steps = len(points)
    colours = matplotlib.colormaps["viridis_r"](np.linspace(0.1, 1, steps))
    for i in range(steps - 1):
        axes.plot(points[i : i + 2, 0], points[i : i + 2, 1], color=colours[i], lw=1.6, solid_capstyle="round")
    axes.scatter(points[:, 0], points[:, 1], s=7, c=colours, zorder=3)
    axes.scatter(points[0, 0], points[0, 1], s=60, facecolor="white", edgecolor=INK, zorder=4, label="start")
    axes.scatter(points[-1, 0], points[-1, 1], s=60, color=INK, zorder=4, label="end")
    axes.set(title=title, xlabel="x (cells)", ylabel="y (cells)", aspect="equal")
    _legend_below(axes)


def _legend_below(axes: Axes) -> None:
    """Out of the way of the arrows and the walk, wherever they go."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncol=2, frameon=False, fontsize=9)


def _limits(points: np.ndarray) -> list[tuple[float, float]]:
    """Square limits around all points, so that both walks are drawn to one scale."""
    centre = (points.max(axis=0) + points.min(axis=0)) / 2
    half = float((points.max(axis=0) - points.min(axis=0)).max()) / 2 * 1.1 + 0.5
    return [(float(c - half), float(c + half)) for c in centre]
