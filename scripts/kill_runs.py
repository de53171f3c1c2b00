"""Kill a run at random moments (kill -9), let it go on each time, and compare its end with one that was left alone.

  python scripts/kill_runs.py                          20 kills of a run with a checkpoint every 20 steps
  python scripts/kill_runs.py --kills 5 --model mapem --threads 2

Weights, the optimiser's moments, metrics.jsonl and result.json must be the same to the last bit, times left out. If
they are not, both folders are kept, and the first line of metrics.jsonl that differs is shown. Every process reads
layers and tasks from the disk when it first uses them, so a comparison during which the sources were edited says
nothing: it is refused.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import mapformers as package
from mapformers.cli.main import main as mapformers

# A process of this kind is forked from a server that has loaded torch but never used it: it starts at once.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["mapformers.cli.train"])
TIMES = {"sequences_per_second", "seconds"}
SETTINGS = {
    "--scale": "smoke", "--steps": 32, "--d-model": 32, "--batch-size": 16, "--checkpoint-every": 20, "--log-every": 1,
    "--eval-every": 25, "--eval-sequences": 64, "--final-sequences": 64, "--device": "cpu", "--zero-mean-steps": 100,
}  # fmt: skip


def command(folder: Path, asked: argparse.Namespace) -> list[str]:
    """The same command every time: it starts the run, or goes on with it."""
    words = ["train", "--task", "navigation", "--model", asked.model]
    words += [str(word) for pair in SETTINGS.items() for word in pair]
    words += [] if asked.threads is None else ["--threads", str(asked.threads)]
    return [*words, "--sequences", str(asked.steps * 16), "--out", str(folder), "--resume"]


def start(line: list[str], log: Path) -> BaseProcess:
    """`mapformers` in a process of its own; what it prints is in ``log``."""
    process = SERVER.Process(target=run_command, args=(line, log), daemon=True)
    process.start()
    return process


def run_command(line: list[str], log: Path) -> None:
    with log.open("w", encoding="utf-8") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    sys.exit(mapformers(line))


def finish(line: list[str], log: Path) -> None:
    process = start(line, log)
    process.join()
    if process.exitcode != 0:
        sys.exit(f"It ended with {process.exitcode}: {log.read_text(encoding='utf-8')[-500:]}")


def last_step(folder: Path) -> int:
    """How far a run has come, from its metrics.jsonl."""
    file = folder / "metrics.jsonl"
    lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
    return json.loads(lines[-1])["step"] if lines else 0


def saved_step(folder: Path) -> int:
    return max((int(path.name.removeprefix("step-")) for path in folder.glob("checkpoints/step-*")), default=0)


def kill_after(folder: Path, asked: argparse.Namespace, step: int, wait: float, log: Path) -> str:
    """Start or go on, kill -9 a moment after a step, and say where that was."""
    process = start(command(folder, asked), log)
    while last_step(folder) < step and process.is_alive():
        time.sleep(0.002)
    time.sleep(wait)
    process.kill()
    process.join()
    if process.exitcode != -signal.SIGKILL:
        sys.exit(f"It ended by itself with {process.exitcode}: {log.read_text(encoding='utf-8')[-500:]}")
    return f"at step {last_step(folder)}, checkpoint {saved_step(folder)}"


def outcome(folder: Path) -> dict[str, Any]:
    """All that must be the same."""
    newest = max(folder.glob("checkpoints/step-*"))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return {
        "checkpoint": newest.name,
        "threads": json.loads((newest / "manifest.json").read_text(encoding="utf-8"))["threads"],
        "weights": (newest / "weights.safetensors").read_bytes(),
        "moments": (newest / "optimizer.safetensors").read_bytes(),
        "metrics": [{key: value for key, value in line.items() if key not in TIMES} for line in lines],
        "figures": json.loads((folder / "result.json").read_text(encoding="utf-8"))["splits"],
    }


def sources() -> str:
    """A hash of every file of the package, as it is on the disk now."""
    whole = hashlib.sha256()
    for path in sorted(Path(package.__file__).parent.rglob("*.py")):
        whole.update(path.read_bytes())
    return whole.hexdigest()


def first_difference(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    """Where two runs part, by what they logged at every step."""
    for one, other in zip(ours["metrics"], theirs["metrics"]):
        if one != other:
            return f"\n  killed {json.dumps(one)}\n  whole  {json.dumps(other)}"
    return " none, or one has more lines"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--model", default="mapwm")
    parser.add_argument("--threads", type=int, help="one per core unless given")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    asked = parser.parse_args()
    chance, before, place = random.Random(asked.seed), sources(), Path(tempfile.mkdtemp(prefix="kill-runs-"))
    whole, killed, log = (place / name for name in ("whole", "killed", "log"))
    finish(command(whole, asked), log)
    for number, step in enumerate(sorted(chance.sample(range(asked.steps - 5), asked.kills)), start=1):
        print(f"kill {number}: {kill_after(killed, asked, step, 0.1 * chance.random(), log)}", flush=True)
    finish(command(killed, asked), log)
    ours, theirs = outcome(killed), outcome(whole)
    differing = [name for name in ours if ours[name] != theirs[name]]
    if sources() != before:
        sys.exit("The sources were edited meanwhile, so the two runs are not of the same code: run this again.")
    if differing:
        print(
            f"The first line of metrics.jsonl that differs:{first_difference(ours, theirs)}\nBoth runs are in {place}."
        )
        sys.exit(f"After {asked.kills} kills these differ: {', '.join(differing)}.")
    shutil.rmtree(place)
    on = f"{asked.steps} steps, {ours['threads']} thread{'s' if ours['threads'] > 1 else ''}"
    print(f"{asked.kills} kills of {asked.model}, {on}: the ends are equal to the last bit.")


if __name__ == "__main__":
    main()
