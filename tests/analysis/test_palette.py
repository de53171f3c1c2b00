"""One colour per model everywhere, and colours that colour-blind readers can tell apart."""

from itertools import combinations

import numpy as np
from matplotlib.colors import to_rgb

from mapformers.reports.style import COLOURS, FAMILIES, colour_of, family_of, line_of

# Machado, Oliveira and Fernandes (2009), severity 1, in linear RGB.
SIGHT = {
    "ordinary": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
# Ottosson (2020): linear RGB to cone responses, and their cube roots to OKLab.
CONES = [
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
]
LAB = [
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
]


def oklab(colour: str, sight: str) -> np.ndarray:
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = (np.array(SIGHT[sight]) @ linear).clip(0, 1)
    return np.array(LAB) @ np.cbrt(np.array(CONES) @ seen)


def test_colours_can_be_told_apart_by_all_kinds_of_sight():
    apart = {
        (sight, *pair): float(np.linalg.norm(oklab(pair[0], sight) - oklab(pair[1], sight)))
        for sight in SIGHT
        for pair in combinations(COLOURS, 2)
    }
    assert min(apart.values()) > 0.1, min(apart, key=lambda key: apart[key])


def test_a_model_has_its_colour_whatever_stands_beside_it():
    rows = ["MapWM-r2", "MapWM-r2, log n", "RoPE (1L)", "MapEM-os", "something else"]
    for row in rows[:4]:
        assert line_of(row, rows)["color"] == line_of(row, rows[::-1])["color"] == line_of(row, [row])["color"]
    assert line_of(rows[0], rows)["color"] == line_of(rows[1], rows)["color"] != line_of(rows[2], rows)["color"]
    assert line_of(rows[0], rows)["linestyle"] != line_of(rows[1], rows)["linestyle"]
    assert colour_of(rows[0], rows) == COLOURS[0] and colour_of(rows[1], rows) not in COLOURS
    assert len({colour_of(row, rows) for row in rows}) == len(rows)


def test_a_row_that_is_no_model_takes_a_colour_that_no_model_of_the_panel_has():
    rows = ["first", "RoPE", "RoPE, log n", "second", "MapWM"]
    colours = {row: line_of(row, rows)["color"] for row in rows}
    assert len({colours["first"], colours["second"], colours["RoPE"], colours["MapWM"]}) == 4
    assert colours["RoPE"] == colours["RoPE, log n"]


def test_the_models_of_one_figure_of_the_paper_have_six_colours():
    assert len({line_of(name, [name])["color"] for name in FAMILIES[:6]}) == 6
    assert [family_of(name) for name in ("Mamba-2", "MAmPa", "iid")] == ["Mamba", "MAmPa", ""]
