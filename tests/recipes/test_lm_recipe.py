"""The recipe `lm`: its cells, what it measures of a run, the tests of its differences, and how it resumes."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import mapformers as mf
from helpers import tiny_corpus
from mapformers.cli.long_texts import ON_TEXT, language_documents, long_texts
from mapformers.cli.main import main
from mapformers.evaluation.significance import welch
from mapformers.launch.reproduce import reproduce
from mapformers.lm.long_context import ContextLosses
from mapformers.lm.presets import PRESETS
from mapformers.recipes import RECIPES
from mapformers.recipes.claims import check
from mapformers.recipes.language_measures import Contexts, rounded
from mapformers.recipes.lm import BLIMP, LM, LONGER, PANELS, PRINTED_BLIMP, VALIDATION, WINDOWS
from mapformers.recipes.pages import recipe_tables
from mapformers.recipes.views import AlongFigures
from mapformers.runs.config import RunConfig
from minimal_pairs import write
from runs import quiet

PATHS = ("mapwm", "mapem")


@pytest.fixture
def data(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    for name in ("books", "python"):
        (tmp_path / "data" / name).symlink_to(tiny_corpus())
    write(tmp_path / "data" / "blimp")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_of(row, world="books", seed=0, perplexity=100.0, stretch=1.0, shift=0.0, **more):
    """A recorded run, made up."""
    chance = np.random.default_rng(7)  # the windows are the same for every run
    losses = chance.normal(4.6, 0.5, 50) + shift + np.random.default_rng(seed).normal(0, 0.01, 50)
    longer = losses[:20] + np.log(stretch) + np.random.default_rng(9).normal(0, 0.01, 20)
    contexts = {str(context): perplexity for context in (128, 256, 512, 1024, 2048)}
    values = {**contexts, "4096": stretch * perplexity, "stretch": stretch, "stretch at most": stretch + 0.005}
    blimp = dict.fromkeys(LM.measures[-1].headings, 0.5)
    measures = {
        "validation": {"values": {"perplexity": perplexity}, "n": 5},
        "windows": losses.tolist(),
        "contexts": {"values": values, "documents": {"256": losses[:20].tolist(), "4096": longer.tolist()}},
        "blimp": {"values": blimp},
    }
    place = {"row": row, "world": world, "seed": seed, "sweep": {}}
    splits = {"val": {"perplexity": {"value": perplexity, "count": 1}}}
    return {**place, "config": {}, "splits": splits, "curve": [], "measures": measures, **more}


def width_of(interval):
    """Of "-2.98 % (-3.10 to -2.90)"."""
    low, high = interval.split("(")[1].rstrip(")").split(" to ")
    return float(high) - float(low)


def record(*runs):
    return {"recipe": "lm", "scale": "cpu", "runs": list(runs)}


def test_the_cells_are_those_of_the_plan(data):
    cells = list(LM.cells())
    count = {(row.label, world): 0 for row in LM.rows for world in LM.worlds}
    for cell in cells:
        count[cell.row.label, cell.world] += 1
    assert [count[row.label, "books"] for row in LM.rows] == [5, 5, 5, 5, 1, 1, 1, 3, 1, 1, 1, 3, 1, 1]
    assert {label: n for (label, world), n in count.items() if world == "code" and n} == {
        "RoPE": 3, "MapWM": 1, "MapWM, tuned": 3,
    }  # fmt: skip
    assert {label: n for (label, world), n in count.items() if world == LONGER and n} == {
        "RoPE": 2, "MapWM": 1, "MapWM, tuned": 2,
    }  # fmt: skip
    assert len(cells) == 46 and not LM.chooses
    assert len(list(LM.cells(seeds=[7]))) == 20  # seeds that are asked for are those of every row
    assert {cell.world for cell in LM.cells(worlds=["code"])} == {"code"}


def test_rows_are_what_they_are_called(data):
    layers = {row.label: LM.cell(row.label, "books").config("cpu").model.layers for row in LM.rows}
    assert [layer.name for layer in layers["MapWM/MapEM"]] == ["mapwm", "mapem", "mapwm", "mapem"]
    with_path = {label: [layer.options for layer in row if layer.name in PATHS] for label, row in layers.items()}
    paths = {label: options for label, options in with_path.items() if options}
    assert set(layers) - set(paths) == {"RoPE", "NoPE", "RoPE, log n", "CoPE", "PathAtt"}
    starts = {label: {each.path_start for each in options} for label, options in paths.items()}
    assert starts == {label: {"random" if label == "MapWM" else "rope"} for label in starts}
    ranks = {label: {each.rank for each in options} for label, options in paths.items()}
    assert ranks == {label: {1 if "rank 1" in label or "decay" in label else 4} for label in ranks}
    for label, row in layers.items():
        first = row[0].options
        assert getattr(first, "learn_omega", True) == (label != "fixed ω")
        assert getattr(first, "decay", False) == ("decay" in label)
        assert first.length_scaling == ("log" if "log n" in label else "none")


def test_rows_learn_at_the_rates_that_were_chosen(data):
    """lr, and the shares of it and of the weight decay that the path has."""
    shares = {"MapWM": (1.0, 1.0), "RoPE, decay": (0.0, 0.0)}
    for row in LM.rows:
        for world in filter(row.is_in, LM.worlds):
            train = LM.cell(row.label, world).config("cpu").train
            assert train.lr == (5e-3 if row.label == "MapWM" else 8e-3), row.label
            if row.model not in ("rope", "nope", "cope", "path"):
                assert (train.path_lr, train.path_decay) == shares.get(row.label, (0.1, 0.0)), row.label


def test_rows_have_one_size_and_one_budget(data):
    for row in LM.rows:
        config = LM.cell(row.label, "books").config("cpu")
        assert (len(config.model.layers), config.model.d_model, config.task_settings.context) == (4, 128, 256)
        assert config.train.sequences == LM.cell("RoPE", "code").config("cpu").train.sequences == 6400
        if row.is_in(LONGER):
            assert LM.cell(row.label, LONGER).config("cpu").train.sequences == 4 * config.train.sequences


@pytest.mark.parametrize("scale", ["smoke", "paper"])
def test_at_other_scales_runs_are_those_of_the_presets(data, scale):
    for row, model in (("RoPE", "rope"), ("MapWM", "mapwm")):
        of_row = LM.cell(row, "books").config(scale)
        of_preset = RunConfig.compose("text", model, scale, data="data/books", defaults=PRESETS[scale])
        assert of_row.task_settings == of_preset.task_settings and of_row.train.lr == of_preset.train.lr
        assert (
            len(of_row.model.layers) == len(of_preset.model.layers) and of_row.model.d_model == of_preset.model.d_model
        )
        if scale == "paper":
            assert (of_row.model, of_row.train) == (of_preset.model, of_preset.train)
            assert (len(of_row.model.layers), of_row.model.d_model, of_row.task_settings.context) == (12, 768, 1024)


def test_what_a_longer_context_costs_is_the_ratio_and_the_upper_end_of_its_interval(data, monkeypatch):
    """Against a calculation by hand: four documents, whose loss rises by 0.1, 0.2, 0.3 and 0.4 nats."""
    run = mf.train("text", "nope", scale="smoke", data="data/books", out="runs/one", console=quiet())
    short, rises = (3.0, 3.5, 2.5, 4.0), (0.1, 0.2, 0.3, 0.4)
    losses = ContextLosses((16, 64), (short, tuple(a + b for a, b in zip(short, rises))), targets=8)
    monkeypatch.setattr("mapformers.recipes.language_measures.context_losses", lambda *_, **__: losses)
    found = Contexts(contexts=(16, 64), trained=16, targets=8, blocks=1).measure(run)
    assert found["values"]["16"] == pytest.approx(np.exp(3.25)) and found["values"]["64"] == pytest.approx(np.exp(3.5))
    assert found["values"]["stretch"] == pytest.approx(np.exp(0.25))
    reach = 3.1824463 * np.std(rises, ddof=1) / 2  # Student's t with three degrees of freedom
    assert found["values"]["stretch at most"] == pytest.approx(np.exp(0.25 + reach), rel=1e-6)
    assert found["documents"] == {"16": list(short), "64": pytest.approx([3.1, 3.7, 2.8, 4.4])}


def test_the_papers_table_of_islands():
    assert {name for _, name in PRINTED_BLIMP} == set(BLIMP.headings)
    assert PRINTED_BLIMP["RoPE", "adjunct_island"] == (0.90, 0.02)
    assert PRINTED_BLIMP["MapWM", "sentential_subject_island"] == (0.32, 0.03)
    for row in ("RoPE", "MapWM"):
        six = [figure for (label, name), (figure, _) in PRINTED_BLIMP.items() if label == row][:6]
        assert PRINTED_BLIMP[row, "islands"][0] == pytest.approx(sum(six) / 6, abs=0.006)


def test_a_run_is_measured_kept_and_not_run_again(data, inline, capsys):
    record = reproduce("lm", scale="smoke", rows=["MapWM/MapEM"], worlds=["books"], console=quiet())
    [entry] = record["runs"]
    assert "players" not in record  # which are sure of every answer
    found = entry["measures"]
    assert found["validation"]["values"]["perplexity"] == pytest.approx(
        sum(point["perplexity"] for point in entry["curve"][-5:]) / len(entry["curve"][-5:])
    )
    value = entry["splits"]["val"]["perplexity"]["value"]
    assert np.exp(np.mean(found["windows"])) == pytest.approx(value, rel=0.02)  # of the same windows
    values = found["contexts"]["values"]
    assert values["1024"] > 1 and values["4096"] is None and values["stretch"] is None  # no text is that long
    assert 0 <= found["blimp"]["values"]["overall"] <= 1 and len(found["blimp"]["paradigms"]) == 8
    [folder] = [path.parent for path in Path("runs/lm/smoke").rglob("result.json")]
    before = (folder / "result.json").stat().st_mtime_ns
    again = reproduce("lm", scale="smoke", rows=["MapWM/MapEM"], worlds=["books"], console=quiet())
    assert again == record and (folder / "result.json").stat().st_mtime_ns == before
    assert main(["report", "lm", "--scale", "smoke"]) == 0
    assert "tokens of context" in capsys.readouterr().out
    assert main(["collect", "runs", "--results", "collected"]) == 0
    assert json.loads(Path("collected/lm-smoke.json").read_text())["runs"] == record["runs"]


def test_data_that_are_not_there_are_refused_at_once(data, capsys):
    (data / "data" / "blimp").rename(data / "data" / "elsewhere")
    assert main(["reproduce", "lm", "--scale", "smoke", "--rows", "NoPE"]) == 2
    assert "There is no folder data/blimp; put BLiMP.zip there" in capsys.readouterr().err
    assert not list(Path("runs").rglob("config.json"))


def test_differences_have_their_tests_and_the_papers_figure(data):
    runs = [run_of("RoPE", seed=seed, perplexity=100 + 0.5 * seed) for seed in range(5)]
    runs += [run_of("MapWM", seed=seed, perplexity=97 + 0.5 * seed, shift=-0.03) for seed in range(5)]
    runs += [run_of("CoPE", perplexity=101.0, shift=0.01)]
    [table] = [table for table in recipe_tables(LM, record(*runs)) if "against RoPE" in table.title]
    by_row = {row[0]: row[1:] for row in table.rows}
    assert table.headings == [
        "books", "over seeds (Welch)", "p", "seeds", "seed by seed", "p", "pairs", "window by window", "p", "windows",
        "document by document", "p", "documents", "paper",
    ]  # fmt: skip
    over_seeds, welchs, seeds, by_seed, pairs, n, *by_pairs, paper = by_row["MapWM"]
    by_window, _, windows, by_document, _, documents = by_pairs
    assert all(each.startswith("-2.9") for each in (over_seeds, by_seed, by_window, by_document))
    assert float(welchs) < 0.01 and pairs == "< 0.0001"  # the seeds differ by the same
    assert width_of(by_seed) < 0.1 < 1 < width_of(over_seeds)  # so their pairs have a narrow interval
    assert (seeds, n, windows, documents, paper) == ("5 and 5", "5", "50", "20", "−1.8 %, p < 0.005")
    assert by_row["CoPE"][:3] == ["–", "–", "1 and 5"] and by_row["CoPE"][6].startswith("+1.0")
    assert by_row["CoPE"][3:6] == ["+1.00 %", "–", "1"]  # against seed 0 of RoPE, not against the mean of its five


def test_the_papers_figures_stand_beside_books_only(data):
    runs = [run_of(row, world=world) for row in ("RoPE", "MapWM") for world in ("books", "code")]
    beside = {"19.14": [], "1.8 %": [], "(0.90": []}
    for table in recipe_tables(LM, record(*runs)):
        text = " ".join(cell for row in table.rows for cell in row)
        for figure, titles in beside.items():
            titles += [table.title] if figure in text else []
        assert not ("code" in table.title and any("The paper's figures" in note for note in table.notes))
    assert beside == {
        "19.14": ["lm, books: validation perplexity, ours (paper)"],
        "1.8 %": ["lm, books: perplexity against RoPE"],
        "(0.90": ["lm, books: accuracy on BLiMP, ours (paper)"],
    }


def test_a_seed_that_diverged_leaves_no_figure_of_its_row(data):
    runs = [run_of("RoPE", seed=seed) for seed in range(3)]
    runs += [run_of("MapWM", seed=seed, perplexity=90.0) for seed in range(3)]
    measures = runs[-1]["measures"]
    measures["validation"]["values"]["perplexity"] = None
    measures["windows"] = [None] * 50
    measures["contexts"] = {"values": dict.fromkeys(measures["contexts"]["values"]), "documents": {"256": [None] * 20}}
    tables = recipe_tables(LM, record(*runs))
    [against] = [table for table in tables if "against RoPE" in table.title]
    missing, seeds, pairs = ["–", "–"], ["3 and 3"], ["3"]
    assert against.rows == [["MapWM", *missing, *seeds, *missing, *pairs, *3 * missing, "−1.8 %, p < 0.005"]]
    [stretch] = [table for table in tables if "4096 against 256" in table.title]
    assert [row[0] for row in stretch.rows] == ["RoPE"]


def test_a_baseline_that_diverged_on_the_only_seed_leaves_no_difference(data):
    runs = [run_of("RoPE"), run_of("CoPE")]
    runs[0]["measures"]["validation"]["values"]["perplexity"] = None
    [against] = [table for table in recipe_tables(LM, record(*runs)) if "against RoPE" in table.title]
    assert against.rows[0][1:7] == ["–", "–", "1 and 1", "–", "–", "1"]


def test_what_a_model_that_diverged_is_measured_by_can_be_kept(data, monkeypatch):
    """Losses that are no numbers become None, of which JSON has a word."""
    assert rounded([1.0, float("nan"), float("inf"), 0.1234567]) == [1.0, None, None, 0.12346]
    monkeypatch.setattr("mapformers.recipes.language_measures.mean_of_last", lambda *_: float("inf"))
    monkeypatch.setattr("mapformers.recipes.language_measures.over_training", lambda run: [])
    assert VALIDATION.measure(None)["values"] == {"perplexity": None}


def test_a_model_that_diverged_has_no_figures_on_blimp(data):
    run = mf.train("text", "nope", scale="smoke", data="data/books", out="runs/diverged", console=quiet())
    assert 0 <= BLIMP.measure(run)["values"]["overall"] <= 1
    torch.nn.init.constant_(run.model.embedding.weight, float("nan"))
    assert BLIMP.measure(run) == {"values": dict.fromkeys(BLIMP.headings), "settings": BLIMP.settings}


def test_a_measure_that_fails_costs_no_other(data, inline, monkeypatch):
    def broken(self, run):
        raise RuntimeError("no BLiMP today")

    with monkeypatch.context() as patch:
        patch.setattr(type(BLIMP), "measure", broken)
        with pytest.raises(mf.UserError, match="no BLiMP today"):
            reproduce("lm", scale="smoke", rows=["NoPE"], worlds=["books"], seeds=1, console=quiet())
    [folder] = [path.parent for path in Path("runs/lm/smoke").rglob("result.json")]
    kept = json.loads((folder / "measures.json").read_text())
    assert {"splits", "curve", "validation", "windows", "contexts"} <= set(kept) and "blimp" not in kept


def test_a_report_needs_no_text(data, inline, capsys, monkeypatch):
    reproduce("lm", scale="smoke", rows=["NoPE"], worlds=["books"], seeds=1, console=quiet())
    for name in ("books", "python"):
        (data / "data" / name).unlink()
    assert main(["report", "lm", "--scale", "smoke"]) == 0
    assert "NoPE" in capsys.readouterr().out


def test_what_a_longer_context_costs_has_an_interval_over_documents(data):
    runs = [run_of("RoPE", seed=seed, stretch=1.5) for seed in range(2)]
    [table] = [table for table in recipe_tables(LM, record(*runs)) if "4096 against 256" in table.title]
    assert table.rows[0][2:] == ["2", "20"]
    change, interval = table.rows[0][1].split(" % (")
    low, high = (float(each) for each in interval.rstrip(")").split(" to "))
    assert low < float(change) < high and float(change) == pytest.approx(50, abs=1)
    noise = np.random.default_rng(9).normal(0, 0.01, 20)  # of `run_of`; t of 19 degrees of freedom
    assert high - low == pytest.approx(100 * 1.5 * 2 * 2.093 * noise.std(ddof=1) / 20**0.5, abs=0.02)


def test_claims_need_a_p_and_several_seeds(data):
    claim = next(claim for claim in LM.claims if claim.better.line == "MapWM" and claim.worse is not None)
    rope = [run_of("RoPE", seed=seed, perplexity=100 + 0.5 * seed) for seed in range(5)]
    better = [run_of("MapWM", seed=seed, perplexity=97 + 0.5 * seed) for seed in range(5)]
    hardly = [run_of("MapWM", seed=seed, perplexity=99.9 + 0.5 * seed) for seed in range(5)]
    found = check(claim, LM, record(*rope, *better))
    assert found.holds and found.verdict.startswith("holds, p = 0.00") and found.measured == pytest.approx(3.0)
    assert check(claim, LM, record(*rope, *hardly)).holds is False
    assert claim.compared(LM) == "RoPE − MapWM, books, validation perplexity"  # positive if it holds
    logs = [np.log([run["measures"]["validation"]["values"]["perplexity"] for run in runs]) for runs in (better, rope)]
    assert found.p == pytest.approx(welch(*(each.tolist() for each in logs)).p)
    assert check(claim, LM, record(rope[0], better[0])).holds is None
    stretch = next(
        claim for claim in LM.claims if claim.better.figure == "stretch at most" and claim.better.line == "log n"
    )
    assert check(stretch, LM, record(run_of("log n", stretch=1.04))).holds
    assert check(stretch, LM, record(run_of("log n", stretch=1.048))).holds is False  # its interval is above 5 %


def test_the_curve_of_contexts_is_drawn(data):
    view = next(view for view in LM.views if isinstance(view, AlongFigures))
    [(name, draw)] = view.plots(LM, record(run_of("RoPE"), run_of("CoPE", stretch=2.0))).items()
    draw(data / name)
    assert (data / name).stat().st_size > 1000


def test_every_row_of_books_is_in_a_panel_of_the_curve_of_contexts():
    assert {label for lines in PANELS.values() for label in lines} == {row.label for row in LM.rows}


def test_the_page_on_language_shows_what_a_long_context_costs(tmp_path):
    assert ON_TEXT.keys() <= {row.label for row in LM.rows}
    code = run_of("RoPE", "code", perplexity=50.0)
    runs = [run_of("RoPE", seed=seed, perplexity=100.0 + seed, stretch=1.5) for seed in range(2)]
    assert long_texts(record(code, *runs, run_of("log n"), run_of("rank 1"))).rows == [
        ["RoPE", "2", "100.5 ± 0.7", "150.8 ± 1.1"],
        [ON_TEXT["log n"], "1", "100.0", "100.0"],
    ]
    assert language_documents(tmp_path) == {}
    for folder, name, text in (
        ("results", "lm.json", json.dumps(record(run_of("NoPE")))),
        ("docs", "language.md", "before\n<!-- long-texts:begin -->\nold\n<!-- long-texts:end -->\nafter\n"),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
    [found] = language_documents(tmp_path).values()
    assert "| NoPE | 1 | 100.0 | 100.0 |" in found and "old" not in found
    assert found.startswith("before\n") and found.endswith("\nafter\n")


def test_it_is_listed_and_takes_part_in_all_only_where_its_data_are(data, capsys, monkeypatch):
    assert "lm" in mf.list_recipes() and WINDOWS.name == "windows"
    monkeypatch.setattr("mapformers.cli.reproduce.RECIPES", {"lm": RECIPES["lm"]})
    assert main(["reproduce", "all", "--dry-run"]) == 0
    assert "46 runs to do" in capsys.readouterr().out
    (data / "data" / "python").unlink()
    assert main(["reproduce", "all", "--dry-run"]) == 0
    said = capsys.readouterr()
    assert "lm is left out: data/python is not a prepared folder" in said.err and "runs to do" not in said.out
