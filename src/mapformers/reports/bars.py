"""Bars: figures of several groups, with their spread over seeds and the paper's figure on each that has one."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.artist import Artist
from matplotlib.axes import Axes

from mapformers.reports.style import INK, colour_of, figure_file, words

Bar = tuple[float, float, float | None]  # mean, standard deviation, the paper's figure
Groups = Mapping[str, Mapping[str, Bar]]  # a place on the horizontal axis -> series -> bar


def draw_bars(panels: Mapping[str, Groups], path: Path, metric: str, axis: str = "") -> None:
    """``panels``: title -> groups, one below the other. Written to ``path`` (PNG)."""
    series = list(dict.fromkeys(name for groups in panels.values() for bars in groups.values() for name in bars))
    widest = max(len(groups) for groups in panels.values())
    longest = max(len(place) for groups in panels.values() for place in groups)
    group = max(0.35 + 0.17 * len(series), min(0.9, 0.085 * longest))
    tilted = longest * 0.085 > group
    with figure_file(path, max(3.5, 1.2 + group * widest), (2.9 + tilted * 0.055 * longest) * len(panels)) as figure:
        grid: list[Axes] = figure.subplots(len(panels), squeeze=False)[:, 0].tolist()
        for axes, (title, groups) in zip(grid, panels.items()):
            _groups(axes, groups, series)
            if tilted:
                axes.set_xticks(range(len(groups)), list(groups), rotation=35, ha="right", rotation_mode="anchor")
            else:
                axes.set_xticks(range(len(groups)), list(groups))
            axes.set(ylabel=metric, title=title, xlim=(-0.6, len(groups) - 0.4))
            axes.set_ylim(bottom=0)
        grid[-1].set_xlabel(words(axis))
        handles, labels = _legend(grid)
        if len(labels) > 1 or "paper" in labels:
            figure.legend(handles, labels, loc="outside lower center", ncols=min(5, len(labels)), frameon=False)


def _groups(axes: Axes, groups: Groups, series: Sequence[str]) -> None:
    width = 0.8 / len(series)
    papers: list[tuple[float, float]] = []
    for index, name in enumerate(series):
        there = [(place, bars[name]) for place, bars in enumerate(groups.values()) if name in bars]
        at = [place + (index - (len(series) - 1) / 2) * width for place, _ in there]
        heights, spreads = [bar[0] for _, bar in there], [bar[1] for _, bar in there]
        errors = {"elinewidth": 1, "ecolor": INK, "capsize": 2}
        axes.bar(at, heights, width * 0.92, yerr=spreads, error_kw=errors, color=colour_of(name, series), label=name)
        papers += [(x, bar[2]) for x, (_, bar) in zip(at, there) if bar[2] is not None]
    if papers:
        x, printed = zip(*papers)
        axes.plot(x, printed, "D", ms=3.6, mfc="white", mec=INK, mew=0.9, zorder=3, label="paper")


def _legend(grid: Sequence[Axes]) -> tuple[list[Artist], list[str]]:
    """Every label once, the paper's last."""
    found: dict[str, Artist] = {}
    for axes in grid:
        for handle, label in zip(*axes.get_legend_handles_labels()):
            found.setdefault(label, handle)
    labels = sorted((label for label in found if label), key=lambda label: label == "paper")
    return [found[label] for label in labels], labels
