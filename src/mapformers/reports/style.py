"""The look that all figures share."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from mapformers.files import write_atomically

# Petroff's six colours (arXiv:2107.02270), which colour-blind readers can tell apart too.
COLOURS = ("#5790fc", "#f89c20", "#e42536", "#964a8b", "#9c9ca1", "#7a21dd")
LINES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 1.5, 1, 1.5)), (0, (8, 3, 2, 3)), (0, (2, 4)))  # of one colour
# The order gives colours: the six that stand side by side in the paper's figures have six different ones.
FAMILIES = (
    "MapWM", "MapEM", "RoPE", "CoPE", "TAPE", "PathAtt", "MAmPa", "TEM-t", "Mamba", "NoPE", "LSTM", "Stack-RNN",
)  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P")
INK, SOFT, SHADE = "#222222", "#b8b8b8", "#f0f0f0"
ACTION, OBSERVATION, OPENER, CLOSER = COLOURS[0], COLOURS[1], COLOURS[0], COLOURS[2]
NO_DATES: dict[str, dict[str, Any]] = {  # the same figure is the same bytes
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def family_of(name: object) -> str:
    """The model that a row is a form of: ``MapWM-r2, log n`` is a MapWM, ``RoPE (1L)`` a RoPE."""
    found = [family for family in FAMILIES if str(name).startswith(family)]
    return max(found, key=len, default="")


def _hue(value: object, among: Sequence[object]) -> tuple[str, int]:
    """The colour of a value, and how many before it in the panel have the same.

    A model has its colour everywhere; anything else has the first that is left, in the order of the panel.
    """
    of_families = {family_of(other) for other in among} - {""}
    taken = {COLOURS[FAMILIES.index(family) % len(COLOURS)] for family in of_families}
    left = cycle([colour for colour in COLOURS if colour not in taken] or COLOURS)
    hues = []
    for other in among:
        family = family_of(other)
        hues.append(COLOURS[FAMILIES.index(family) % len(COLOURS)] if family else next(left))
    at = list(among).index(value)
    return hues[at], hues[:at].count(hues[at])


def colour_of(value: object, among: Sequence[object]) -> str:
    """The colour of an area; forms of one model in one panel are lighter one after the other."""
    hue, before = _hue(value, among)
    share = 0.6 ** (before % 4)
    red, green, blue = (1 - share * (1 - part) for part in to_rgb(hue))
    return to_hex((red, green, blue))


def line_of(value: object, among: Sequence[object]) -> dict[str, Any]:
    """Colour and dashes of a line, so that forms of one model in one panel differ."""
    hue, before = _hue(value, among)
    return {"color": hue, "linestyle": LINES[before % len(LINES)]}


def marker_of(value: object, among: Sequence[object]) -> str:
    index = list(among).index(value)
    return MARKERS[(index + index // len(COLOURS)) % len(MARKERS)]


def log_scale(axes: Axes) -> None:
    """Figures on a log scale, with plain numbers at 1, 2, 5, 10, 20 …"""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def words(setting: str) -> str:
    """``max_depth`` as an axis names it."""
    return setting.replace("_", " ")


@contextmanager
def figure_file(path: Path, width: float, height: float, *others: str) -> Iterator[Figure]:
    """A figure to draw on; it is written to ``path`` (PNG) at the end, whole or not at all.

    ``others``: formats, such as pdf, in which it is written beside that.
    """
    with matplotlib.rc_context(
        {
            "font.size": 10,
            "axes.titlesize": 10.5,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "pdf.fonttype": 42,
        }
    ):
        figure = Figure(figsize=(width, height), layout="constrained", dpi=150)
        yield figure
        drawn = {}
        for form in ("png", *others):
            page = io.BytesIO()
            figure.savefig(page, format=form, bbox_inches="tight", pad_inches=0.1, metadata=NO_DATES.get(form))
            drawn[form] = page.getvalue()
    path.parent.mkdir(parents=True, exist_ok=True)
    for form, content in drawn.items():
        write_atomically(path.with_suffix(f".{form}"), content)
