"""Lines: a figure over a number, a panel per world, a line per row, with its spread over seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from mapformers.reports.style import INK, SHADE, SOFT, figure_file, line_of, log_scale, marker_of, words

Panels = Mapping[str, "Mapping[str, Series]"]
FAR_APART = 3.0


@dataclass(frozen=True)
class Series:
    """``points``: (number, mean, standard deviation) in order; ``paper``: (number, printed figure)."""

    points: list[tuple[float, float, float]] = field(default_factory=list)
    paper: list[tuple[float, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Frame:
    """What surrounds the lines.

    ``log``        whether numbers are on a log scale.
    ``log_y``      whether figures are, if some are more than ``FAR_APART`` times as large as others.
    ``markers``    whether points are marked and have error bars; otherwise the spread is a band.
    ``share``      whether figures are between 0 and 1.
    ``goal``       a dashed line, of a share.
    ``shaded_to``  the largest number that training had.
    ``legends``    whether every panel has a legend of its own, below it, and looks for its lines alone.
    """

    xlabel: str
    ylabel: str
    log: bool = False
    log_y: bool = False
    markers: bool = True
    share: bool = False
    goal: float | None = None
    shaded_to: float | None = None
    legends: bool = False


def draw_series(panels: Panels, path: Path, frame: Frame) -> None:
    """``panels``: title -> name of a line -> series. Written to ``path`` (PNG)."""
    names = list(dict.fromkeys(name for series in panels.values() for name in series))
    frame = replace(frame, log_y=frame.log_y and _are_far_apart(panels))
    columns = min(3, len(panels))
    n_rows = -(-len(panels) // columns)
    beside = 0 if frame.legends else 1.1 + 0.075 * max(map(len, names), default=0)
    below = 0.11 * max(map(len, panels.values())) if frame.legends else 0  # in two columns
    high = (3.1 + below) * n_rows
    with figure_file(
        path, 4.2 * columns + beside, high if frame.legends else max(high, 0.3 + 0.22 * len(names))
    ) as figure:
        grid = figure.subplots(n_rows, columns, squeeze=False, sharey=True)
        handles: dict[str, Artist] = {}
        for index, (axes, (title, series)) in enumerate(zip(grid.flat, panels.items())):
            among = list(series) if frame.legends else names
            drawn = {name: _line(axes, name, line, among, frame) for name, line in series.items()}
            handles = {**drawn, **handles}
            if frame.legends:
                place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.17), "ncols": 2}
                axes.legend(list(drawn.values()), list(drawn), frameon=False, handlelength=3, fontsize=9, **place)
            _surround(axes, [x for line in series.values() for x, *_ in line.points], frame)
            if frame.share or frame.goal is not None:
                axes.set_ylim(_floor(panels), 1.04)
            axes.set_title(title)
            if index % columns == 0:
                axes.set_ylabel(words(frame.ylabel))
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        if any(line.paper for series in panels.values() for line in series.values()):
            handles["paper"] = Line2D([], [], ls="", marker="o", markersize=8, mfc="none", mec=INK)
        if not frame.legends:
            shown = list(handles.values()), list(handles)
            figure.legend(*shown, loc="outside right center", frameon=False, handlelength=3)


def _line(axes: Axes, name: str, series: Series, names: Sequence[str], frame: Frame) -> Artist:
    """One line with its spread, and the paper's figures as open marks; returns what the legend shows."""
    x, means, spreads = ([point[i] for point in series.points] for i in range(3))
    style = line_of(name, names)
    if frame.markers:
        marker = marker_of(name, names)
        axes.errorbar(x, means, yerr=spreads, fmt="none", ecolor=style["color"], elinewidth=1, capsize=2)
        [drawn] = axes.plot(x, means, lw=1.6, marker=marker, markersize=4.5, **style)
        at, printed = [x for x, _ in series.paper], [figure for _, figure in series.paper]
        axes.plot(at, printed, ls="", marker=marker, markersize=8, mfc="none", mec=style["color"])
        return drawn
    low = [mean - spread for mean, spread in zip(means, spreads)]
    high = [mean + spread for mean, spread in zip(means, spreads)]
    axes.fill_between(x, low, high, color=style["color"], alpha=0.18, lw=0)
    return axes.plot(x, means, lw=1.7, **style)[0]


def _figures(panels: Panels) -> list[tuple[float, float]]:
    """The mean and the standard deviation of every point."""
    return [(mean, std) for series in panels.values() for line in series.values() for _, mean, std in line.points]


def _are_far_apart(panels: Panels) -> bool:
    means = [mean for mean, _ in _figures(panels)]
    return bool(means) and min(means) > 0 and max(means) > FAR_APART * min(means)


def _floor(panels: Panels) -> float:
    """Where the axis of shares begins: at 0, or at the tenth below the lowest figure if all are in the upper half."""
    lowest = min((mean - std for mean, std in _figures(panels)), default=0.0)
    return -0.03 if lowest < 0.5 else math.floor(10 * lowest) / 10 - 0.01


def _lines_are_high(axes: Axes, up_to: float) -> bool:
    """Whether what is drawn up to a number on the x-axis is mostly in the upper half, so that words fit below it."""
    to_axes = axes.transData + axes.transAxes.inverted()
    drawn = [point for line in axes.lines for point in line.get_xydata().tolist()]  # type: ignore[union-attr]
    heights = sorted(to_axes.transform(point)[1] for point in drawn if point[0] <= up_to)
    return not heights or bool(heights[len(heights) // 2] > 0.5)


def _surround(axes: Axes, numbers: Sequence[float], frame: Frame) -> None:
    axes.set_xlabel(words(frame.xlabel))
    if frame.goal is not None:
        axes.axhline(frame.goal, color=SOFT, lw=1, ls="--", zorder=0)
    if frame.log:
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
    if frame.log_y:
        log_scale(axes)
    if frame.shaded_to is not None:
        left, right = axes.get_xlim()
        axes.axvspan(left, frame.shaded_to, color=SHADE, lw=0, zorder=-1)
        axes.set_xlim(left, right)
        below = _lines_are_high(axes, frame.shaded_to)
        label = axes.text(left, 0.01 if below else 0.99, " trained", transform=axes.get_xaxis_transform())
        label.set(color="#808080", fontsize=8, va="bottom" if below else "top")
    different = sorted(set(numbers))
    if frame.markers and len(different) <= 9:
        axes.set_xticks(different, [f"{number:g}" for number in different])
        axes.minorticks_off()
    elif frame.log:
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
