"""Figures of bracket languages: the string as a walk, codes, attention with brackets on its axes, F1 panels."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from mapformers.reports.heat_maps import short
from mapformers.reports.style import CLOSER, COLOURS, INK, OPENER, SOFT, figure_file

Data = Mapping[str, Any]


def draw_trajectory(data: Data, path: Path) -> None:
    """Movements of the brackets, and the walk that the string makes of them."""
    types = data["types"]
    with figure_file(path, 12.6, 4.3, "pdf") as figure:
        left, middle, right = figure.subplots(1, 3)
        points = data["movements"]
        reach = float(np.abs(points).max()) * 1.3 or 1.0
        for index, ((x, y), name) in enumerate(zip(points, data["names"])):
            colour = OPENER if index < types else CLOSER
            arrow = {"arrowstyle": "-|>", "color": colour, "lw": 2, "shrinkA": 0, "shrinkB": 0}
            left.annotate("", (x, y), (0, 0), arrowprops=arrow)
            length = float(np.hypot(x, y)) or 1.0
            left.text(
                x + 0.1 * reach * x / length, y + 0.1 * reach * y / length, name, ha="center", va="center", fontsize=13
            )
        left.axhline(0, color=SOFT, lw=0.6, zorder=0)
        left.axvline(0, color=SOFT, lw=0.6, zorder=0)
        left.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", title="what each bracket does")
        for label, colour in (("opens", OPENER), ("closes", CLOSER)):
            left.plot([], [], color=colour, lw=2, label=label)
        left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncol=2, frameon=False, fontsize=9)
        _string(middle, data["path"], data["string"], f"the walk of {data['string']}")
        _string(right, data["steady"], data["string"], "the same without the mean movement")
        for axes in (left, middle, right):
            axes.set(xlabel=data["axes"][0], ylabel=data["axes"][1])


def _string(axes: Axes, path: np.ndarray, string: str, title: str) -> None:
    """Steps that would lie on each other are bent a little to the side, each with its bracket."""
    colours = matplotlib.colormaps["viridis_r"](np.linspace(0.15, 1, len(path)))
    span = float(np.ptp(path, axis=0).max()) or 1.0
    for step, symbol in enumerate(string):
        begin, end = path[step], path[step + 1]
        arrow = {"arrowstyle": "-|>", "color": colours[step], "lw": 1.7, "shrinkA": 3, "shrinkB": 3}
        axes.annotate("", end, begin, arrowprops={**arrow, "connectionstyle": "arc3,rad=0.28"})
        along = end - begin
        length = float(np.hypot(*along)) or 1.0
        side = np.array([along[1], -along[0]]) / length * (0.14 * length + 0.04 * span)
        spot = begin + 0.5 * along + side
        axes.text(spot[0], spot[1], symbol, color=INK, fontsize=11, ha="center", va="center")
    axes.scatter(path[:, 0], path[:, 1], s=16, c=colours, zorder=3)
    axes.scatter(path[0, 0], path[0, 1], marker="x", s=60, color=INK, zorder=4)
    axes.annotate("start", path[0], (6, -12), textcoords="offset points", fontsize=9)
    axes.margins(0.22)
    axes.set(title=title, aspect="equal", adjustable="datalim")


def draw_bracket_codes(data: Data, path: Path) -> None:
    panels, types = data["panels"], data["types"]
    with figure_file(path, 4.4 * len(panels), 4.1, "pdf") as figure:
        grid = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, panel in zip(grid, panels):
            for index, ((x, y), label) in enumerate(zip(panel["points"], panel["labels"])):
                opens = index % (2 * types) < types
                marker = "^" if label.startswith("k ") else "o"
                axes.scatter(x, y, s=46, color=OPENER if opens else CLOSER, marker=marker, lw=0)
                above = (5, 4) if index % 2 == 0 else (5, -11)  # two that lie on each other can both be read
                axes.annotate(label, (x, y), above, textcoords="offset points", fontsize=10)
            axes.axhline(0, color=SOFT, lw=0.6, zorder=0)
            axes.axvline(0, color=SOFT, lw=0.6, zorder=0)
            axes.margins(0.18)
            axes.set(title=panel["title"], xlabel=panel["axes"][0], ylabel=panel["axes"][1])
        for label, colour in (("opens", OPENER), ("closes", CLOSER)):
            grid[0].scatter([], [], color=colour, s=40, label=label)
        figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)


def draw_bracket_attention(data: Data, path: Path) -> None:
    attention, brackets = data["attention"], data["brackets"]
    with figure_file(path, 10.2, 4.9, "pdf") as figure:
        left, right = figure.subplots(1, 2, width_ratios=(1.3, 1))
        image = left.imshow(attention, cmap="viridis", vmin=0, vmax=1)
        for row, column in data["marked"]:
            left.add_patch(matplotlib.patches.Circle((column, row), 0.62, fill=False, edgecolor=COLOURS[2], lw=1.2))
        left.set_xticks(range(len(brackets)), brackets)
        left.set_yticks(range(len(brackets)), brackets)
        left.tick_params(length=0, labelsize=8.5)
        left.set(xlabel="keys", ylabel="queries", title="attention; circles: the last open bracket")
        figure.colorbar(image, ax=left, shrink=0.75, pad=0.02)
        for (name, shares), colour, marker in zip(data["by_depth"].items(), (COLOURS[0], COLOURS[1]), ("o", "s")):
            depths = sorted(shares)
            label = "sequences as in training" if name == "training" else "deeper and longer ones"
            right.plot(
                depths, [shares[depth] for depth in depths], color=colour, marker=marker, ms=4.5, lw=1.8, label=label
            )
        right.axvline(data["trained_depth"], color=SOFT, ls="--", lw=1)
        right.text(data["trained_depth"], 0.02, " depth of training", fontsize=8.5, color="#707070")
        right.set(ylim=(0, 1.03), xlabel="brackets that are still open", ylabel="share of the last open bracket")
        right.set_title("what closing queries attend to")
        right.legend(frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0, 0.08))


def draw_continuations(data: Data, path: Path) -> None:
    names, logits = data["names"], data["logits"]
    largest = float(np.abs(logits).max()) or 1.0
    with figure_file(path, 3.9, 3.2, "pdf") as figure:
        axes = figure.subplots()
        image = axes.imshow(logits, cmap="RdBu_r", vmin=-largest, vmax=largest)
        for (i, j), value in np.ndenumerate(logits):
            dark = abs(value) > 0.6 * largest
            text = f"{value:+.1f}".replace("-", "−")
            axes.text(j, i, text, ha="center", va="center", fontsize=9.5, color="white" if dark else INK)
        axes.set_xticks(range(len(names)), names)
        axes.set_yticks(range(len(names)), [f"after {name}" for name in names])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set(title="logits after one symbol", xlabel="may it follow? (above 0: yes)")
        figure.colorbar(image, ax=axes, shrink=0.8, pad=0.03)


def draw_lengths_and_depths(data: Data, path: Path) -> None:
    values = np.array([[np.nan if v is None else v for v in row] for row in data["matrix"]], dtype=float)
    lengths, depths = data["lengths"], data["depths"]
    with figure_file(path, 8.6, 3.3, "pdf") as figure:
        left, right = figure.subplots(1, 2)
        image = left.imshow(values, vmin=0, vmax=1, cmap="viridis", origin="lower", aspect="auto")
        for (i, j), value in np.ndenumerate(values):
            if not np.isnan(value):
                left.text(j, i, short(value), ha="center", va="center", color="white" if value < 0.6 else "black")
        left.set_xticks(range(len(depths)), [str(depth) for depth in depths])
        left.set_yticks(range(len(lengths)), [str(length) for length in lengths])
        left.set(xlabel="depth", ylabel="length", title="F1 (framed: as trained)")
        length, depth = data["trained"]
        corner = depths.index(depth) - 0.5, lengths.index(length) - 0.5
        left.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=COLOURS[2], lw=2.2))
        figure.colorbar(image, ax=left, pad=0.02)
        styles = zip(lengths, COLOURS, ("-", (0, (5, 2)), (0, (1, 1.5))), ("o", "s", "^"))
        for index, (length, colour, line, marker) in enumerate(styles):
            right.plot(
                depths, values[index], color=colour, ls=line, marker=marker, ms=4.5, lw=1.7, label=f"length {length}"
            )
        right.axvline(depth, color=SOFT, ls="--", lw=1)
        low = float(np.nanmin(values))
        right.set(
            ylim=(-0.02 if low < 0.5 else np.floor(10 * low) / 10 - 0.01, 1.02),
            xlabel="depth (dashed: as trained)",
            ylabel="F1",
        )
        right.legend(frameon=False, fontsize=9)
