"""Figures of what turns: action matrices and their compositions, and the angular velocities of rotation blocks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from mapformers.reports.style import COLOURS, SOFT, figure_file
from mapformers.reports.token_figures import matrix_of_figures

Data = Mapping[str, Any]
SHOWN = 16  # rows and columns of an action matrix that are drawn


def draw_compositions(data: Data, path: Path) -> None:
    """Distances from the identity and commutators with the world's shares in them, and the first action matrices."""
    names = data["names"]
    shown = min(4, len(names))
    with figure_file(path, 11.5, 7.2, "pdf") as figure:
        halves: Any = figure.subfigures(2, 1, height_ratios=(1.9, 1))
        upper, lower = halves
        left, right = upper.subplots(1, 2)
        for axes, what, truth, title in (
            (
                left,
                "from_identity",
                "returns",
                "distance of “row, then column” from doing nothing\n(figures: share of places where it returns)",
            ),
            (
                right,
                "commutator",
                "commutes",
                "distance between the two orders\n(figures: share of places where they agree)",
            ),
        ):
            largest = float(np.nanmax(data[what])) or 1.0
            matrix_of_figures(axes, data[what], names, title, (0, max(largest, 0.1)), "viridis", data[truth])
        for axes, name, matrix in zip(lower.subplots(1, shown, squeeze=False)[0], names, data["matrices"]):
            image = axes.imshow(matrix[:SHOWN, :SHOWN], vmin=-1, vmax=1, cmap="RdBu_r")
            axes.set_xticks([])
            axes.set_yticks([])
            axes.set_title(f"matrix of {name}", fontsize=9.5)
        lower.colorbar(image, ax=lower.axes, shrink=0.8, pad=0.01)


def draw_velocities(data: Data, path: Path) -> None:
    """ω against its start, distances in turns of each block, and the slowest and the fastest as circles."""
    covered = "turns" in data
    with figure_file(path, 11.5 if covered else 4.4, 3.4, "pdf") as figure:
        grid = figure.subplots(
            1, 4 if covered else 1, squeeze=False, width_ratios=(1.25, 1.25, 0.8, 0.8) if covered else None
        )[0]
        blocks = np.arange(1, len(data["start"]) + 1)
        grid[0].plot(blocks, data["start"], color=COLOURS[4], lw=1.2, marker="o", ms=3.5, label="at the start")
        grid[0].plot(blocks, np.abs(data["learned"]), color=COLOURS[0], lw=0, marker="D", ms=3.5, label="learned")
        grid[0].set_yscale("log")
        grid[0].set(xlabel="rotation block, fast to slow", ylabel="ω", title="angular velocities")
        grid[0].legend(frameon=False, fontsize=9)
        if not covered:
            return
        grid[1].plot(blocks, data["turns"], color=COLOURS[1], lw=1.2, marker="s", ms=3.5)
        grid[1].axhline(1, color=SOFT, ls="--", lw=1)
        grid[1].set_yscale("log")
        grid[1].set(xlabel="block, by how far actions turn it", ylabel="turns (dashed: one)")
        grid[1].set_title("longest distances covered")
        for axes, (name, turns) in zip(grid[2:], data["circle"].items()):
            angle = 2 * np.pi * turns
            colours = matplotlib.colormaps["viridis_r"](np.linspace(0.1, 1, len(turns)))
            axes.plot(
                np.cos(np.linspace(0, 2 * np.pi, 200)), np.sin(np.linspace(0, 2 * np.pi, 200)), color=SOFT, lw=0.8
            )
            axes.scatter(np.cos(angle), np.sin(angle), s=14, c=colours, lw=0)
            axes.set(
                aspect="equal",
                title=f"{name} block",
                xlim=(-1.25, 1.25),
                ylim=(-1.25, 1.25),
                xlabel="cos θ",
                ylabel="sin θ",
            )
            axes.set_xticks([-1, 0, 1])
            axes.set_yticks([-1, 0, 1])
