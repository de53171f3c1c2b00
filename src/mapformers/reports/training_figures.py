"""Figures of how one run learned: raw faint, smoothed bold."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from mapformers.reports.style import ACTION, COLOURS, INK, OBSERVATION, figure_file

Data = Mapping[str, Any]
WINDOW = 0.05  # of all points, over which a curve is smoothed


def smoothed(values: Sequence[float], window: int) -> np.ndarray:
    """The mean of every value and its neighbours, as many on one side as on the other."""
    array, half = np.asarray(values, dtype=float), window // 2
    sums = np.concatenate(([0.0], np.cumsum(array)))
    reach = np.minimum(np.minimum(np.arange(len(array)), np.arange(len(array))[::-1]), half)
    at = np.arange(len(array))
    return (sums[at + reach + 1] - sums[at - reach]) / (2 * reach + 1)


def raw_and_smoothed(axes: Axes, points: Sequence[tuple[float, float]], colour: str, label: str = "") -> None:
    """A curve over thousand sequences."""
    x, y = [n / 1000 for n, _ in points], [value for _, value in points]
    axes.plot(x, y, color=colour, lw=0.8, alpha=0.35)
    axes.plot(x, smoothed(y, max(3, int(WINDOW * len(y)))), color=colour, lw=2, label=label)
    axes.set_xlabel("thousand sequences")


def draw_curves_of_run(data: Data, path: Path) -> None:
    with figure_file(path, 8.4, 3.1, "pdf") as figure:
        left, right = figure.subplots(1, 2)
        if data["loss"]:
            raw_and_smoothed(left, data["loss"], COLOURS[0])
        left.set(title="loss of training", ylabel="loss")
        if data["measured"]:
            x, y = zip(*((n / 1000, value) for n, value in data["measured"]))
            right.plot(x, y, color=COLOURS[0], lw=1.8, marker="o", ms=3)
            if max(y) <= 1:
                right.set_ylim(-0.02, 1.03)
        metric = data["metric"].replace("_", " ")
        right.set(title=f"{metric} on fresh sequences ({data['split']})", ylabel=metric, xlabel="thousand sequences")


def draw_movement_curves(data: Data, path: Path) -> None:
    """‖Δ‖ of actions and observations, and the metric on the axis at the right."""
    with figure_file(path, 5.6, 3.5, "pdf") as figure:
        axes = figure.subplots()
        thousands = [n / 1000 for n in data["sequences"]]
        lines = [
            axes.plot(thousands, data["delta_actions"], color=ACTION, lw=1.9, label="‖Δ‖ of actions")[0],
            axes.plot(
                thousands,
                data["delta_observations"],
                color=OBSERVATION,
                lw=1.9,
                ls=(0, (5, 2)),
                label="‖Δ‖ of observations",
            )[0],
        ]
        axes.set(xlabel="thousand sequences", ylabel="mean ‖Δ‖ after W_out")
        axes.set_ylim(0, 1.12 * max(*data["delta_actions"], *data["delta_observations"]))
        beside = axes.twinx()
        beside.spines["right"].set_visible(True)
        metric = data["metric"].replace("_", " ")
        lines += beside.plot(thousands, data["scores"], color=INK, lw=1.4, ls=(0, (1, 1.5)), label=metric)
        beside.set(ylabel=metric, ylim=(-0.02, 1.03))
        axes.legend(handles=lines, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncol=3, frameon=False, fontsize=9)
