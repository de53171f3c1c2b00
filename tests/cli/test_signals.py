"""Real processes and real signals: when they end, with which exit code, and what they say."""

import os
import re
import signal
import subprocess
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from runs import assert_same_run, command, ended, run, start, wait_for_step

ROOT = Path(__file__).parents[2]
WITHIN = 10.0  # seconds


def stop(process: BaseProcess, *numbers: int) -> tuple[int | None, float]:
    """Send signals a moment apart; returns the exit code, and the seconds from the last one on."""
    assert process.pid is not None
    for number in numbers:
        time.sleep(0.2)
        sent = time.monotonic()
        os.kill(process.pid, number)
    code = ended(process)
    process.kill()
    return code, time.monotonic() - sent


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_in_an_evaluation_saves_and_the_evaluation_is_made_up(tmp_path, number):
    """Of a million sequences; the run that goes on takes eight, so that the test has an end."""
    folder, log = tmp_path / "run", tmp_path / "log"
    usual = {"eval_every": 6, "eval_sequences": 8, "zero_mean_steps": 8}
    process = start(command(out=folder, **{**usual, "eval_sequences": 10**6}), log)
    wait_for_step(process, folder, 6)
    code, seconds = stop(process, number)
    assert (code, seconds < WITHIN) == (128 + number, True)
    assert f"Stopped after step 6; go on with: mapformers train --resume --out {folder}\n" in log.read_text()
    assert {path.name for path in (folder / "checkpoints").iterdir()} == {"step-00000005", "step-00000006"}
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"eval_sequences": 1000000', '"eval_sequences": 8'))
    assert_same_run(run(folder, resume=True, **usual), run(tmp_path / "whole", **usual))


def test_a_signal_in_the_last_measurement_ends_at_once_since_all_is_saved(tmp_path):
    folder, log = tmp_path / "run", tmp_path / "log"
    process = start(command(out=folder, final_sequences=10**6), log)
    while not (folder / "checkpoints/step-00000012").exists():
        assert process.is_alive(), log.read_text()
        time.sleep(0.01)
    code, seconds = stop(process, signal.SIGTERM)
    assert (code, seconds < WITHIN) == (143, True)
    said = f"Stopped at the last measurement; go on with: mapformers train --resume --out {folder}\n"
    assert log.read_text().endswith(said)
    assert not (folder / "result.json").exists()


def slow_down() -> None:
    """From now on a batch takes a minute to draw."""
    from mapformers.tasks.navigation import Navigation

    def slow(self, uniform, world):
        time.sleep(60)

    Navigation.draw = slow


def test_a_second_sigterm_ends_at_once(tmp_path):
    folder, log = tmp_path / "run", tmp_path / "log"
    process = start(command(out=folder), log, prepare=slow_down)
    while not (log.exists() and "Training on" in log.read_text()):
        assert process.is_alive()
        time.sleep(0.01)
    code, seconds = stop(process, signal.SIGTERM, signal.SIGTERM)
    assert (code, seconds < WITHIN) == (143, True)
    assert re.fullmatch(r"Training on .*\nmapformers: Ended by SIGTERM\.\n", log.read_text()), log.read_text()


def begin(module: str, *line: object) -> subprocess.Popen[str]:
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-m", module, *map(str, line)], text=True, **streams)


def answers_sigterm(pid: int) -> bool:
    """Whether a process has come to its first line of ours: Python itself leaves SIGTERM to the system."""
    caught = re.search(r"SigCgt:\s+(\w+)", Path(f"/proc/{pid}/status").read_text())
    return caught is not None and bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize("delay", [0.0, 0.5])
@pytest.mark.parametrize("module", ["mapformers", "mapformers.launch.worker"])
def test_a_signal_while_modules_are_imported_is_one_sentence(tmp_path, module, number, delay):
    process = begin(module, *command(out=tmp_path / "run"))
    while not answers_sigterm(process.pid):
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(delay)  # of the seconds that torch takes
    process.send_signal(number)
    sent = time.monotonic()
    code = process.wait(60)
    assert (code, time.monotonic() - sent < WITHIN) == (128 + number, True)
    said = {signal.SIGTERM: "Ended by SIGTERM.", signal.SIGINT: "Interrupted by Ctrl-C."}[number]
    assert process.communicate() == ("", f"mapformers: {said}\n")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("line", ["", "list models", f"report speed --results {ROOT / 'results'}"])
def test_a_reader_who_has_enough_ends_a_command_in_silence(line):
    reading, writing = os.pipe()
    os.close(reading)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    words = [sys.executable, "-m", "mapformers", *line.split()]
    done = subprocess.run(words, env=environment, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_full_disk_behind_the_output_is_one_sentence():
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-m", "mapformers", "list", "models"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "mapformers: Cannot use the output: no space left on device; make room there.\n",
    )
