"""A film of a map being learned: an animated GIF, a frame per snapshot."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from mapformers.files import write_atomically
from mapformers.reports.style import COLOURS
from mapformers.reports.token_figures import arrows

FRAME, LAST = 450, 2500  # milliseconds


def draw_film(data: Mapping[str, Any], path: Path) -> None:
    """Every frame to one scale: the arrows of actions and, on a grid, a walk as it is and as the model has it."""
    frames = data["frames"]
    reach = 1.35 * max(float(np.abs(frame["points"]).max()) for frame in frames) or 1.0
    pictures = []
    for frame in frames:
        walks = "truth" in frame
        figure = Figure(figsize=(8.4 if walks else 4.2, 4.2), layout="constrained", dpi=80)
        grid = figure.subplots(1, 2 if walks else 1, squeeze=False)[0]
        arrows(grid[0], frame["points"], data["names"], data["actions"])
        grid[0].set(xlim=(-reach, reach), ylim=(-reach, reach), xlabel=data["axes"][0], ylabel=data["axes"][1])
        grid[0].set_title(f"after {frame['sequences']:,} sequences")
        if walks:
            _walk(grid[1], frame)
        drawn = io.BytesIO()
        figure.savefig(drawn, format="png", metadata={"Software": None})
        pictures.append(Image.open(drawn).convert("RGB").quantize(64))
    film = io.BytesIO()
    durations = [FRAME] * (len(pictures) - 1) + [LAST]
    pictures[0].save(film, "GIF", save_all=True, append_images=pictures[1:], duration=durations, loop=0)
    write_atomically(path, film.getvalue())


def _walk(axes: Axes, frame: Mapping[str, Any]) -> None:
    """Along the first two axes of the grid, or along its only one over time."""
    for points, colour, width, label in (
        (frame["truth"], COLOURS[4], 3.0, "true"),
        (frame["integrated"], COLOURS[0], 1.4, "path-integrated"),
    ):
        along = np.arange(len(points)) if points.shape[1] == 1 else points[:, 0]
        axes.plot(along, points[:, 0 if points.shape[1] == 1 else 1], color=colour, lw=width, label=label)
    true = frame["truth"]
    if true.shape[1] > 1:
        centre, half = (true.max(axis=0) + true.min(axis=0)) / 2, float(np.ptp(true, axis=0).max()) * 0.7 + 1
        axes.set(xlim=(centre[0] - half, centre[0] + half), ylim=(centre[1] - half, centre[1] + half), aspect="equal")
    axes.set(
        xlabel="step" if true.shape[1] == 1 else "x (cells)", ylabel="x (cells)" if true.shape[1] == 1 else "y (cells)"
    )
    axes.set_title("an unseen walk")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncol=2, frameon=False, fontsize=9)
