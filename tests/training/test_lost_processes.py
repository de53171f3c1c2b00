"""Real processes that are killed or asked to stop: the whole job ends, says what to do, and goes on when it is resumed.

Both for a model that every process holds (DDP) and for one that is shared out between them (FSDP2).
"""

import os
import signal
import time

import pytest
import torch

from helpers import thorough
from mapformers.tasks.navigation import Navigation
from runs import (
    assert_same_run,
    command,
    ended,
    metrics,
    newest,
    run,
    run_in_two_processes,
    start_two,
    torchrun,
    wait_for_step,
    workers,
)

WITHIN = 30.0  # seconds, on a machine that is busy
LONG = {"sequences": 160, "log_every": 5, "checkpoint_every": 5, "eval_every": 40}  # forty steps


def to_go_on(folder):
    several = "(with torchrun … -m before it for several processes)"
    return f"go on with: mapformers train --resume --out {folder} {several}\n"


def assert_goes_on(folder, log, settings):
    """After a process was killed: what the others said, and that the run can be resumed to its end."""
    told = f"mapformers: Another process of this run has ended, so this one cannot continue; {to_go_on(folder)}"
    assert told in log.read_text()
    assert not (folder / "result.json").exists()
    run_in_two_processes(folder, resume=True, **settings)
    assert [line["step"] for line in metrics(folder) if "loss" in line] == list(range(5, 41, 5))
    assert not list(folder.glob("checkpoints/.*"))


@pytest.mark.parametrize(("sharding", "victim"), [("none", 0), ("full", 1), thorough("none", 1), thorough("full", 0)])
def test_if_a_process_is_killed_the_other_ends_and_the_run_goes_on(tmp_path, sharding, victim):
    """Nobody else ends it: there is no `torchrun` above the two."""
    folder, log, settings = tmp_path / "run", tmp_path / "log", LONG | {"sharding": sharding}
    both = start_two(command(out=folder, **settings), log)
    wait_for_step(both[0], folder, 10)
    os.kill(both[victim].pid, signal.SIGKILL)
    killed = time.monotonic()
    assert ended(both[1 - victim]) == 2
    assert time.monotonic() - killed < WITHIN
    assert_goes_on(folder, log, settings)


@pytest.mark.thorough
def test_torchrun_ends_with_a_killed_worker_and_the_run_goes_on(tmp_path):
    folder, log, settings = tmp_path / "run", tmp_path / "log", LONG | {"sharding": "full"}
    job = torchrun(command(out=folder, **settings), log)
    wait_for_step(job, folder, 10)
    os.kill(workers(job)[1], signal.SIGKILL)
    assert job.wait(60) == 1
    assert_goes_on(folder, log, settings)


@pytest.mark.thorough  # test_backends.py has a signal to one of two processes, without torchrun between
def test_sigterm_to_torchrun_saves_and_the_run_goes_on_exactly(tmp_path):
    folder, log, settings = tmp_path / "run", tmp_path / "log", LONG | {"checkpoint_every": 30, "sharding": "full"}
    whole = run_in_two_processes(tmp_path / "whole", **settings)
    job = torchrun(command(out=folder, **settings), log)
    wait_for_step(job, folder, 10)
    job.send_signal(signal.SIGTERM)
    assert job.wait(60) != 0
    stopped = int(newest(folder).name.removeprefix("step-"))
    assert 10 <= stopped < 30
    assert f"Stopped after step {stopped}; {to_go_on(folder)}" in log.read_text()
    assert_same_run(run_in_two_processes(folder, resume=True, **settings), whole)


def test_a_signal_cuts_a_measurement_short_on_all_processes(tmp_path):
    """None of them has the whole model, so none could measure alone; the measurement is made up."""
    folder, log = tmp_path / "run", tmp_path / "log"
    usual = {"eval_every": 6, "eval_sequences": 8, "sharding": "full"}
    both = start_two(command(out=folder, **{**usual, "eval_sequences": 10**6}), log)
    wait_for_step(both[0], folder, 6)
    time.sleep(0.2)
    os.kill(both[1].pid, signal.SIGTERM)
    assert [ended(process) for process in both] == [143, 143]
    assert f"Stopped after step 6; {to_go_on(folder)}" in log.read_text()
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"eval_sequences": 1000000', '"eval_sequences": 8'))
    whole = run_in_two_processes(tmp_path / "whole", **usual)
    assert_same_run(run_in_two_processes(folder, resume=True, **usual), whole)


def spoil_the_second_process() -> None:
    """From now on, the loss of the second process is no number."""
    loss = Navigation.loss
    if os.environ["RANK"] == "1":
        Navigation.loss = lambda self, logits, batch: loss(self, logits, batch) * torch.nan


@pytest.mark.parametrize("sharding", ["full", thorough("none")])
def test_a_loss_that_is_no_number_on_one_process_ends_all_before_a_step(tmp_path, sharding):
    log = tmp_path / "log"
    both = start_two(command(out=tmp_path / "run", sharding=sharding), log, prepare=spoil_the_second_process)
    assert [ended(process) for process in both] == [2, 2]
    said = {line for line in log.read_text().splitlines() if line.startswith("mapformers: ")}
    sentence = "became nan at step 0; lower --lr (now 0.003)."
    assert said == {f"mapformers: The loss {sentence}", f"mapformers: The gradient {sentence}"}
    assert not list((tmp_path / "run").glob("checkpoints/*"))
    run(tmp_path / "run", sharding=sharding)  # where nothing was saved, the run starts again
