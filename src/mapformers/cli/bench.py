"""`mapformers bench`: how fast is each layer here, what does it hold in memory, and how soon does it learn?"""

import dataclasses
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import tyro
from rich.console import Console

from mapformers.benchmarks.generation import SIZE as GENERATION_SIZE
from mapformers.benchmarks.generation import SMOKE_SIZE as GENERATION_SMOKE
from mapformers.benchmarks.generation import generation
from mapformers.benchmarks.learning import learning
from mapformers.benchmarks.lengths import LENGTHS, TOKENS, by_length
from mapformers.benchmarks.memory import memory, memory_by_batch
from mapformers.benchmarks.ops import LARGE_SIZE, SMALL_SIZE, SMOKE_SIZE, ops
from mapformers.benchmarks.report import REPORTS
from mapformers.benchmarks.startup import startup
from mapformers.benchmarks.tasks import tasks
from mapformers.benchmarks.throughput import SIZES, throughput
from mapformers.cli.output import print_json
from mapformers.cli.parse import parse
from mapformers.cli.threads import use_threads
from mapformers.errors import require
from mapformers.files import clear_file_errors, write_json
from mapformers.runs.provenance import provenance
from mapformers.runs.sources import library_hash
from mapformers.stages import doing

DESCRIPTION = """Measure speed and memory on this machine. Close other programs first.

  mapformers bench throughput      training speed and memory of layers as a ratio to rope, and of rope to Llama
  mapformers bench lengths         the same at lengths 256, 1024 and 4096
  mapformers bench memory          peak memory of a training step by length, and by batch at the paper's size
  mapformers bench tasks           how fast tasks are sampled, against how fast MapWM learns from them
  mapformers bench learning        sequences and seconds until MapWM knows 2D navigation
  mapformers bench ops             training steps with each backward pass by hand, and in plain PyTorch
  mapformers bench generation      tokens a second one at a time, as a ratio to transformers' Llama with its cache
  mapformers bench startup         processor time before a command answers, and of imports
"""


Benchmark = Literal["throughput", "lengths", "memory", "tasks", "learning", "ops", "generation", "startup"]


@dataclass(frozen=True)
class Arguments:
    name: tyro.conf.Positional[Benchmark] = "throughput"
    """Which benchmark."""
    sizes: tuple[Literal["smoke", "navigation", "speed", "language"], ...] = ("navigation", "speed", "language")
    """throughput: navigation is every layer (1 layer of 64, batches of 128 x 256 tokens), speed the rows of the paper's
    table (12 layers of 768, 256 tokens), language its language model (the preset paper of `lm train`, 1 x 1024)."""
    repeats: int | None = None
    """Timed repetitions (as many as the benchmark has unless given; learning and memory have none)."""
    seeds: int = 5
    """learning: seeds 0 to N-1."""
    goal: float = 0.99
    """learning: the iid accuracy to reach."""
    scale: Literal["smoke", "cpu"] = "cpu"
    """lengths, memory, tasks, learning, ops, generation, startup: smoke only shows that it runs."""
    write: Path | None = None
    """Also keep the figures in this folder, as bench-NAME.json."""
    threads: int | None = None
    """Threads to compute on (one per core unless given)."""
    json: bool = False
    """Print one JSON document, what bench-NAME.json keeps, instead of tables."""


def main(args: Sequence[str]) -> int:
    asked = parse(Arguments, args, "mapformers bench", DESCRIPTION)
    require(asked.repeats is None or asked.repeats >= 1, f"--repeats must be at least 1, not {asked.repeats}.")
    require(asked.seeds >= 1, f"--seeds must be at least 1, not {asked.seeds}.")
    require(0 < asked.goal <= 1, f"--goal is an accuracy between 0 and 1, not {asked.goal}.")
    shown = nullcontext() if asked.name == "learning" else doing(f"benchmark {asked.name}")  # runs show themselves
    with use_threads(asked.threads), shown:
        origin = {**provenance({"threads": torch.get_num_threads()}), "sources": library_hash()}
        record = {"benchmark": asked.name, **measure(asked), **origin}
    if asked.json:
        print_json(record)
    for table in [] if asked.json else REPORTS[asked.name].tables(record):
        Console().print(table)
    if asked.write is not None:
        with clear_file_errors("write to", asked.write):
            asked.write.mkdir(parents=True, exist_ok=True)
            write_json(asked.write / f"bench-{asked.name}.json", record)
    return 0


def measure(asked: Arguments) -> dict[str, Any]:
    """The figures of one benchmark as plain data."""
    measures = {
        "throughput": _throughput,
        "lengths": _lengths,
        "memory": _memory,
        "tasks": _tasks,
        "learning": _learning,
        "ops": _ops,
        "generation": _generation,
        "startup": _startup,
    }
    return measures[asked.name](asked)


def _throughput(asked: Arguments) -> dict[str, Any]:
    sizes = {name: SIZES[name] for name in asked.sizes}
    return {"sizes": {n: {"title": s.title, "rows": _plain(throughput(s, asked.repeats))} for n, s in sizes.items()}}


def _lengths(asked: Arguments) -> dict[str, Any]:
    tokens, lengths, repeats = (1024, (256,), 1) if asked.scale == "smoke" else (TOKENS, LENGTHS, asked.repeats or 7)
    timed = by_length(lengths, tokens, repeats)
    return {"tokens": tokens, "lengths": {str(length): _plain(rows) for length, rows in timed.items()}}


def _memory(asked: Arguments) -> dict[str, Any]:
    smoke = asked.scale == "smoke"
    large = SIZES["smoke" if smoke else "speed"]
    grown = memory((64,)) if smoke else memory()
    grown_by_batch = memory_by_batch(large, (1,)) if smoke else memory_by_batch(large)
    return {"rows": _plain(grown), "large": large.title, "by_batch": _plain(grown_by_batch)}


def _tasks(asked: Arguments) -> dict[str, Any]:
    return {"rows": _plain(tasks(1, 4) if asked.scale == "smoke" else tasks(asked.repeats or 10))}


def _learning(asked: Arguments) -> dict[str, Any]:
    found = learning(asked.goal, asked.seeds, asked.scale, Console(stderr=True))
    return {"goal": asked.goal, "scale": asked.scale, "runs": _plain(found)}


def _ops(asked: Arguments) -> dict[str, Any]:
    if asked.scale == "smoke":
        return {"rows": _plain(ops((SMOKE_SIZE,), 1, memory=False))}
    return {"rows": _plain(ops((SMALL_SIZE, LARGE_SIZE), asked.repeats or 20))}


def _generation(asked: Arguments) -> dict[str, Any]:
    size = GENERATION_SMOKE if asked.scale == "smoke" else GENERATION_SIZE
    return {"title": size.title, "tokens": size.length, "rows": _plain(generation(size, repeats=asked.repeats))}


def _startup(asked: Arguments) -> dict[str, Any]:
    return {"rows": _plain(startup(1 if asked.scale == "smoke" else asked.repeats or 7))}


def _plain(rows: Sequence[Any]) -> list[dict[str, Any]]:
    return [dataclasses.asdict(row) for row in rows]
