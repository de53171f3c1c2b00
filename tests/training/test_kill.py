"""A run killed at any moment, with nothing saved on the way out, goes on to the same result to the last bit."""

import itertools
import random
import signal
import sys
import time
from functools import partial

import pytest

from mapformers.runs import checkpoint
from mapformers.training.train import resume_run as resume
from runs import assert_same_run, command, copy, die_before, ended, kill, newest, quiet, run, start, wait_for_step

LONG = {
    "steps": 48, "d_model": 32, "sequences": 60 * 16, "batch_size": 16, "zero_mean_steps": 30, "checkpoint_every": 3,
    "eval_every": 5, "eval_sequences": 32,
}  # fmt: skip
SHORT = {"sequences": 24, "zero_mean_steps": 5, "checkpoint_every": 2, "eval_every": 3}  # 6 steps


def test_ten_kills_at_random_moments_leave_no_trace(tmp_path):
    """One run, killed and resumed ten times; for half of it the path is held still."""
    whole, log = run(tmp_path / "whole", **LONG), tmp_path / "log"
    chance, folder = random.Random(0), tmp_path / "killed"
    for life, step in enumerate(sorted(chance.sample(range(1, 46), 10))):
        process = start(command(out=folder, **LONG, **({"resume": True} if life else {})), log)
        wait_for_step(process, folder, step)
        time.sleep(0.03 * chance.random())
        kill(process)
    assert not (folder / "result.json").exists()
    assert ended(start(command(out=folder, resume=True, **LONG), log)) == 0
    assert "damaged" not in log.read_text()
    assert_same_run(folder, whole)


@pytest.fixture(scope="module")
def halfway(tmp_path_factory):
    """A run of six steps, and the same one just before its last checkpoint, with those of steps 2 and 4."""
    place = tmp_path_factory.mktemp("halfway")
    save = checkpoint.save
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(checkpoint, "save", lambda at, step, *rest: save(at, step, *rest) if step < 6 else sys.exit())
        run(place / "run", **SHORT)
    return run(place / "whole", **SHORT), place / "run"


def test_a_kill_before_any_change_to_a_file_leaves_no_trace(halfway, tmp_path):
    """All there are from resuming to result.json: metrics, the three files of a checkpoint, renames, removals."""
    whole, before = halfway
    note, places = tmp_path / "note", []
    for operation in itertools.count(1):
        folder = copy(before, tmp_path / str(operation))
        line, fatal = command(out=folder, resume=True, **SHORT), partial(die_before, operation, folder, note)
        if ended(start(line, tmp_path / "log", prepare=fatal)) == 0:
            break
        places.append(note.read_text())
        note.unlink()
        assert checkpoint.latest(folder / "checkpoints")[1] == []
        resume(folder, quiet())
        assert_same_run(folder, whole)
    for part in ("weights", "optimizer", "manifest", ".step-00000006.part", "metrics", "result"):
        assert any(place.startswith("os.rename") and part in place for place in places), part
    assert {place.split()[0] for place in places} >= {"open", "os.fsync", "os.mkdir", "os.remove", "os.rmdir"}


@pytest.mark.parametrize("kind", ["os.remove", "os.rmdir"])
def test_a_kill_while_the_oldest_checkpoint_is_removed_leaves_two_all_the_same(halfway, tmp_path, kind):
    folder = copy(halfway[1], tmp_path / "run")
    line, fatal = command(out=folder, resume=True, **SHORT), partial(die_before, 1, folder, tmp_path / "note", [kind])
    assert ended(start(line, tmp_path / "log", prepare=fatal)) == -signal.SIGKILL
    resume(folder, quiet())
    assert {path.name for path in (folder / "checkpoints").iterdir()} == {"step-00000004", "step-00000006"}


@pytest.mark.parametrize("operation", [3, 4, 6], ids=["no folder yet", "an empty one", "half a config"])
def test_a_run_killed_before_it_has_a_config_can_be_started_again(halfway, tmp_path, operation):
    folder = tmp_path / "run"
    line, fatal = command(out=folder, **SHORT), partial(die_before, operation, folder, tmp_path / "note")
    assert ended(start(line, tmp_path / "log", prepare=fatal)) == -signal.SIGKILL
    assert not (folder / "config.json").exists()
    assert_same_run(run(folder, **SHORT), halfway[0])


def test_half_a_checkpoint_is_named_and_the_one_before_it_used(halfway, tmp_path):
    whole, before = halfway
    folder, console = copy(before, tmp_path / "run"), quiet()
    half = newest(folder) / "weights.safetensors"
    half.write_bytes(half.read_bytes()[: half.stat().st_size // 2])
    resume(folder, console)
    assert f"Checkpoint {half.parent} is damaged: weights.safetensors is not what was written. " in (
        console.file.getvalue()
    )
    assert "Using step-00000002 instead.\n" in console.file.getvalue()
    assert_same_run(folder, whole)
    assert {path.name for path in folder.glob("checkpoints/step-*")} == {"step-00000004", "step-00000006"}
