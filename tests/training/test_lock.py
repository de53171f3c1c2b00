"""One run to a folder, for as long as it lives; and asked to stop, it saves between two steps and says how to go on."""

import os
import re
import shlex
import signal

import pytest

import mapformers as mf
from mapformers.cli.main import main
from mapformers.runs.folder import RunFolder
from runs import assert_same_run, command, ended, kill, run, start, wait_for_step

LONGER = {"sequences": 800, "zero_mean_steps": 100, "eval_every": 50, "checkpoint_every": 40}  # 200 steps


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that went through without interruption."""
    return run(tmp_path_factory.mktemp("whole") / "run", **LONGER)


@pytest.fixture
def running(tmp_path):
    """A run in another process, after its first step."""
    process = start(command(out=tmp_path / "run", **LONGER), tmp_path / "log")
    wait_for_step(process, tmp_path / "run", 1)
    yield process
    process.kill()


def test_a_second_run_in_the_folder_is_refused_and_the_first_goes_on_unharmed(whole, running, tmp_path, capsys):
    folder = tmp_path / "run"
    another = f"Another process is training in {folder}; wait for it, stop it, or choose another --out."
    os.kill(running.pid, signal.SIGSTOP)  # so that it cannot end meanwhile
    capsys.readouterr()
    for settings in ({}, {"resume": True}, {"overwrite": True}):
        assert main(command(out=folder, **LONGER, **settings)) == 2
        assert capsys.readouterr() == ("", f"mapformers: {another}\n")
    os.kill(running.pid, signal.SIGCONT)
    assert ended(running) == 0
    assert_same_run(folder, whole)


def test_a_killed_run_leaves_no_lock_in_the_way(whole, running, tmp_path):
    kill(running)
    assert_same_run(run(tmp_path / "run", resume=True, **LONGER), whole)


def test_a_folder_is_locked_once_at_a_time(tmp_path):
    with RunFolder(tmp_path / "run").lock():
        with pytest.raises(mf.UserError, match="Another process is training in"), RunFolder(tmp_path / "run").lock():
            pass
        with RunFolder(tmp_path / "other").lock():
            pass
    with RunFolder(tmp_path / "run").lock():
        pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_asked_to_stop_it_saves_between_two_steps_and_says_how_to_go_on(whole, running, tmp_path, number, capsys):
    """SIGTERM is what a scheduler sends; SIGINT is Ctrl-C. The command it prints is the one that is run."""
    folder = tmp_path / "run"
    wait_for_step(running, folder, 22)
    os.kill(running.pid, number)
    assert ended(running) == 128 + number
    said = re.search(r"Stopped after step (\d+); go on with: mapformers (.*)\n", (tmp_path / "log").read_text())
    step, line = int(said[1]), shlex.split(said[2])
    assert 22 <= step < 200
    assert (folder / f"checkpoints/step-{step:08d}").is_dir()
    assert not (folder / "result.json").exists()
    assert main(line) == 0
    assert_same_run(folder, whole)
