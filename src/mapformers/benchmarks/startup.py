"""How long a person waits before anything happens: processor time of commands that need no torch, and of imports."""

import resource
import statistics
import subprocess
import sys
from dataclasses import dataclass

COMMAND = "from mapformers.cli.main import main; main({words!r})"
USED = "import mapformers as mf; mf.build_model, mf.build_task, mf.evaluate, mf.layers.MapWM"
CODE = {
    "mapformers --help": COMMAND.format(words=["--help"]),
    "mapformers --version": COMMAND.format(words=["--version"]),
    "mapformers list": COMMAND.format(words=["list"]),
    "import mapformers": "import mapformers",
    "import torch": "import torch",
    "import torch and what mapformers is used for": f"import torch; {USED}",
}


@dataclass(frozen=True)
class Startup:
    what: str
    seconds: float


def startup(repeats: int = 7) -> list[Startup]:
    """Median processor seconds of each in a fresh interpreter, turn by turn, less those of an empty one."""
    taken: dict[str, list[float]] = {what: [] for what in ("", *CODE)}
    for _ in range(repeats + 1):  # the first turn fills the caches of the disk
        for what, times in taken.items():
            times.append(_processor_seconds(CODE.get(what, "pass")))
    empty = statistics.median(taken.pop("")[1:])
    return [Startup(what, statistics.median(times[1:]) - empty) for what, times in taken.items()]


def _processor_seconds(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
