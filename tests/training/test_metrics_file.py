"""metrics.jsonl: every whole line is kept, wherever a broken one stands, and what is dropped is named."""

import json

import pytest

import mapformers as mf
from mapformers.runs.folder import RunFolder
from mapformers.training.train import resume_run as resume
from runs import assert_same_run, copy, metrics, newest, quiet, run

BROKEN = {
    "cut": b'{"step": 3, "lo',
    "no JSON": b"step 3",
    "a list": b"[3]",
    "a number": b"3",
    "null": b"null",
    "no step": b'{"loss": 1.0}',
    "a word as step": b'{"step": "3", "loss": 1.0}',
    "a negative step": b'{"step": -3, "loss": 1.0}',
    "half a step": b'{"step": 2.5, "loss": 1.0}',
    "a truth value": b'{"step": true, "loss": 1.0}',
    "a word as loss": b'{"step": 3, "loss": "low"}',
    "no number": b'{"step": 3, "loss": NaN}',
    "a number without end": b'{"step": 3, "loss": 1e999}',
    "a number of many digits": b'{"step": ' + b"9" * 5000 + b"}",
    "a step beyond all": b'{"step": ' + b"9" * 50 + b"}",
    "deep": b'{"step": ' + b"[" * 100_000,
    "no UTF-8": b'{"step": 3, "lo\xffss": 1.0}',
    "zeros": b"\x00" * 40,
    "empty": b"",
    "a split that is none": b'{"step": 3, "split": 4, "accuracy": 1.0}',
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(tmp_path_factory.mktemp("whole") / "run")


def insert(folder, at, *lines):
    """Put lines before the one of that number, counted from 1."""
    file = folder / "metrics.jsonl"
    before = file.read_bytes().splitlines()
    file.write_bytes(b"\n".join([*before[: at - 1], *lines, *before[at - 1 :]]) + b"\n")


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_line_costs_no_other(whole, tmp_path, case):
    folder = copy(whole, tmp_path / "run")
    insert(folder, 4, BROKEN[case])
    run = mf.load(folder)
    assert run.metrics == RunFolder(whole).metrics() and len(run.metrics) == 15
    sentence = f"Line 4 of {folder / 'metrics.jsonl'} is not what a run writes, and is left out; all others are kept."
    assert run.faults == (sentence,)
    assert RunFolder(folder).keep_metrics_up_to(12) == [sentence]
    assert metrics(folder) == metrics(whole)


def test_a_resumed_run_says_what_it_drops_and_has_all_lines_in_the_end(whole, tmp_path):
    folder, console = copy(whole, tmp_path / "run"), quiet()
    (folder / "result.json").unlink()
    for file in newest(folder).iterdir():
        file.unlink()
    newest(folder).rmdir()
    insert(folder, 3, *BROKEN.values())
    resume(folder, console)
    last = 2 + len(BROKEN)
    named = f"Lines 3, 4, 5, 6, 7 and {last - 7} more of {folder / 'metrics.jsonl'} are not what a run writes"
    assert named in console.file.getvalue()
    assert_same_run(folder, whole)


def test_a_measurement_that_is_lost_is_made_up(whole, tmp_path):
    """The run is at its end, and the line of its last measurement is broken."""
    folder = copy(whole, tmp_path / "run")
    file = folder / "metrics.jsonl"
    lines = file.read_bytes().splitlines()
    assert json.loads(lines[-1])["split"] == "iid"
    file.write_bytes(b"\n".join([*lines[:-1], lines[-1][:-7]]) + b"\n")
    resume(folder, quiet())
    assert_same_run(folder, whole)


def test_the_line_a_killed_run_was_at_is_no_fault(whole, tmp_path):
    folder = copy(whole, tmp_path / "run")
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(BROKEN["cut"])
    assert mf.load(folder).faults == ()
    assert RunFolder(folder).metrics() == RunFolder(whole).metrics()
