"""What a person sees of long work: a line that fits every terminal, nothing left behind, and nothing silent."""

import io
import re
import time
from contextlib import nullcontext

import pytest
from rich.console import Console

import mapformers as mf
from mapformers import progress
from mapformers.cli.main import main
from mapformers.evaluation import evaluate_splits, player_scores
from mapformers.progress import ECHO, Figures, StageDisplay, TrainingProgress, one_line
from mapformers.stages import doing, watched_by
from screen import screen

WIDTHS = (40, 50, 80, 120, 200)
SHORT, LONG = Figures(120, 1250, 1.2345, 0.5123, 487.0, 94.0), Figures(654321, 5468750, 12.345, 0.5123, 10469, 99999)


def terminal(width):
    return Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None, legacy_windows=False)


def drawn(renderable, width):
    console = terminal(width)
    console.print(renderable)
    return console.file.getvalue()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("figures", [SHORT, LONG], ids=["short", "long"])
def test_every_width_has_all_figures_on_one_line(width, figures):
    share = figures.step / figures.steps
    [line] = drawn(one_line(figures.wordings("mapwm on navigation", "accuracy"), width, share), width).splitlines()
    assert len(line) <= width - ECHO and "…" not in line
    steps = {SHORT: r"120/1250", LONG: r"(654321/5468750|654k/5\.5M)"}[figures]
    loss, left = {SHORT: (r"1\.23", "1:34"), LONG: (r"12(\.3)?", "27:46 h")}[figures]
    assert re.search(rf"\b{steps}\b.*\b{loss}.*\b(0\.512|51%).*\b(487|10469|10k)( seq)?/s\b.*\b{left}\b", line)


def test_a_bar_is_what_goes_first_and_labels_follow():
    lines = {width: drawn(one_line(SHORT.wordings("mine", "accuracy"), width, 0.5), width) for width in WIDTHS}
    assert [width for width in WIDTHS if "━━━━" in lines[width]] == [80, 120, 200]
    assert [width for width in WIDTHS if "mine" in lines[width]] == [80, 120, 200]
    assert all("loss" in line for line in lines.values()) and "accuracy 0.512" in lines[120]


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_stays_on_the_screen_after_ctrl_c(width):
    console = terminal(width)
    with pytest.raises(KeyboardInterrupt), TrainingProgress("mapwm on navigation", 1250, 0, 32, console) as shown:
        shown.update(120, 1.2345, 0.5123)
        time.sleep(0.3)  # it is redrawn four times a second
        assert any("120/1250" in line for line in screen(console.file.getvalue(), width))
        console.file.write("^C")  # what the terminal itself writes
        shown.say("Stopped.")
        raise KeyboardInterrupt
    assert [line for line in screen(console.file.getvalue(), width) if line] == ["Stopped."]


def test_a_run_that_comes_to_its_end_leaves_its_last_figures():
    console = terminal(120)
    with TrainingProgress("mine", 12, 0, 4, console) as shown:
        shown.update(12, 1.0, 0.5)
    [line] = [line for line in screen(console.file.getvalue(), 120) if line]
    assert line.startswith("mine 12/12 · loss 1.000 · accuracy 0.500 · ")


def test_a_measurement_within_a_run_is_named_on_its_line():
    console = terminal(120)
    with TrainingProgress("mine", 12, 0, 4, console) as shown, doing("measuring", 8) as stage:
        stage.advance(4)
        assert "measuring 4/8" in drawn(shown._drawn(), 120)
    assert "measuring" not in drawn(shown._drawn(), 120)


@pytest.fixture
def at_once(monkeypatch):
    """Long work is shown after a moment."""
    monkeypatch.setattr(progress, "FIRST_LINE", 0.02)
    monkeypatch.setattr(progress, "LIVE_AFTER", 0.02)


def test_long_work_is_a_line_elsewhere_and_short_work_is_none(at_once):
    console = Console(file=io.StringIO(), width=100)
    with watched_by(StageDisplay(console)):
        with doing("reading"):
            pass
        assert console.file.getvalue() == ""
        with doing("measuring"), doing("ood-dense", 8) as stage:
            stage.advance(2)
            time.sleep(0.2)
    assert console.file.getvalue() == "Measuring · ood-dense 2/8 (0:00)\n"


@pytest.mark.parametrize("width", WIDTHS)
def test_long_work_is_a_line_on_a_terminal_that_vanishes(at_once, width):
    console = terminal(width)
    with (
        watched_by(StageDisplay(console)),
        doing("measuring what players score"),
        doing("ood-sparse-512", 512) as stage,
    ):
        stage.advance(128)
        time.sleep(0.2)
        [line] = [line for line in screen(console.file.getvalue(), width) if line]
    assert "128/512" in line and len(line) <= width - ECHO
    assert not any(screen(console.file.getvalue(), width))


@pytest.fixture
def recorded():
    """What was said of stages, as it stands now."""
    stages = []
    with watched_by(lambda stage: stages.append(stage) or nullcontext()):
        yield lambda: [str(stage) for stage in stages]


TASK = {"dims": 1, "steps": 4, "grid": 4}


def test_measuring_tells_how_far_it_is(recorded):
    task = mf.build_task("navigation", **TASK)
    mf.evaluate(mf.players.build("random", task), task, "iid", n_sequences=5, batch_size=2)
    assert recorded() == ["iid 5/5"]
    evaluate_splits(mf.players.build("random", task), task, ["iid", "ood-dense"], 3)
    assert recorded()[1:] == ["measuring", "iid 3/3", "ood-dense 3/3"]


def test_players_are_named(recorded):
    player_scores(mf.build_task("navigation", **TASK), ["iid"], 2)
    assert recorded() == ["measuring what players score", "player best-lag", "iid 2/2"]


def test_a_large_world_tells_that_it_is_built(recorded, tmp_path):
    mf.build_task("graph", world="subway")
    assert recorded() == ["building the world"]
    world = {"name": "w", "nodes": ["a"], "actions": ["x"], "edges": [["a", "x", "a"]]}
    (tmp_path / "w.json").write_text(str(world).replace("'", '"'))
    mf.build_task("graph", world=str(tmp_path / "w.json"))
    assert recorded()[1:] == ["reading the world", "building the world"]


def test_every_command_shows_long_work(monkeypatch, capsys, at_once):
    def slow(args):
        with doing("building the world"):
            time.sleep(0.2)
        return 0

    monkeypatch.setattr("mapformers.cli.listing.main", slow)
    assert main(["list"]) == 0
    printed = capsys.readouterr()
    assert printed.err == "Building the world (0:00)\n" and printed.out == ""
