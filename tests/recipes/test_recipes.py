"""Recipes: every cell can be built, and the paper's tables are the paper's."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import mapformers as mf
from helpers import tiny_corpus
from mapformers import recipes
from mapformers.recipes import RECIPES, Curve, Recipe, Row, Splits, TableView
from mapformers.recipes.pages import FIELD
from mapformers.recipes.record import is_run_of
from mapformers.registry import FIRST_LINE
from mapformers.runs.config import RunConfig

SCALES = ("smoke", "cpu", "paper")
CELLS = [cell for name in RECIPES for cell in RECIPES[name].cells(seeds=[3])]


@pytest.fixture(scope="module")
def prepared():
    return tiny_corpus()


@pytest.fixture(autouse=True)
def data_of_recipes(prepared, tmp_path, monkeypatch):
    """A text where recipes of language expect theirs."""
    (tmp_path / "data").mkdir()
    for name in ("books-rates", "books", "python"):
        (tmp_path / "data" / name).symlink_to(prepared)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("cell", CELLS, ids=[f"{cell.recipe.name}-{cell.title}" for cell in CELLS])
def test_every_cell_is_a_run_that_can_be_built(cell):
    for scale in SCALES:
        config = cell.config(scale)
        assert RunConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
        assert is_run_of(config, {"config": json.loads(json.dumps(config.to_dict()))})
        assert config.seed == 3
        assert config.model.layers[0].name == (cell.row.model or cell.row.layers[0][0])
        assert config.model.vocab_size == config.build_task().vocab_size
    config.build_model()


@pytest.mark.parametrize("name", mf.list_recipes())
def test_columns_printed_figures_and_the_finding_belong_to_the_table(name):
    recipe = RECIPES[name]
    assert len(recipe.lines()) == len(set(recipe.lines()))
    for world in recipe.worlds:
        task = recipe.build_task(world)
        assert set(recipe.splits) <= set(task.splits)
    named = FIELD.findall(recipe.finding)
    assert named and len(named) == recipe.finding.count("{")
    for line, world, split in [*recipe.paper, *named]:
        assert line in recipe.lines() and world in recipe.worlds and split in recipe.splits


@pytest.mark.parametrize("name", mf.list_recipes())
def test_a_recipe_is_a_file_that_opens_with_its_name_and_summary(name):
    file = next(path for path in Path(recipes.__file__).parent.glob("*.py") if _opens(path, name))
    assert re.findall(r'\bname="([\w-]+)"', file.read_text()) == [name]
    assert RECIPES[name].summary == RECIPES.summary(name) == FIRST_LINE.match(_first(file))[2]


def _first(path):
    return path.read_text().splitlines()[0]


def _opens(path, name):
    found = FIRST_LINE.match(_first(path))
    return found is not None and found[1] == name


def test_table_2_is_the_papers():
    """Read off the paper: IID, dense, sparse in 1D, then in 2D."""
    printed = {
        "MapEM-o": [0.14, 0.20, 0.12, 0.16, 0.08, 0.08],
        "RoPE (1L)": [0.25, 0.40, 0.16, 0.46, 0.52, 0.39],
        "MapWM-r1": [1.00, 1.00, 1.00, 0.66, 0.74, 0.62],
        "MapWM-r2": [1.00, 1.00, 1.00, 1.00, 1.00, 0.99],
        "MapEM-os": [1.00, 1.00, 1.00, 1.00, 1.00, 1.00],
        "MapEM-s": [1.00, 1.00, 1.00, 1.00, 1.00, 1.00],
    }
    paper = RECIPES["table2"].paper
    columns = [(world, split) for world in ("1D", "2D") for split in ("iid", "ood-dense", "ood-sparse")]
    for label, figures in printed.items():
        assert [paper[label, world, split][0] for world, split in columns] == figures


def test_table_2_has_the_papers_models_and_budget():
    recipe = RECIPES["table2"]
    config = recipe.cell("MapWM-r1", "2D").config("paper")
    assert (config.model.d_model, config.model.n_heads, len(config.model.layers)) == (64, 1, 1)
    assert config.model.layers[0].options.rank == 1
    assert recipe.cell("MapWM-r2", "2D").config("paper").model.layers[0].options.rank == 2
    assert recipe.cell("MapEM-o", "2D").config("paper").model.layers[0].options.attend == "o"
    train = config.train
    assert (train.sequences, train.batch_size, train.lr, train.weight_decay) == (700_000, 128, 3e-4, 0.05)
    assert train.schedule == "linear"
    assert config.build_task().settings.dims == 2


def test_an_unknown_row_world_or_sweep_is_refused_with_the_remedy():
    with pytest.raises(mf.UserError, match="no row of 'table2' named 'MapWM-r3'; did you mean 'MapWM-r2'"):
        RECIPES["table2"].row("MapWM-r3")
    with pytest.raises(mf.UserError, match="no world of 'table2' named '3D'; choose one of: 1D, 2D"):
        RECIPES["table2"].cell("MapWM-r2", "3D")
    with pytest.raises(mf.UserError, match="at one value of each of: nothing"):
        RECIPES["table2"].cell("MapWM-r2", "2D", head_dim=3)


def test_settings_of_a_row_hold_at_every_scale():
    recipe = replace(RECIPES["table2"], claims=(), rows=(Row("slow", "rope", {"lr": 1e-5}),))
    rates = [recipe.cell("slow", "1D").config(scale).train.lr for scale in SCALES]
    assert rates == [1e-5] * len(SCALES)


def test_a_row_may_be_a_hybrid():
    row = Row("hybrid", None, {"d_model": 32}, layers=["mapem", ("mapwm", {"rank": 1})])
    config = replace(RECIPES["table2"], claims=(), rows=(row,)).cell("hybrid", "2D").config("smoke")
    assert [layer.name for layer in config.model.layers] == ["mapem", "mapwm"]
    assert (config.model.d_model, config.model.layers[1].options.rank) == (32, 1)


def test_a_sweep_is_crossed_with_rows_worlds_and_seeds():
    recipe = replace(RECIPES["table2"], claims=(), sweep={"head_dim": (16, 32), "lr": (1e-3, 3e-3)})
    cells = list(recipe.cells(["MapWM-r2"], seeds=2))
    assert len(cells) == len({cell.key for cell in cells}) == 2 * 2 * 4
    config = recipe.cell("MapWM-r2", "2D", 1, lr=3e-3, head_dim=32).config("cpu")
    assert (config.model.head_size, config.train.lr, config.seed) == (32, 3e-3, 1)
    assert recipe.lines()[:2] == ["MapEM-o, head_dim=16, lr=0.001", "MapEM-o, head_dim=16, lr=0.003"]
    line = "MapEM-s, head_dim=16, lr=0.003"
    chosen = [(cell.row.label, cell.sweep) for cell in recipe.cells([line, line], worlds=["2D"])]
    assert chosen == [("MapEM-s", {"head_dim": 16, "lr": 0.003})]
    assert [cell.key for cell in recipe.cells(["MapWM-r2", "MapWM-r2, head_dim=16, lr=0.001"], seeds=2)] == [
        cell.key for cell in cells
    ]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"name": "two words"}, "named by one word"),
        ({"rows": (Row("a", "rope"), Row("a", "nope"))}, "Two rows of recipe"),
        ({"measures": (Curve(), Curve("loss"))}, "Two measures of recipe"),
        ({"sweep": {"head_dim": ()}}, "sweeps head_dim over no values"),
    ],
    ids=str,
)
def test_a_recipe_that_cannot_be_is_refused(wrong, sentence):
    right = {
        "name": "mine", "task": "navigation", "worlds": {"2D": {}}, "rows": (Row("RoPE", "rope"),),
        "measures": (Splits({"iid": "IID"}),), "views": (TableView(),),
    }  # fmt: skip
    with pytest.raises(mf.UserError, match=sentence):
        Recipe(**{**right, **wrong})
