"""Cells in processes of their own: a killed one costs its cell alone, a signal stops all, plug-ins are known."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from helpers import thorough
from mapformers.launch.local import exit_reason

DOCUMENT = Path(__file__).parents[2] / "docs/recipes.md"
RECIPE = """
from mapformers.recipes import Curve, Recipe, Row, Splits, TableView, register_recipe

SMALL = dict(d_model=16, batch_size=4, log_every=5, sequences={sequences}, checkpoint_every={checkpoint_every})

register_recipe(
    Recipe(
        name="{name}",
        task="navigation",
        worlds={{"1D": {{"dims": 1, "steps": 8, "grid": 4}}}},
        rows=(Row("MapWM", "mapwm", SMALL), Row("RoPE", "rope", SMALL)),
        measures=(Splits({{"iid": "IID"}}), Curve()),
        views=(TableView(),),
    )
)
"""


def plug_in(folder: Path, name: str, sequences: int, checkpoint_every: int, seeds: int = 2, jobs: int = 2) -> list[str]:
    """A recipe of two rows in a file of its own; returns the command that runs it."""
    (folder / f"{name}.py").write_text(RECIPE.format(name=name, sequences=sequences, checkpoint_every=checkpoint_every))
    how_many = ["--seeds", str(seeds), "--jobs", str(jobs)]
    return ["reproduce", name, "--import", f"{name}.py", "--scale", "smoke", *how_many]


def start(line: list[str], folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-m", "mapformers", *line], env=environment, cwd=folder, **pipes)


def finish(line: list[str], folder: Path, patience: float = 180) -> tuple[int, str, str]:
    process = start(line, folder)
    out, err = process.communicate(timeout=patience)
    return process.returncode, out, err


def workers(folder: Path) -> list[psutil.Process]:
    """The processes that run cells in a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
        except psutil.Error:
            continue
        if "mapformers.launch.worker" in line and str(folder) in line[-1]:
            found.append(process)
    return found


def wait_until(condition, seconds: float = 90.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def training(folder: Path, cells: int):
    return lambda: len(list(folder.glob("runs/*/smoke/*/metrics.jsonl"))) >= cells


def test_a_recipe_of_a_plug_in_runs_in_worker_processes(tmp_path):
    """The one that docs/recipes.md shows, with the command it shows."""
    [_, block] = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL)
    (tmp_path / "mine.py").write_text(block)
    line = ["reproduce", "head-size", "--import", "mine.py", "--scale", "smoke", "--rows", "MapWM", "--jobs", "2"]
    code, out, err = finish(line, tmp_path)
    assert code == 0, err
    assert "MapWM, head_dim=8" in out and "(2/2)" in err
    record = json.loads((tmp_path / "results/head-size-smoke.json").read_text())
    assert [run["sweep"] for run in record["runs"]] == [{"head_dim": 16}, {"head_dim": 8}]
    assert {run["command"] for run in record["runs"]} == {f"mapformers {' '.join(line)}"}


def test_the_row_that_the_document_adds_in_python(tmp_path):
    """A script without a main guard, as people write them."""
    [block, _] = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL)
    (tmp_path / "mine.py").write_text(block)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "mine.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "results/table2-smoke.json").read_text())
    assert [(run["row"], run["world"]) for run in record["runs"]] == [("MapWM-r3", "2D")]


@pytest.mark.parametrize("number", [signal.SIGTERM, thorough(signal.SIGINT)], ids=lambda number: number.name)
def test_a_signal_lets_every_cell_save_and_ends_them_all(tmp_path, number):
    process = start(plug_in(tmp_path, "long", 10**7, 10**6), tmp_path)
    try:
        wait_until(training(tmp_path, 2))
        process.send_signal(number)  # to the process that was started alone, as a scheduler does
        _, err = process.communicate(timeout=60)
        assert process.returncode == 128 + number and "the same command goes on where it was" in err
        logs = [path.read_text() for path in tmp_path.glob("runs/long/smoke/*/log.txt")]
        assert len(logs) == 2 and all("Stopped after step" in log for log in logs)
        assert len(list(tmp_path.glob("runs/long/smoke/*/checkpoints/step-*"))) == 2
        assert workers(tmp_path) == []
    finally:
        process.kill()


def without_times(record: dict) -> dict:
    return {**record, "runs": [{k: v for k, v in run.items() if k != "wall_seconds"} for run in record["runs"]]}


@pytest.mark.parametrize(("seeds", "kills"), [(1, (1,)), thorough(2, (1, 2, 3))], ids=["once", "at three moments"])
def test_killed_at_random_moments_it_ends_with_the_same_table(tmp_path, seeds, kills):
    """kill -9 of the command alone; the same command right away, while its workers may still be there."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    line = plug_in(whole, "often", 1000, 20, seeds)
    plug_in(killed, "often", 1000, 20)
    code, table, err = finish(line, whole)
    assert code == 0, err
    moments = random.Random(0)
    for wanted in kills:
        process = start(line, killed)
        try:
            wait_until(training(killed, wanted))
            time.sleep(moments.uniform(0, 2))
        finally:
            process.kill()
            process.communicate()
        if wanted == 1:
            wait_until(lambda: workers(killed) == [], 10)  # nobody is left behind
    code, again, err = finish(line, killed)
    assert code == 0, err
    assert again == table
    records = [json.loads((folder / "results/often-smoke.json").read_text()) for folder in (whole, killed)]
    assert without_times(records[0]) == without_times(records[1])
    logs = "".join(path.read_text() for path in killed.glob("runs/often/smoke/*/log.txt"))
    assert logs.count("Training on") > 2 * seeds  # some were gone on with
    assert workers(tmp_path) == []


def test_a_killed_worker_is_a_failed_attempt(tmp_path):
    line = plug_in(tmp_path, "often", 1600, 20, seeds=1)
    process = start(line, tmp_path)
    try:
        wait_until(training(tmp_path, 2))
        victim = next(worker for worker in workers(tmp_path) if "RoPE" in worker.cmdline()[-1])
        victim.kill()
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        told = (
            "RoPE, 1D, seed 0: failed: the process was killed (SIGKILL, perhaps for lack of memory); it is tried once"
        )
        assert told in err and "(2/2)" in err
    finally:
        process.kill()


def test_what_exit_codes_say():
    assert exit_reason(0) is None and exit_reason(1) is None
    assert exit_reason(-11) == "the process was killed (SIGSEGV)"
    assert exit_reason(130) == "the process was stopped (exit code 130)"


def test_two_commands_at_once_share_the_work(tmp_path):
    """Neither runs a cell that the other is at, and both end with the whole table."""
    line = plug_in(tmp_path, "often", 200, 20, seeds=1, jobs=1)
    both = [start(line, tmp_path) for _ in range(2)]
    outcomes = [(process.communicate(timeout=180), process.returncode) for process in both]
    assert [code for _, code in outcomes] == [0, 0], outcomes
    assert outcomes[0][0][0] == outcomes[1][0][0]
    logs = [path.read_text() for path in tmp_path.glob("runs/often/smoke/*/log.txt")]
    assert len(logs) == 2 and all(log.count("Training on") == 1 for log in logs)
