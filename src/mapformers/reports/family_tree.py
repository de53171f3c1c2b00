"""The picture of a family: a row for each generation, couples side by side, lines down to their children, and names."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

MOTHER, FATHER, SPOUSE = 0, 1, 2
WOMAN, MAN, INK = "#e07b1f", "#1f5fa8", "#222222"
BETWEEN_PARTNERS, BETWEEN_HOMES = 1.0, 1.35  # the unit of both axes


@dataclass(frozen=True)
class FamilyPicture:
    """All the figure needs: plain arrays, no task."""

    relatives: np.ndarray  # (people, 6): mother, father, spouse, older, younger, oldest child; -1 is nobody
    female: np.ndarray  # (people,)
    generation: np.ndarray  # (people,)
    names: Mapping[int, str] = field(default_factory=dict)  # of those who have one
    walk: Sequence[int] = ()  # the persons met, in order
    title: str = ""


def draw_family(picture: FamilyPicture, path: Path | str) -> None:
    """Write the picture to ``path`` (PNG)."""
    x = _places(picture)
    width = float(x.max() - x.min()) + 2
    row = 2.0 + width / 50  # the wider, the more bars there are between two generations
    y = -row * picture.generation
    with matplotlib.rc_context({"font.size": 8, "axes.titlesize": 11}):
        figure = Figure(figsize=(max(7.0, 0.42 * width), 0.42 * row * (1 + picture.generation.max()) + 1), dpi=120)
        axes = figure.subplots()
        _couples_and_children(axes, picture, x, y)
        _people(axes, picture, x, y)
        axes.set(xlim=(x.min() - 1, x.max() + 1), ylim=(y.min() - 1.1, 0.7), aspect="equal", title=picture.title)
        axes.axis("off")
        _legend(axes, bool(picture.walk))
        figure.savefig(path, bbox_inches="tight", pad_inches=0.15)


def _people(axes: Axes, picture: FamilyPicture, x: np.ndarray, y: np.ndarray) -> None:
    """Women round, men square; those met are filled, and named below."""
    met = np.isin(np.arange(len(x)), list(picture.walk)) if picture.walk else np.ones(len(x), dtype=bool)
    for women, marker, colour in ((True, "o", WOMAN), (False, "s", MAN)):
        for filled in (False, True):
            chosen = (picture.female == women) & (met == filled)
            axes.scatter(
                x[chosen],
                y[chosen],
                s=70,
                marker=marker,
                facecolor=colour if filled else "white",
                edgecolor=colour,
                zorder=3,
            )
    for person, name in picture.names.items():
        axes.text(x[person], y[person] - 0.34, name, ha="center", va="top", color=INK, fontsize=7.5, zorder=4)
    for person, label in zip((*picture.walk[:1], *picture.walk[-1:]), ("first", "last")):
        paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
        style: dict[str, Any] = {
            "ha": "center",
            "va": "bottom",
            "color": INK,
            "fontsize": 7.5,
            "style": "italic",
            "bbox": paper,
        }
        axes.text(x[person], y[person] + 0.32, label, zorder=2, **style)


def _couples_and_children(axes: Axes, picture: FamilyPicture, x: np.ndarray, y: np.ndarray) -> None:
    """A line between partners; from its middle down to a bar above the children."""
    for person, partner in enumerate(picture.relatives[:, SPOUSE].tolist()):
        if person < partner:
            axes.plot([x[person], x[partner]], [y[person], y[partner]], color=INK, lw=1.2, zorder=2)
    colours = matplotlib.colormaps["tab20"].colors  # type: ignore[attr-defined]
    bars = _bars(picture, x, y)
    for number, ((mother, father), children) in enumerate(_homes(picture)):
        middle, bar = (x[mother] + x[father]) / 2, bars[mother, father]
        left, right = min(middle, x[children].min()), max(middle, x[children].max())
        style = {"color": colours[2 * number % 20], "lw": 1.1, "zorder": 1, "solid_capstyle": "round"}
        axes.plot([middle, middle], [y[mother], bar], **style)
        axes.plot([left, right], [bar, bar], **style)
        for child in children:
            axes.plot([x[child], x[child]], [bar, y[child]], **style)


def _bars(picture: FamilyPicture, x: np.ndarray, y: np.ndarray) -> dict[tuple[int, int], float]:
    """How high the bar of each couple is: between two generations, bars that would overlap take lanes."""
    reach: dict[tuple[int, int], tuple[float, float, int]] = {}  # left, right, the oldest child
    for home, children in _homes(picture):
        ends = [x[list(home)].mean(), *x[children]]
        reach[home] = (min(ends), max(ends), children[0])
    lane_of: dict[tuple[int, int], int] = {}
    taken: dict[int, list[float]] = {}  # by generation: how far to the right each lane is taken
    for home in sorted(reach, key=reach.__getitem__):
        left, right, child = reach[home]
        lanes = taken.setdefault(int(picture.generation[child]), [])
        lane_of[home] = next((i for i, end in enumerate(lanes) if end < left - 0.15), len(lanes))
        lanes[lane_of[home] : lane_of[home] + 1] = [right]
    bars = {}
    for home, lane in lane_of.items():
        child = reach[home][2]
        top, bottom = y[home[0]] - 0.8, y[child] + 0.45
        bars[home] = float(top + (bottom - top) * lane / len(taken[int(picture.generation[child])]))
    return bars


def _homes(picture: FamilyPicture) -> Iterator[tuple[tuple[int, int], list[int]]]:
    """Parents with their children."""
    homes: dict[tuple[int, int], list[int]] = {}
    for person, (mother, father) in enumerate(picture.relatives[:, [MOTHER, FATHER]].tolist()):
        if mother >= 0:
            homes.setdefault((mother, father), []).append(person)
    yield from homes.items()


def _places(picture: FamilyPicture) -> np.ndarray:
    """Where everyone stands in their row: as near to parents and children as the others allow."""
    x = np.zeros(len(picture.female))
    children: dict[int, list[int]] = {}
    for parents, kids in _homes(picture):
        for parent in parents:
            children.setdefault(parent, []).extend(kids)
    rows: list[list[list[int]]] = []
    for generation in range(int(picture.generation.max()) + 1):
        units = _units(picture, np.flatnonzero(picture.generation == generation), x)
        rows.append(units)
        _arrange(x, units, [_mean(x, _parents(picture, unit)) for unit in units])
    for _ in range(8):  # with the order as it is, let parents and children pull at each other
        for units in reversed(rows):
            _arrange(x, units, [_mean(x, sorted({c for p in unit for c in children.get(p, [])})) for unit in units])
        for units in rows[1:]:
            _arrange(x, units, [_mean(x, _parents(picture, unit)) for unit in units])
    return x


def _units(picture: FamilyPicture, people: np.ndarray, x: np.ndarray) -> list[list[int]]:
    """Couples and single people of a generation, ordered by where their parents stand; siblings by age."""

    def origin(person: int) -> tuple[float, int]:
        return (_mean(x, _parents(picture, [person])) or 0.0, person)

    units = []
    for person in people.tolist():
        partner = int(picture.relatives[person, SPOUSE])
        if partner < 0 or person < partner:
            units.append(sorted([p for p in (person, partner) if p >= 0], key=origin))
    born = {id(unit): [p for p in unit if picture.relatives[p, MOTHER] >= 0] or unit for unit in units}
    return sorted(units, key=lambda unit: tuple(np.mean([origin(p) for p in born[id(unit)]], axis=0)))


def _parents(picture: FamilyPicture, people: Sequence[int]) -> list[int]:
    found = picture.relatives[list(people)][:, [MOTHER, FATHER]]
    return [int(parent) for parent in found.flatten() if parent >= 0]


def _mean(x: np.ndarray, people: Sequence[int]) -> float | None:
    return float(x[list(people)].mean()) if people else None


def _arrange(x: np.ndarray, units: list[list[int]], wanted: Sequence[float | None]) -> None:
    """Give each unit its place: nearest to the one wanted (least squares), in order and without overlap."""
    widths = [BETWEEN_PARTNERS * (len(unit) - 1) for unit in units]
    offset = np.cumsum([0.0, *[width + BETWEEN_HOMES for width in widths]])  # left ends when packed
    blocks: list[
        tuple[float, int]
    ] = []  # (mean of what is wanted, less the offset; how many): pooled where out of order
    for unit, width, start, target in zip(units, widths, offset, wanted):
        here = float(x[unit].min()) if target is None else target - width / 2
        blocks.append((here - start, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (one, n), (other, m) = blocks[-2:]
            blocks[-2:] = [((one * n + other * m) / (n + m), n + m)]
    shifts = [mean for mean, count in blocks for _ in range(count)]
    for unit, start, shift in zip(units, offset, shifts):
        x[unit] = start + shift + BETWEEN_PARTNERS * np.arange(len(unit))


def _legend(axes: Axes, walked: bool) -> None:
    def mark(marker: str, colour: str, label: str, filled: bool = True) -> Line2D:
        face = colour if filled else "white"
        return Line2D([], [], marker=marker, ls="", color=colour, markerfacecolor=face, markersize=7, label=label)

    marks = [mark("o", WOMAN, "woman"), mark("s", MAN, "man")]
    if walked:
        marks += [mark("o", INK, "met on the walk"), mark("o", INK, "not met", filled=False)]
    axes.legend(handles=marks, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=4, frameon=False, fontsize=9)
