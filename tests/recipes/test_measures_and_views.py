"""A sweep, an L × D grid and a language run are declared like a table, and run through reproduce."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from making import keys, run_recipe

from mapformers.plugins import import_plugins
from mapformers.recipes import (
    RECIPES,
    BarView,
    Curve,
    CurveView,
    GridMeasure,
    GridView,
    Recipe,
    Row,
    Splits,
    TableView,
    collect,
)  # fmt: skip
from mapformers.recipes.views.grids import mean_matrix
from mapformers.registry import TASKS
from mapformers.tasks import Metric, Task
from mapformers.tasks.dyck import Dyck
from mapformers.tasks.task import Batch, TaskEntry

DOCUMENT = Path(__file__).parents[2] / "docs/recipes.md"
PNG = b"\x89PNG"


def figures(recipe, record, folder):
    """Every figure of a recipe, drawn: name of the file -> whether it is a picture."""
    drawn = {}
    for view in recipe.views:
        for name, draw in view.plots(recipe, record).items():
            draw(folder / name)
            drawn[name] = (folder / name).read_bytes().startswith(PNG)
    return drawn


def tables(recipe, record):
    return [table for view in recipe.views for table in view.tables(recipe, record)]


@pytest.fixture(scope="module")
def documented(tmp_path_factory):
    """The recipes that docs/recipes.md declares."""
    [_, block] = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL)
    file = tmp_path_factory.mktemp("mine") / "mine.py"
    file.write_text(block)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAPFORMERS_IMPORT", "")
        import_plugins([str(file)])
        yield {name: RECIPES[name] for name in ("head-size", "dyck-grid")}
    for name in ("head-size", "dyck-grid"):
        del RECIPES._entries[name]


def test_a_sweep_over_the_size_of_a_head(documented, inline, tmp_path):
    recipe = documented["head-size"]
    record = run_recipe(recipe, tmp_path, rows=["MapWM"], scale="smoke")
    assert keys(record) == [("MapWM", "2D, 16 steps", 0)] * 2
    assert [run["sweep"] for run in record["runs"]] == [{"head_dim": 16}, {"head_dim": 8}]
    assert {run["config"]["model"]["head_dim"] for run in record["runs"]} == {8, 16}
    table, beside = tables(recipe, record)
    assert [row[0] for row in beside.rows] == ["MapWM, head_dim=8", "MapWM, head_dim=16"]
    assert [row[0].rstrip(" °↗") for row in table.rows] == ["MapWM, head_dim=8", "MapWM, head_dim=16"]
    assert figures(recipe, record, tmp_path) == {"head-size-iid-over-head_dim.png": True}  # curves have two points
    longer = {**record, "runs": [{**run, "curve": [*run["curve"], run["curve"][-1]]} for run in record["runs"]]}
    assert figures(recipe, longer, tmp_path) == {"head-size-curves.png": True, "head-size-iid-over-head_dim.png": True}
    assert collect([tmp_path / "runs"]).records["head-size", "smoke"] == record


def test_a_grid_of_lengths_and_depths(documented, inline, tmp_path, monkeypatch):
    small = {"sequences": 8, "batch_size": 4, "eval_every": 2, "eval_sequences": 4, "final_sequences": 4}
    monkeypatch.setattr(Dyck, "training", lambda self, scale: small)
    recipe = documented["dyck-grid"]
    record = run_recipe(recipe, tmp_path, scale="smoke")
    grid = record["runs"][0]["measures"]["length x depth"]
    assert grid["axes"] == {"length": [8, 16], "depth": [2, 4]} and grid["metric"] == "f1"
    by_split, *by_place = tables(recipe, record)
    assert [row[0].rstrip(" °") for row in by_split.rows] == ["MapWM", "RoPE"]
    assert [table.headings for table in by_place] == [["length \\ depth", "2", "4"]] * 2
    assert by_place[0].rows[0][1] == f"{grid['values'][0][0]:.3f}"
    assert figures(recipe, record, tmp_path) == {
        "dyck-grid-length-depth.png": True,
        "dyck-grid-length-at-depth-2.png": True,
    }
    assert collect([tmp_path / "runs"]).records["dyck-grid", "smoke"] == record


@dataclass(frozen=True)
class LettersSettings:
    length: int = 8


class Letters(Task[LettersSettings]):
    """Next letters of a periodic text, scored in bits a letter."""

    main_metric = "bits"
    splits = {"iid": {}}

    def __init__(self, settings):
        super().__init__(settings)
        self.token_names, self.action_ids = list("abcd"), []

    def numbers_per_sequence(self, settings):
        return 1

    def draw(self, uniform, settings):
        import torch

        sequence = ((uniform * 4).long() + torch.arange(settings.length + 1)) % 4
        everywhere = torch.ones_like(sequence[:, 1:], dtype=torch.bool)
        return Batch(sequence[:, :-1], sequence[:, 1:], everywhere, everywhere)

    def show(self, split, generator):
        return "abcdabcd"

    def training(self, scale):
        return {
            "sequences": 512, "batch_size": 16, "eval_every": 8, "eval_sequences": 4, "final_sequences": 4, "lr": 0.02,
        }  # fmt: skip

    def score(self, logits, batch):
        return {"bits": Metric(float(self.loss(logits, batch)) / 0.6931, batch.targets.numel())}


def test_a_language_run_is_a_curve_of_bits(inline, tmp_path, monkeypatch):
    Letters.name = "letters"
    monkeypatch.setitem(TASKS._entries, "letters", TaskEntry("letters", LettersSettings, Letters))
    recipe = Recipe(
        name="letters-lm",
        task="letters",
        worlds={"abc": {}},
        rows=(Row("RoPE", "rope", {"d_model": 16}),),
        measures=(
            Splits({"iid": "bits a letter"}, metric="bits", lower_is_better=True),
            Curve("bits", lower_is_better=True),
        ),
        views=(CurveView(goal=None), TableView()),
    )
    monkeypatch.setitem(RECIPES._entries, "letters-lm", recipe)
    record = run_recipe(recipe, tmp_path, scale="smoke")
    curve = [point["bits"] for point in record["runs"][0]["curve"]]
    assert len(curve) == 4 and curve[-1] < 1 < curve[0]
    [table] = tables(recipe, record)
    assert table.rows[0][2] == f"{record['runs'][0]['splits']['iid']['bits']['value']:.3f}"
    assert figures(recipe, record, tmp_path) == {"letters-lm-curves.png": True}


def test_grids_are_averaged_place_by_place():
    grids = [{"values": [[0.5, None], [1.0, 0.0]]}, {"values": [[0.25, 0.5], [0.0, 0.0]]}]
    assert mean_matrix(grids) == [[0.375, None], [0.5, 0.0]]


def test_a_grid_with_other_values_is_not_the_one_asked_for():
    grid = GridMeasure("length", (8, 16), "depth", (2,))
    kept = {"axes": {"length": [8, 16], "depth": [2]}, "metric": "f1", "values": [[0.5], [0.5]]}
    assert grid.fits(kept) and not grid.fits(None)
    assert not GridMeasure("length", (8,), "depth", (2,)).fits(kept)
    assert not GridMeasure("length", (8, 16), "depth", (2,), metric="exact").fits(kept)


def test_bars_by_row(mini, tmp_path):
    from making import RECORD

    [(name, draw)] = BarView("iid").plots(mini, RECORD).items()
    draw(tmp_path / name)
    assert name == "mini-iid-rows.png" and (tmp_path / name).read_bytes().startswith(PNG)


def test_a_view_of_nothing_measured_is_empty(mini):
    empty = {"recipe": "mini", "scale": "cpu", "runs": []}
    grid = GridMeasure("steps", (4,), "grid", (3,))
    for view in (TableView(), CurveView(), BarView(), GridView(grid)):
        assert view.tables(mini, empty) == [] and view.plots(mini, empty) == {}
