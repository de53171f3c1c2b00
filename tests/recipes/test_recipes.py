"""Recipes: every cell can be built, runs that are done are not repeated, tables say what was measured."""

import io
import json
from concurrent.futures import Future
from dataclasses import replace

import pytest
from rich.console import Console

import mapformers as mf
from mapformers.recipes import RECIPES, Recipe, Row, report
from mapformers.recipes import reproduce as running
from mapformers.tasks.navigation import Navigation
from mapformers.training import loop
from mapformers.training.config import TrainConfig
from mapformers.training.run import RunConfig, RunFolder

SCALES = ("smoke", "cpu", "paper")
CELLS = [
    (recipe, row, world)
    for recipe in map(RECIPES.__getitem__, RECIPES)
    for row in recipe.rows
    for world in recipe.worlds
]
TINY = TrainConfig(sequences=16, batch_size=4, log_every=1, eval_every=2, eval_sequences=4, final_sequences=4)


@pytest.mark.parametrize(("recipe", "row", "world"), CELLS, ids=[f"{r.name}-{row.label}-{w}" for r, row, w in CELLS])
def test_every_cell_is_a_run_that_can_be_built(recipe, row, world):
    for scale in SCALES:
        config = recipe.run_config(row, world, seed=3, scale=scale)
        assert RunConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
        assert config.seed == 3
        assert config.model.layers[0].name == row.model
        assert config.model.vocab_size == config.build_task().vocab_size
    config.build_model()


@pytest.mark.parametrize("name", mf.list_recipes())
def test_columns_and_printed_figures_belong_to_the_table(name):
    recipe = RECIPES[name]
    labels = [row.label for row in recipe.rows]
    assert len(labels) == len(set(labels))
    for settings in recipe.worlds.values():
        task = mf.build_task(recipe.task, **settings)
        assert set(recipe.splits) <= set(task.splits)
    for row, world, split in recipe.paper:
        assert row in labels and world in recipe.worlds and split in recipe.splits


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
    config = recipe.run_config(recipe.row("MapWM-r1"), "2D", 0, "paper")
    assert (config.model.d_model, config.model.n_heads, len(config.model.layers)) == (64, 1, 1)
    assert config.model.layers[0].options.rank == 1
    assert recipe.run_config(recipe.row("MapWM-r2"), "2D", 0, "paper").model.layers[0].options.rank == 2
    assert recipe.run_config(recipe.row("MapEM-o"), "2D", 0, "paper").model.layers[0].options.attend == "o"
    train = config.train
    assert (train.sequences, train.batch_size, train.lr, train.weight_decay) == (700_000, 128, 3e-4, 0.05)
    assert train.schedule == "linear"
    assert config.build_task().settings.dims == 2


def test_an_unknown_row_is_refused_with_the_nearest():
    with pytest.raises(mf.UserError, match="no row of 'table2' named 'MapWM-r3'; did you mean 'MapWM-r2'"):
        RECIPES["table2"].row("MapWM-r3")


def test_settings_of_a_row_hold_at_every_scale():
    recipe = replace(RECIPES["table2"], rows=(Row("slow", "rope", train={"lr": 1e-5}),))
    rates = [recipe.run_config(recipe.rows[0], "1D", 0, scale).train.lr for scale in SCALES]
    assert rates == [1e-5] * len(SCALES)


class Inline:
    """An executor that works at once, in this process."""

    def __init__(self, jobs, mp_context):
        self.jobs = jobs

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def shutdown(self, cancel_futures):
        pass

    def submit(self, function, *args):
        future = Future()
        future.set_result(function(*args))
        return future


@pytest.fixture
def mini(monkeypatch):
    """A table of two rows on one small world, run in this process."""
    recipe = Recipe(
        name="mini",
        summary="Small.",
        task="navigation",
        worlds={"1D": {"dims": 1, "steps": 6, "grid": 4}},
        splits={"iid": "IID", "ood-dense": "Dense"},
        rows=(Row("RoPE (tiny)", "rope", {"d_model": 16}), Row("MapWM", "mapwm", {"d_model": 16, "rank": 1})),
        paper={("MapWM", "1D", "iid"): (0.75, 0.01)},
    )
    monkeypatch.setitem(RECIPES._entries, "mini", recipe)
    monkeypatch.setattr(Navigation, "training", lambda self, scale: TINY)
    monkeypatch.setattr(running, "ProcessPoolExecutor", Inline)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    return recipe


def reproduce(recipe, folder, seeds=1, rows=None, console=None):
    return running.reproduce(
        recipe,
        scale="cpu",
        seeds=seeds,
        rows=[recipe.row(label) for label in rows] if rows else recipe.rows,
        jobs=1,
        runs=folder / "runs",
        results=folder / "mini.json",
        console=console or Console(file=io.StringIO(), width=200),
    )


def keys(record):
    return [(run["row"], run["world"], run["seed"]) for run in record["runs"]]


def test_reproduce_keeps_what_each_run_measured(mini, tmp_path):
    record = reproduce(mini, tmp_path, seeds=2)
    assert json.loads((tmp_path / "mini.json").read_text()) == record
    assert keys(record) == [(row, "1D", seed) for row in ("MapWM", "RoPE (tiny)") for seed in (0, 1)]
    for run in record["runs"]:
        name = f"{run['row'].replace(' (tiny)', '-tiny-')}-1D-seed{run['seed']}-*"
        [path] = (tmp_path / "runs/mini/cpu").glob(name.replace("--", "-"))
        folder, config = RunFolder.open(path)
        assert run["config"] == config.to_dict()
        measured = mf.evaluate(folder.load_model(config)[0], config.build_task(), "iid", n_sequences=4)
        assert run["splits"]["iid"]["accuracy"] == {"value": measured["accuracy"], "count": measured["accuracy"].count}
        assert [point["sequences"] for point in run["curve"]] == [8, 16]
        assert {"seed", "versions", "hardware", "wall_seconds", "command"} <= set(run)
        assert "step 4/4" in (folder.path / "log.txt").read_text()


def test_runs_that_are_done_are_not_repeated(mini, tmp_path, monkeypatch):
    first = reproduce(mini, tmp_path)
    written = (tmp_path / "mini.json").read_bytes()
    monkeypatch.setattr(running, "run_cell", lambda *args: pytest.fail("a run was repeated"))
    console = Console(file=io.StringIO(), width=200)
    assert reproduce(mini, tmp_path, console=console) == first
    assert "0 runs to do, 2 done" in console.file.getvalue()
    assert (tmp_path / "mini.json").read_bytes() == written


def test_only_what_is_missing_is_run(mini, tmp_path, monkeypatch):
    reproduce(mini, tmp_path, rows=["MapWM"])
    asked, original = [], running.run_cell
    monkeypatch.setattr(running, "run_cell", lambda *args: asked.append(args[1:4]) or original(*args))
    record = reproduce(mini, tmp_path, seeds=2)
    assert sorted(asked) == [("MapWM", "1D", 1), ("RoPE (tiny)", "1D", 0), ("RoPE (tiny)", "1D", 1)]
    assert len(keys(record)) == len(set(keys(record))) == 4


def test_a_run_with_other_settings_is_done_again(mini, tmp_path, monkeypatch):
    reproduce(mini, tmp_path)
    monkeypatch.setattr(Navigation, "training", lambda self, scale: replace(TINY, sequences=24))
    record = reproduce(mini, tmp_path, rows=["MapWM"])
    assert keys(record) == [("MapWM", "1D", 0), ("RoPE (tiny)", "1D", 0)]
    assert [run["sequences"] for run in record["runs"]] == [24, 16]


def test_an_interrupted_cell_goes_on_where_it_stopped(mini, tmp_path, monkeypatch):
    monkeypatch.setattr(Navigation, "training", lambda self, scale: replace(TINY, checkpoint_every=1))
    expected = reproduce(mini, tmp_path / "whole", rows=["MapWM"])
    original, calls = loop.set_learning_rate, []

    def interrupted(optimizer, step, config):
        calls.append(step)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(optimizer, step, config)

    monkeypatch.setattr(loop, "set_learning_rate", interrupted)
    (tmp_path / "stopped").mkdir()
    with pytest.raises(KeyboardInterrupt):
        reproduce(mini, tmp_path / "stopped", rows=["MapWM"])
    record = reproduce(mini, tmp_path / "stopped", rows=["MapWM"])
    assert calls == [0, 1, 2, 2, 3]
    for key in ("splits", "curve", "config"):
        assert record["runs"][0][key] == expected["runs"][0][key]


def a_record(*runs):
    scores = lambda value: {"accuracy": {"value": value, "count": 10}}  # noqa: E731
    return {
        "recipe": "mini",
        "scale": "cpu",
        "runs": [
            {
                "row": row,
                "world": "1D",
                "seed": seed,
                "splits": {"iid": scores(iid), "ood-dense": scores(dense)},
                "config": {"train": {"batch_size": 4, "lr": 0.003}},
                "sequences": 16,
                "wall_seconds": 60.0,
                "versions": {"torch": "2"},
                "hardware": {"threads": 1},
                "command": "mapformers reproduce mini",
                "curve": [{"sequences": 8, "accuracy": iid / 2}, {"sequences": 1600, "accuracy": iid}],
            }
            for row, seed, iid, dense in runs
        ],
    }


RECORD = a_record(("MapWM", 0, 0.5, 0.25), ("MapWM", 1, 0.75, 0.25), ("RoPE (tiny)", 0, 0.125, 0.0625))


def test_figures_over_seeds(mini):
    found = report.summaries(mini, RECORD)
    assert (found["MapWM", "1D", "iid"].mean, found["MapWM", "1D", "iid"].n) == (0.625, 2)
    assert found["MapWM", "1D", "iid"].std == pytest.approx(0.125 * 2**0.5)


def test_a_cell_has_ours_its_spread_and_the_papers(mini):
    found = report.summaries(mini, RECORD)
    cells = [
        report.cell(found, mini, row, "1D", split)
        for row, split in (("MapWM", "iid"), ("MapWM", "ood-dense"), ("RoPE (tiny)", "iid"), ("other", "iid"))
    ]
    assert cells == ["0.625 ± 0.177 (0.75)", "0.250 ± 0.000", "0.125", "–"]


def test_markdown_in_the_order_of_the_recipe(mini):
    assert report.markdown_table(mini, RECORD, "1D").splitlines() == [
        "| 1D | seeds | IID | Dense |",
        "|---|--:|--:|--:|",
        "| RoPE (tiny) | 1 | 0.125 | 0.062 |",
        "| MapWM | 2 | 0.625 ± 0.177 (0.75) | 0.250 ± 0.000 |",
    ]


def test_the_results_page_has_every_seed_and_where_it_comes_from(mini, tmp_path):
    (tmp_path / "mini.json").write_text(json.dumps(RECORD))
    page = report.results_page(tmp_path)
    assert "| MapWM | 1D | 1 | 0.7500 | 0.2500 | 0.7500 | – |" in page
    assert "mapformers reproduce mini" in page and "torch 2" in page
    assert "table2" not in page  # it has no results here


def test_documents_are_refreshed_only_where_they_changed(tmp_path):
    run = {"row": "MapWM-r2", "world": "2D", "seed": 0}
    splits = {split: {"accuracy": {"value": 0.5, "count": 2}} for split in RECIPES["table2"].splits}
    for folder in ("results", "docs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "results/demo.json").write_text(json.dumps({"runs": [{**run, "splits": splits}]}))
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- demo:begin -->\nold\n<!-- demo:end -->\nafter\n")
    assert set(report.write_documents(tmp_path)) == {readme, tmp_path / "docs/results.md"}
    text = readme.read_text()
    assert text.startswith("before\n<!-- demo:begin -->\n| 2D |") and text.endswith("<!-- demo:end -->\nafter\n")
    assert "old" not in text and "| MapWM-r2 | 1 | 0.500 (1.00)" in text
    assert report.write_documents(tmp_path) == []


def test_a_document_without_the_block_is_refused():
    with pytest.raises(mf.UserError, match="has no block 'demo'"):
        report.replace_block("nothing here", "demo", "table")
