"""The Slurm script of docs/many-machines.md, with a Slurm and a `torchrun` that only write down what they are told."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from torch.distributed.run import get_args_parser

from mapformers.cli.train import parse_train

PAGE = (Path(__file__).parents[2] / "docs/many-machines.md").read_text()
SCRIPT = next(block for block in re.findall(r"```bash\n(.*?)```", PAGE, flags=re.DOTALL) if "#SBATCH" in block)
RUN = ["train", "--task", "navigation", "--model", "mapwm", "--sharding", "full", "--out", "runs/a folder"]
STUBS = {
    "scontrol": 'if [ "$1" = show ]; then printf "node7\\nnode8\\n"; else echo "$@" >> requeued; fi',
    "srun": '[ "$1" = --kill-on-bad-exit=1 ] && shift && exec "$@"',
    "torchrun": 'printf "%s\\n" "$@" > told; exit "$TORCHRUN_CODE"',
}


def send(place, code, restarts=""):
    """Run the script as a job whose `torchrun` ends with a code; returns the job's."""
    commands = place / "bin"
    commands.mkdir(exist_ok=True)
    for name, body in STUBS.items():
        (commands / name).write_text(f"#!/bin/bash\n{body}\n")
        (commands / name).chmod(0o755)
    (place / "train.sbatch").write_text(SCRIPT)
    told = {"SLURM_JOB_NODELIST": "node[7-8]", "SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "4", "SLURM_JOB_ID": "17"}
    more = {"PATH": f"{commands}:{os.environ['PATH']}", "TORCHRUN_CODE": str(code), "SLURM_RESTART_COUNT": restarts}
    words = ["bash", "train.sbatch", *RUN]
    return subprocess.run(words, cwd=place, env={**os.environ, **told, **more}, check=False).returncode


def test_every_node_starts_the_run_with_options_that_torchrun_and_train_know(tmp_path):
    assert send(tmp_path, 0) == 0
    words = (tmp_path / "told").read_text().splitlines()
    if "--shutdown-timeout" not in get_args_parser().format_help():  # an older torch, as the page says
        at = words.index("--shutdown-timeout")
        del words[at : at + 2]
    asked = get_args_parser().parse_args(words)
    assert (asked.nnodes, asked.nproc_per_node, asked.rdzv_endpoint, asked.rdzv_id) == ("2", "4", "node7:29500", "17")
    assert asked.module and asked.training_script == "mapformers"
    assert asked.training_script_args == [*RUN, "--resume"]
    choice = parse_train(asked.training_script_args[1:]).choice
    assert choice.resume and str(choice.out) == "runs/a folder"


@pytest.mark.parametrize(
    "code, restarts, requeued", [(0, "", False), (1, "", True), (1, "3", True), (143, "49", True), (1, "50", False)]
)
def test_a_job_that_was_interrupted_goes_back_into_the_queue_but_not_for_ever(tmp_path, code, restarts, requeued):
    assert send(tmp_path, code, restarts) == (0 if code == 0 else 1)
    assert (tmp_path / "requeued").exists() == requeued
    if requeued:
        assert (tmp_path / "requeued").read_text() == "requeue 17\n"
