"""Kill a run at random moments (kill -9), let it go on each time, and compare its end with one that was left alone.

  python scripts/kill_runs.py                          20 kills of a run with a checkpoint every 20 steps
  python scripts/kill_runs.py --kills 5 --model mapem

Weights, the optimiser's moments, metrics.jsonl and result.json must be the same to the last bit, times left out.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TIMES = {"sequences_per_second", "seconds"}
SETTINGS = {
    "--scale": "smoke", "--steps": 32, "--d-model": 32, "--batch-size": 16, "--checkpoint-every": 20, "--log-every": 1,
    "--eval-every": 25, "--eval-sequences": 64, "--final-sequences": 64, "--device": "cpu", "--zero-mean-steps": 100,
}  # fmt: skip


def command(folder: Path, asked: argparse.Namespace) -> list[str]:
    """The same command every time: it starts the run, or goes on with it."""
    words = [sys.executable, "-m", "mapformers", "train", "--task", "navigation", "--model", asked.model]
    words += [str(word) for pair in SETTINGS.items() for word in pair]
    return [*words, "--sequences", str(asked.steps * 16), "--out", str(folder), "--resume"]


def last_step(folder: Path) -> int:
    """How far a run has come, from its metrics.jsonl."""
    file = folder / "metrics.jsonl"
    lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
    return json.loads(lines[-1])["step"] if lines else 0


def saved_step(folder: Path) -> int:
    return max((int(path.name.removeprefix("step-")) for path in folder.glob("checkpoints/step-*")), default=0)


def kill_after(folder: Path, asked: argparse.Namespace, step: int, wait: float) -> str:
    """Start or go on, kill -9 a moment after a step, and say where that was."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command(folder, asked), env=environment, stderr=subprocess.PIPE)
    while last_step(folder) < step and process.poll() is None:
        time.sleep(0.002)
    time.sleep(wait)
    process.send_signal(signal.SIGKILL)
    code = process.wait()
    if code != -signal.SIGKILL:
        assert process.stderr is not None
        sys.exit(f"It ended by itself with {code}: {process.stderr.read().decode()[-500:]}")
    return f"at step {last_step(folder)}, checkpoint {saved_step(folder)}"


def outcome(folder: Path) -> dict[str, Any]:
    """All that must be the same."""
    newest = max(folder.glob("checkpoints/step-*"))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return {
        "checkpoint": newest.name,
        "weights": (newest / "weights.safetensors").read_bytes(),
        "moments": (newest / "optimizer.safetensors").read_bytes(),
        "metrics": [{key: value for key, value in line.items() if key not in TIMES} for line in lines],
        "figures": json.loads((folder / "result.json").read_text(encoding="utf-8"))["splits"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--model", default="mapwm")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as place:
        whole, killed = Path(place) / "whole", Path(place) / "killed"
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
        subprocess.run(command(whole, asked), check=True, **quiet)
        for number, step in enumerate(sorted(chance.sample(range(asked.steps - 5), asked.kills)), start=1):
            print(f"kill {number}: {kill_after(killed, asked, step, 0.1 * chance.random())}", flush=True)
        subprocess.run(command(killed, asked), check=True, **quiet)
        ours, theirs = outcome(killed), outcome(whole)
        differing = [name for name in ours if ours[name] != theirs[name]]
        if differing:
            sys.exit(f"After {asked.kills} kills these differ: {', '.join(differing)}.")
        print(f"{asked.kills} kills of {asked.model}, {asked.steps} steps: the ends are equal to the last bit.")


if __name__ == "__main__":
    main()
