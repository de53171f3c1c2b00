"""Cells in processes of their own: a killed lane costs its cell alone, a signal stops all, plug-ins are known."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mapformers.launch.local import run_locally

DOCUMENT = Path(__file__).parents[2] / "docs/recipes.md"
LONG = """
from mapformers.recipes import Recipe, Row, Splits, TableView, register_recipe

register_recipe(
    Recipe(
        name="long",
        task="navigation",
        worlds={"1D": {"dims": 1, "steps": 8, "grid": 4}},
        rows=(Row("MapWM", "mapwm", {"d_model": 16, "sequences": 10**7, "checkpoint_every": 10**6, "batch_size": 4}),),
        measures=(Splits({"iid": "IID"}),),
        views=(TableView(),),
    )
)
"""


def work(name: str) -> dict[str, object]:
    """What a lane is given to do in these tests."""
    if name == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "fails":
        raise ValueError("no luck")
    if name == "interrupted":
        raise KeyboardInterrupt
    return {"name": name, "process": os.getpid()}


def lanes(names: list[str], jobs: int) -> dict[str, object]:
    return dict(run_locally(work, [(name, (name,)) for name in names], jobs))


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_cell_that_fails_or_is_killed_costs_only_itself(jobs):
    outcomes = lanes(["first", "killed", "second", "fails", "third"], jobs)
    assert sorted(outcomes) == ["fails", "first", "killed", "second", "third"]
    assert str(outcomes["fails"]) == "no luck"
    assert "the process was killed" in str(outcomes["killed"])
    for name in ("first", "second", "third"):
        assert outcomes[name]["name"] == name and outcomes[name]["process"] != os.getpid()


def test_a_lane_is_used_again():
    outcomes = lanes(["a", "b", "c"], 1)
    assert len({outcome["process"] for outcome in outcomes.values()}) == 1


def test_an_interruption_of_one_is_one_of_all():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        lanes(["first", "interrupted", "second"], 1)
    assert signal.getsignal(signal.SIGTERM) is before


def start(line: list[str], **options) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-m", "mapformers", *line], env=environment, **pipes, **options)


def ended(session: int) -> bool:
    """Whether nobody of a session is left, a moment after its first process has ended."""
    for _ in range(100):
        try:
            os.killpg(session, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def test_a_recipe_of_a_plug_in_runs_in_worker_processes(tmp_path):
    """The one that docs/recipes.md shows, with the command it shows."""
    [block] = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL)
    (tmp_path / "mine.py").write_text(block)
    line = ["reproduce", "head-size", "--import", "mine.py", "--scale", "smoke", "--rows", "MapWM", "--jobs", "2"]
    process = start(line, cwd=tmp_path)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "MapWM, head_dim=8" in out and "(2/2)" in err
    record = json.loads((tmp_path / "results/head-size-smoke.json").read_text())
    assert [run["sweep"] for run in record["runs"]] == [{"head_dim": 16}, {"head_dim": 8}]
    assert {run["command"] for run in record["runs"]} == {f"mapformers {' '.join(line)}"}


def test_sigterm_lets_every_cell_save_and_ends_them_all(tmp_path):
    (tmp_path / "long.py").write_text(LONG)
    line = ["reproduce", "long", "--import", "long.py", "--scale", "smoke", "--seeds", "2", "--jobs", "2"]
    process = start(line, cwd=tmp_path, start_new_session=True)
    try:
        until = time.monotonic() + 90
        while len(list(tmp_path.glob("runs/long/smoke/*/metrics.jsonl"))) < 2:
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.1)
        process.terminate()  # the process that was started alone, as a scheduler does
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130, err
        logs = [path.read_text() for path in tmp_path.glob("runs/long/smoke/*/log.txt")]
        assert len(logs) == 2 and all("Stopped after step" in log for log in logs)
        assert len(list(tmp_path.glob("runs/long/smoke/*/checkpoints/step-*"))) == 2
        assert ended(process.pid)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
