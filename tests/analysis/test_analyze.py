"""`mapformers analyze`: every figure is drawn and labelled, or its absence has a reason, and its bytes repeat."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

import mapformers as mf
from mapformers.analysis import Finding, Subject, analyse
from mapformers.analysis.film import film
from mapformers.analysis.whole import analyses
from mapformers.cli.analyze import live_model
from mapformers.cli.main import main
from mapformers.reports.film import draw_film
from mapformers.reports.run_figures import DRAWINGS, draw_figure
from mapformers.runs import snapshots
from mapformers.runs.config import RunConfig
from mapformers.runs.run import Run
from mapformers.training import loop

ANY = {"curves", "movements", "values", "learning", "velocities"}
GRID = ANY | {"walks", "rate-maps", "revisits", "compositions"}
BRACKETS = ANY | {"trajectory", "bracket-codes", "bracket-attention", "continuations", "lengths-depths"}
TINY = {"d_model": 16, "sequences": 16, "batch_size": 8, "eval_every": 1, "eval_sequences": 4, "final_sequences": 4}

# task, model, settings -> the figures it has, the others it says it has not
CASES: dict[str, tuple[str, str, dict[str, Any], set[str], set[str]]] = {
    "1d": ("navigation", "mapwm", {"dims": 1, "steps": 12, "grid": 8, "rank": 1}, GRID, set()),
    "3d": ("navigation", "mapem", {"dims": 3, "steps": 12, "grid": 4}, GRID, set()),
    "rope": (
        "navigation",
        "rope",
        {"steps": 12, "grid": 8},
        {"curves", "values", "revisits"},
        {"movements", "learning", "velocities", "walks", "rate-maps", "compositions"},
    ),
    "mamba": ("navigation", "mamba", {"steps": 12, "grid": 8}, {"curves"}, GRID - {"curves"}),
    "matrices": (
        "navigation",
        "mapem-nc",
        {"steps": 12, "grid": 8},
        GRID - {"walks", "rate-maps"},
        {"walks", "rate-maps"},
    ),
    "dyck": ("dyck", "mapwm", {"length": 8, "depth": 2}, BRACKETS - {"learning"}, {"learning"}),
    "dyck-s": ("dyck", "mapem", {"attend": "s", "length": 8, "depth": 2}, BRACKETS - {"learning"}, {"learning"}),
    "family": ("family-tree", "mapem-nc", {"steps": 6}, ANY | {"compositions"}, set()),
    "graph": ("graph", "mapwm-nc", {"steps": 6}, ANY | {"compositions"}, set()),
    "copy": ("selective-copy", "mapwm", {}, ANY - {"learning"}, {"learning"}),
}


def tiny_run(task: str, model: str, settings: dict[str, Any]) -> Run:
    """A run that was never trained: its model as it begins, and two measurements as the trainer writes them."""
    config = RunConfig.compose(task, model, "smoke", **{**TINY, **settings})

    class Logged(Run):
        @property
        def metrics(self) -> list[dict[str, Any]]:
            moved = {"delta_actions": 1.0, "delta_observations": 0.1}
            measured = {"step": 2, "split": "iid", self.task.main_metric: 0.5, **moved}
            return [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}, measured, {**measured, "step": 4}]

    return Logged(Path("nowhere"), config, config.build_model(), {}, 4)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Figure]]:
    """Figures as they would be written, without the time that writing takes."""
    figures: list[Figure] = []

    def keep(figure: Figure, page: Any, format: str, **_: Any) -> None:
        page.write(b"drawn")
        if format == "png":
            figures.append(figure)

    monkeypatch.setattr(Figure, "savefig", keep)
    yield figures


@pytest.mark.parametrize("case", CASES)
def test_every_figure_is_drawn_with_data_and_labels_or_has_a_reason(case: str, drawn: list[Figure], tmp_path: Path):
    task, model, settings, found, missing = CASES[case]
    outcomes = list(analyse(Subject(tiny_run(task, model, settings)), "[]()"))
    present = {outcome.name: outcome for outcome in outcomes if isinstance(outcome, Finding)}
    absent = {outcome.name: outcome for outcome in outcomes if not isinstance(outcome, Finding)}
    assert (set(present), set(absent)) == (found, missing)
    assert all(reason.why.endswith(".") and len(reason.why) > 20 for reason in absent.values())
    for outcome in present.values():
        json.dumps(outcome.numbers, allow_nan=False)
        assert len(outcome.reading) > 40
        draw_figure(outcome.name, outcome.data, tmp_path)
        assert {path.suffix for path in tmp_path.glob(f"{outcome.name}.*")} == {".png", ".pdf"}
        for axes in drawn[-1].axes:
            assert not axes.get_visible() or axes.has_data() or axes.texts, outcome.name
            assert axes.get_title() or axes.get_xlabel() or axes.get_ylabel() or axes.get_label() == "<colorbar>"
    assert len(drawn) == len(present)


def test_every_drawing_is_of_an_analysis_and_the_other_way_round():
    names = {name for _, _, _, found, missing in CASES.values() for name in found | missing}
    assert names == set(DRAWINGS)
    assert all(analyses(task) for task in mf.list_tasks())


def test_a_smoke_run_becomes_a_page_whose_bytes_repeat(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run, out = tmp_path / "run", tmp_path / "out"
    mf.train("dyck", "rope", scale="smoke", out=run, length=8, depth=2, **TINY)
    assert main(["analyze", str(run), "--out", str(out), "--threads", "1"]) == 0
    page = (out / "report.html").read_text()
    assert len(page) < 3_000_000 and str(tmp_path) not in page
    numbers = json.loads((out / "analysis.json").read_text())
    assert set(numbers) == {"run", "analysis_seed", "splits", "players", "figures", "missing"}
    assert str(tmp_path) not in (out / "analysis.json").read_text()
    assert page.count("<img") == len(numbers["figures"]) == len(list(out.glob("*.pdf")))
    assert all(sentence in page for sentence in numbers["missing"].values())
    assert "counting" in page  # what a player scores
    live = live_model(Subject(mf.load(run)), numbers["players"])  # the model itself, exported once more
    assert live.page and live.section() in page
    first = {path.name: path.read_bytes() for path in out.iterdir()}
    for name in ("continuations.png", "continuations.pdf"):
        (out / name).unlink()
    subject = Subject(mf.load(run))
    [again] = [look(subject) for look in analyses("dyck") if getattr(look, "__name__", "") == "continuations"]
    assert isinstance(again, Finding)
    draw_figure(again.name, again.data, out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == first
    assert "report.html" in capsys.readouterr().out


def test_a_report_without_the_model_says_why():
    too_large = Subject(tiny_run("navigation", "rope", {"steps": 12, "grid": 8, "d_model": 512}))
    assert "million parameters" in live_model(too_large, {}).section()


def test_what_cannot_be_analysed_is_refused_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["analyze", str(tmp_path / "none")]) == 2
    assert "There is no folder" in capsys.readouterr().err
    assert main(["analyze", str(tmp_path)]) == 2
    assert "no config.json" in capsys.readouterr().err


def test_logging_movements_and_keeping_snapshots_change_no_weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    settings = {"scale": "smoke", "steps": 6, "grid": 8, **TINY}
    seen = mf.train("navigation", "mapwm", out=tmp_path / "seen", snapshots=4, **settings)
    monkeypatch.setattr(loop, "movement_sizes", lambda *_: {})
    unseen = mf.train("navigation", "mapwm", out=tmp_path / "unseen", **settings)
    for name, weight in seen.model.state_dict().items():
        assert torch.equal(weight, unseen.model.state_dict()[name]), name
    logged = [line for line in seen.metrics if "split" in line]
    assert logged and all(line["delta_actions"] > 0 and line["delta_observations"] > 0 for line in logged)
    assert not any("delta_actions" in line for line in unseen.metrics)
    assert [step for step, _ in snapshots.found_in(seen.folder)] == [1, 2]
    with pytest.raises(mf.UserError, match="has no snapshots; train a run with --snapshots"):
        film(Subject(unseen))
    shown = film(Subject(seen))
    assert isinstance(shown, dict) and [frame["sequences"] for frame in shown["frames"]] == [0, 8, 16]
    first, last = (torch.from_numpy(shown["frames"][i]["points"]).float() for i in (0, -1))
    assert (first - last).abs().max() > 0
    draw_film(shown, tmp_path / "film.gif")
    with Image.open(tmp_path / "film.gif") as picture:
        assert picture.n_frames == 3
    weights = seen.model.layers[0].mixer.path
    alone = seen.model.observe(torch.arange(4).unsqueeze(1))[0]["delta_in"]
    sizes = torch.einsum("vlhr,hrn->vhn", alone, weights.w_out).flatten(1).norm(dim=1)
    assert logged[-1]["delta_actions"] == pytest.approx(sizes.mean().item(), rel=1e-5)


def test_snapshots_are_denser_at_the_beginning_and_end_with_the_run():
    assert sorted(snapshots.moments(1000, 4)) == [62, 250, 562, 1000]
    assert sorted(snapshots.moments(2, 12)) == [1, 2]
