"""Figures of walks on a grid: true and integrated, single units over places, attention when a walk comes back."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes

from mapformers.reports.style import COLOURS, INK, SHADE, SOFT, figure_file

Data = Mapping[str, Any]
AXES = "xyzuv"


def draw_walks(data: Data, path: Path) -> None:
    """In two dimensions both walks side by side, otherwise every axis over time; and the error by length."""
    truth, integrated = data["truth"], data["integrated"]
    fits = f"R² on unseen walks {data['explained']:.4f}"
    flat = truth.shape[1] == 2
    panels = 2 if flat else min(3, truth.shape[1])
    with figure_file(path, 4.1 * (panels + 1), 4.1 if flat else 3.4, "pdf") as figure:
        *grid, last = figure.subplots(1, panels + 1)
        if flat:
            two_walks(grid, truth, integrated)
            grid[0].set_title("where the walk goes")
            grid[1].set_title(f"path-integrated\n{fits}")
        else:
            for index, axes in enumerate(grid):
                axes.plot(truth[:, index], color=COLOURS[4], lw=3, alpha=0.7, label="true")
                axes.plot(integrated[:, index], color=COLOURS[0], lw=1.4, ls=(0, (4, 1.5)), label="path-integrated")
                axes.set(xlabel="step", ylabel=f"{AXES[index]} (cells)", title=f"axis {AXES[index]}")
            grid[0].set_title(f"axis {AXES[0]}; {fits}")
            grid[0].legend(frameon=False, fontsize=9)
        _errors(last, data)


def _errors(axes: Axes, data: Data) -> None:
    axes.axvspan(0, data["trained_steps"], color=SHADE, lw=0, zorder=-1)
    axes.plot(data["lengths"], data["errors"], color=COLOURS[0], lw=1.8, marker="o", ms=3)
    axes.set(title="error by length", xlabel="steps (shaded: as trained)", ylabel="cells from the truth")
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)


def two_walks(panels: Sequence[Axes], truth: np.ndarray, integrated: np.ndarray) -> None:
    """A walk as it is and as a model integrates it, drawn to one scale."""
    limits = _limits(np.concatenate((truth, integrated)))
    for axes, points in zip(panels, (truth, integrated), strict=True):
        _walk(axes, points)
        axes.set(xlim=limits[0], ylim=limits[1], aspect="equal", xlabel="x (cells)", ylabel="y (cells)")
    panels[0].legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncol=2, frameon=False, fontsize=9)


def _walk(axes: Axes, points: np.ndarray) -> None:
    """A path coloured from its start (light) to its end (dark)."""
    colours = matplotlib.colormaps["viridis_r"](np.linspace(0.1, 1, len(points)))
    for i in range(len(points) - 1):
        axes.plot(points[i : i + 2, 0], points[i : i + 2, 1], color=colours[i], lw=1.5, solid_capstyle="round")
    axes.scatter(points[0, 0], points[0, 1], s=50, facecolor="white", edgecolor=INK, zorder=4, label="start")
    axes.scatter(points[-1, 0], points[-1, 1], s=50, color=INK, zorder=4, label="end")


def _limits(points: np.ndarray) -> list[tuple[float, float]]:
    """Square limits around all points."""
    centre = (points.max(axis=0) + points.min(axis=0)) / 2
    half = float((points.max(axis=0) - points.min(axis=0)).max()) / 2 * 1.1 + 0.5
    return [(float(c - half), float(c + half)) for c in centre]


def draw_rate_maps(data: Data, path: Path) -> None:
    """A panel per unit: colours over two axes of the grid, or a line over one."""
    maps = data["maps"]
    columns = 4
    rows = -(-len(maps) // columns)
    with figure_file(path, 11, 2.75 * rows, "pdf") as figure:
        grid = figure.subplots(rows, columns, squeeze=False)
        image = None
        for axes, means, name, tuned in zip(grid.flat, maps, data["names"], data["tuned"]):
            if means.ndim == 1:
                axes.plot(means, color=COLOURS[0], lw=1.3)
                axes.set(ylim=(-1.05, 1.05))
                axes.set_xlabel("cells from the leftmost place", fontsize=9)
            else:
                image = axes.imshow(means.T, origin="lower", vmin=-1, vmax=1, cmap="viridis", interpolation="nearest")
                axes.set_xticks([])
                axes.set_yticks([])
            axes.set_title(f"{name}\nplace explains {tuned:.0%}", fontsize=9)
        if image is not None:
            figure.colorbar(image, ax=grid.ravel().tolist(), shrink=0.6, pad=0.01, label="mean of cos θ")


def draw_revisits(data: Data, path: Path) -> None:
    """Attention on the places of one walk, and its mean share by distance."""
    walked, weights = data["walk"], data["weights"]
    flat = walked[:, :2] if walked.shape[1] > 1 else np.stack((np.arange(len(walked)), walked[:, 0]), axis=1)
    with figure_file(path, 9.2, 4.2, "pdf") as figure:
        left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
        left.plot(flat[:, 0], flat[:, 1], color=SOFT, lw=1, zorder=1)
        left.scatter(
            flat[: len(weights), 0],
            flat[: len(weights), 1],
            s=3 + 420 * weights,
            color=COLOURS[1],
            alpha=0.65,
            lw=0,
            zorder=2,
        )
        left.scatter(flat[-1, 0], flat[-1, 1], marker="x", s=70, color=INK, zorder=3, label="the walk is here again")
        left.scatter([], [], s=60, color=COLOURS[1], alpha=0.65, lw=0, label="attention to what was seen")
        if walked.shape[1] > 1:
            left.set(aspect="equal", xlabel="x (cells)", ylabel="y (cells)")
        else:
            left.set(xlabel="step", ylabel="x (cells)")
        left.set_title("one revisit")
        figure.legend(loc="outside lower left", ncols=2, frameon=False, fontsize=9)
        right.bar(range(len(data["by_distance"])), data["by_distance"], color=COLOURS[1])
        right.set(xlabel="cells between query and key", ylabel="mean share of attention", ylim=(0, 1.03))
        right.set_title(f"all revisits: {data['share']:.0%} on what was seen there")
