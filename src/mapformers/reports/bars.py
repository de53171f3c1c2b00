"""Bars: one figure for each of several groups, with its spread over seeds."""

from collections.abc import Mapping
from pathlib import Path

from mapformers.reports.style import colour_of, figure_file

Bar = tuple[float, float]  # mean and standard deviation


def draw_bars(groups: Mapping[str, Mapping[str, Bar]], path: Path, metric: str, axis: str = "") -> None:
    """``groups``: a place on the horizontal axis -> series -> bar. Written to ``path`` (PNG)."""
    series = list(dict.fromkeys(name for bars in groups.values() for name in bars))
    width = 0.8 / len(series)
    with figure_file(path, 1.5 + 0.5 * len(groups) * max(2, len(series)), 3.2) as figure:
        axes = figure.subplots()
        for index, name in enumerate(series):
            there = [(place, bars[name]) for place, bars in enumerate(groups.values()) if name in bars]
            at = [place + (index - (len(series) - 1) / 2) * width for place, _ in there]
            heights, spreads = [bar[0] for _, bar in there], [bar[1] for _, bar in there]
            axes.bar(at, heights, width, yerr=spreads, capsize=2, color=colour_of(name, series), label=name)
        axes.set_xticks(range(len(groups)), list(groups))
        axes.set(ylabel=metric, xlabel=axis)
        if len(series) > 1:
            figure.legend(loc="outside lower center", ncols=min(4, len(series)), frameon=False)
