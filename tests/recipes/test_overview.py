"""The overview: what folders tell of running cells, the time that is left, a terminal and plain lines."""

import io
import json

import pytest
from rich.console import Console

from mapformers.launch import overview
from mapformers.launch.overview import Overview, duration, figures, time_left, wordings
from mapformers.launch.queue import Queue
from mapformers.launch.work import Progress, Work


@pytest.fixture
def works(mini, tmp_path):
    """Cells of 4 steps of 4 sequences: the first has come to step 2 at 8 sequences a second."""
    found = [Work(mini.cell("MapWM", "1D", seed), "cpu", tmp_path / str(seed)) for seed in range(4)]
    found[0].folder.mkdir()
    logged = {"step": 2, "loss": 1.0, "accuracy": 0.25, "sequences_per_second": 8.0}
    measured = {"step": 2, "split": "iid", "accuracy": 0.5}
    lines = [
        json.dumps({**logged, "step": 1, "accuracy": None}),
        json.dumps(logged),
        json.dumps(measured),
        '{"step": 3, "lo',
    ]
    (found[0].folder / "metrics.jsonl").write_text("\n".join(lines))
    return found


def test_progress_is_read_from_the_folder(works):
    progress = works[0].progress()
    assert (progress.step, progress.steps, progress.score, progress.speed, progress.left) == (2, 4, 0.25, 8.0, 1.0)
    assert works[1].progress().step == 0 and works[1].progress().left is None


def test_only_the_end_of_a_long_file_is_read(works):
    file = works[0].folder / "metrics.jsonl"
    file.write_text("not JSON\n" * 10_000 + file.read_text())
    assert works[0].progress().score == 0.25


def test_time_left_shares_what_is_known_between_lanes(works):
    queue = Queue(waiting=works[2:], running=works[:2])
    found = {work: work.progress() for work in works[:2]}
    assert time_left(queue, {}, {}, 2) is None
    # the first has 1 s to go and would take 2 s in all, as do the others on average
    assert time_left(queue, found, {}, 1) == 1 + 3 * 2
    assert time_left(queue, found, {works[3]: 20.0}, 1) == 1 + 2 * 11 + 20
    assert time_left(queue, found, {works[3]: 20.0}, 4) == 20  # no sooner than the longest


def test_durations():
    assert [duration(seconds) for seconds in (7, 725, 3600 * 3 + 1200)] == ["0:07", "12:05", "3:20 h"]


def board_of(works):
    return Queue(waiting=works[2:], running=works[:2], done=3, failed={works[3]: "no luck"})


def test_a_terminal_has_a_line_for_each_running_cell(works, monkeypatch):
    monkeypatch.setattr(overview, "REFRESH", 0.0)
    console = Console(file=io.StringIO(), force_terminal=True, width=120, color_system=None)
    with Overview(board_of(works), console, {}, 2) as shown:
        shown.refresh()
        shown.say("(1/4) something happened")
    printed = console.file.getvalue()
    assert "step 2/4  accuracy 0.250  8 seq/s  0:01 left" in printed and "starting" not in printed
    assert "3 done, 2 running, 2 waiting, 1 failed, about 0:03 left" in printed and "something happened" in printed


def test_elsewhere_a_line_now_and_then(works, monkeypatch):
    console = Console(file=io.StringIO(), width=200)
    with Overview(board_of(works), console, {}, 2) as shown:
        shown.refresh()
        assert console.file.getvalue() == ""
        monkeypatch.setattr(overview, "HEARTBEAT", 0.0)
        shown.refresh()
    [line] = console.file.getvalue().splitlines()
    assert line.startswith("3 done, 2 running") and "MapWM, 1D, seed 0: step 2/4, accuracy 0.250" in line


def test_every_score_has_its_own_name_and_a_loss_is_shown_as_perplexity():
    text = Progress(2, 4, 5.2, 8.0, 1.0, "loss")
    assert figures(text) == ("step 2/4", "perplexity 181", "8 seq/s", "0:01 left")
    assert [wording[1] for wording in wordings(text)] == ["perplexity 181", "ppl 181", "181"]
    assert figures(Progress(2, 4, None, 8.0, 1.0, "loss"))[1] == "perplexity –"
    brackets = Progress(2, 4, 0.5, 8.0, 1.0, "closer_accuracy")
    assert [wording[1] for wording in wordings(brackets)] == ["closer accuracy 0.500", "closer accuracy 0.500", "0.500"]
    walks = Progress(2, 4, 0.25, 8.0, 1.0)
    assert [wording[1] for wording in wordings(walks)] == ["accuracy 0.250", "acc 0.250", "0.250"]
    assert list(wordings(Progress(0, 4, None, 0.0, None)))[1] == ("starting", "", "", "")


def test_the_metric_is_that_of_the_task(works):
    assert works[0].progress().metric == works[0].config.build_task().main_metric == "accuracy"
