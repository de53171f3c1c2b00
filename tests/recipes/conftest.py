"""A small table whose cells run in this process."""

import sys
from pathlib import Path

import pytest

from inline import Inline
from mapformers.launch import local
from mapformers.recipes import RECIPES, Curve, Recipe, Row, Splits, TableView
from mapformers.tasks.navigation import Navigation

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def inline(monkeypatch):
    from making import TINY

    monkeypatch.setattr(local, "start_process", Inline)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    monkeypatch.setattr("sys.argv", list(sys.argv))  # which a worker makes that of the command
    monkeypatch.setattr(Navigation, "training", lambda self, scale: dict(TINY))


@pytest.fixture
def mini(monkeypatch, inline):
    """Two rows on one small world."""
    recipe = Recipe(
        name="mini",
        summary="Small.",
        task="navigation",
        worlds={"1D": {"dims": 1, "steps": 6, "grid": 4}},
        rows=(Row("RoPE (tiny)", "rope", {"d_model": 16}), Row("MapWM", "mapwm", {"d_model": 16, "rank": 1})),
        measures=(Splits({"iid": "IID", "ood-dense": "Dense"}), Curve()),
        views=(TableView(),),
        paper={("MapWM", "1D", "iid"): (0.75, 0.01)},
        finding="MapWM recalls {MapWM | 1D | iid}, RoPE {RoPE (tiny) | 1D | iid}.",
    )
    monkeypatch.setitem(RECIPES._entries, "mini", recipe)
    return recipe
