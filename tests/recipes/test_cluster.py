"""The same cells as jobs: of a real Slurm with one node, where it is installed, and of submitit on this machine."""

import json
import re
import signal
import subprocess

import cluster
import psutil
import pytest
from test_processes import finish, plug_in, start, training, wait_until

from mapformers.errors import UserError
from mapformers.launch.cluster import minutes_of

slurm = pytest.mark.skipif(not cluster.is_installed(), reason="needs Debian's slurm-wlm and munge, and root")


@pytest.fixture
def node(request, tmp_path, monkeypatch):
    """A cluster that every process of the test speaks to."""
    if not request.config.getoption("--slurm"):
        pytest.skip("starts a real Slurm, which takes minutes on a busy machine: ask for it with --slurm (make slurm)")
    folder = tmp_path / "cluster"
    folder.mkdir()
    with cluster.one_node_cluster(folder) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield environment


def squeue(form: str = "%i") -> list[str]:
    line = ["squeue", "--array", "--noheader", f"--format={form}"]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout.splitlines()


def test_submitits_own_processes_give_the_same_table(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    line = [*plug_in(here, "often", 80, 20, seeds=1), "--rows", "RoPE"]
    plug_in(there, "often", 80, 20)
    code, table, err = finish(line, here)
    assert code == 0, err
    code, again, err = finish([*line, "--cluster", "local"], there)
    assert code == 0 and again == table, err


def ask(*line: str) -> bool:
    return subprocess.run(line, capture_output=True, check=False).returncode == 0


def process_of(job: str) -> psutil.Process:
    """The process in which an element of an array job runs its cell."""
    found = [process for process in psutil.process_iter() if "submitit.core._submit" in " ".join(words(process))]
    index = job.split("_")[1]
    ours = [each for each in found if each.name() != "srun" and each.environ().get("SLURM_ARRAY_TASK_ID") == index]
    return ours[0]


def words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def pre_empt(folder) -> None:
    """Tell the job of a cell that its time is over; Slurm would let it rest for two minutes before it goes on."""
    job = json.loads((folder / "job.json").read_text())["job"]
    process_of(job).send_signal(signal.SIGUSR2)
    wait_until(lambda: "Stopped after step" in (folder / "log.txt").read_text(), 60)
    wait_until(lambda: f"{job} PENDING" in squeue("%i %T"), 60)
    wait_until(lambda: ask("scontrol", "update", f"JobId={job}", "StartTime=now"), 60)


@slurm
def test_an_array_job_of_four_cells_pre_empted_left_and_watched_again(tmp_path, node):
    """Every cell is run by one job, and the one that was pre-empted goes on where it was saved."""
    line = [*plug_in(tmp_path, "often", 6000, 10**6)[:-2], "--cluster", "slurm", "--slurm", "cpus_per_task=1"]
    first = start(line, tmp_path)
    try:
        wait_until(training(tmp_path, 1), 120)
        pre_empted = next(tmp_path.glob("runs/often/smoke/*/metrics.jsonl")).parent
        pre_empt(pre_empted)
        first.send_signal(signal.SIGINT)
        _, err = first.communicate(timeout=60)
    finally:
        first.kill()
        first.communicate()
    assert first.returncode == 130
    number = re.search(r"the same command watches them again, `scancel (\d+)` stops them", err)[1]
    assert {job.strip().split("_")[0] for job in squeue()} == {number}  # one array, and it goes on

    code, _, err = finish(line[: line.index("--cluster")], tmp_path)  # the same here would run them twice
    assert code == 2 and "of the runs are in Slurm's queue; watch them with --cluster slurm" in err

    code, table, err = finish(line, tmp_path, patience=600)
    assert code == 0 and "MapWM" in table, err
    record = json.loads((tmp_path / "results/often-smoke.json").read_text())
    assert [(run["row"], run["seed"]) for run in record["runs"]] == [(r, s) for r in ("MapWM", "RoPE") for s in (0, 1)]
    jobs = [json.loads(path.read_text())["job"] for path in tmp_path.glob("runs/often/smoke/*/job.json")]
    assert sorted(jobs) == [f"{number}_{index}" for index in range(4)]
    logs = {path.parent: path.read_text() for path in tmp_path.glob("runs/often/smoke/*/log.txt")}
    assert len(logs) == 4
    for folder, log in logs.items():
        assert log.count("Training on") == (2 if folder == pre_empted else 1)


def test_times_as_slurm_writes_them():
    times = {"90": 90, "1:30": 2, "04:00:00": 240, "1-12": 2160, "1-00:30": 1470, "0-0:0:1": 1}
    assert {text: minutes_of(text) for text in times} == times
    for wrong in ("soon", "0", "1:2:3:4"):
        with pytest.raises(UserError, match="time"):
            minutes_of(wrong)
