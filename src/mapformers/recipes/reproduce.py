"""Run the cells of a recipe and keep what they measured in one JSON file. Cells already measured are not run again."""

import hashlib
import json
import re
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from mapformers import players
from mapformers.errors import UserError, require
from mapformers.evaluation import evaluate
from mapformers.recipes.recipe import RECIPES, Recipe, Row
from mapformers.tasks import build_task
from mapformers.training.files import read_json, write_json
from mapformers.training.loop import resume, train
from mapformers.training.run import RunConfig, RunFolder

Cell = tuple[Row, str, int]  # row, world, seed


def reproduce(
    recipe: Recipe,
    *,
    scale: str,
    seeds: int,
    rows: Sequence[Row],
    jobs: int,
    runs: Path,
    results: Path,
    console: Console,
) -> dict[str, Any]:
    """Train and measure every cell that ``results`` does not have yet; write after each, so nothing is lost."""
    empty: dict[str, Any] = {"recipe": recipe.name, "scale": scale, "runs": []}
    record = read_record(results) if results.exists() else empty
    done = {(run["row"], run["world"], run["seed"]): run["config"] for run in record["runs"]}
    cells = list(_cells(recipe, rows, seeds))
    todo = [
        (row, world, seed)
        for row, world, seed in cells
        if not _is_run_of(recipe.run_config(row, world, seed, scale), done.get((row.label, world, seed)))
    ]
    ready = len(cells) - len(todo)
    console.print(f"{recipe.name} at {scale} scale: {len(todo)} runs to do, {ready} done.", highlight=False)
    measured = record.setdefault("players", {})
    results.parent.mkdir(parents=True, exist_ok=True)
    for world in recipe.worlds:
        if world not in measured:
            measured[world] = player_scores(recipe, world)
            write_json(results, record)
    threads = max(1, torch.get_num_threads() // jobs)
    with _sigterm_as_interrupt(), ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        try:
            futures = {pool.submit(run_cell, recipe.name, *_key(cell), scale, runs, threads): cell for cell in todo}
            for finished, future in enumerate(as_completed(futures), start=1):
                run = future.result()
                key = _key(futures[future])
                others = [other for other in record["runs"] if (other["row"], other["world"], other["seed"]) != key]
                record["runs"] = sorted([*others, run], key=lambda run: (run["row"], run["world"], run["seed"]))
                write_json(results, record)
                figures = ", ".join(f"{s} {run['splits'][s][recipe.metric]['value']:.3f}" for s in recipe.splits)
                line = f"({finished}/{len(todo)}) {key[0]}, {key[1]}, seed {key[2]}: {figures}"
                console.print(line, highlight=False, soft_wrap=True)
        except BaseException:
            for child in active_children():  # each saves its run and stops
                child.terminate()
            pool.shutdown(cancel_futures=True)  # or the pool would go on with the cells that wait
            raise
    return record


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Within it a SIGTERM, which a scheduler sends before it takes the machine away, ends the work as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def player_scores(recipe: Recipe, world: str) -> dict[str, dict[str, float]]:
    """What the players without learning score in a world: player -> split -> figure."""
    task = build_task(recipe.task, **recipe.worlds[world])
    return {
        name: {
            split: float(evaluate(players.build(name, task, split), task, split)[recipe.metric])
            for split in recipe.splits
        }
        for name in players.names(task)
    }


def read_record(path: Path) -> dict[str, Any]:
    """The results kept of a recipe, or one clear sentence."""
    record = read_json(path)
    require(
        isinstance(record, dict) and isinstance(record.get("runs"), list),
        f"{path} is not a file of results; restore it, or move it away to measure anew.",
    )
    return dict(record)


def _is_run_of(config: RunConfig, recorded: dict[str, Any] | None) -> bool:
    """Whether a recorded run had these settings; those it does not mention did not exist yet and had their default."""
    try:
        return recorded is not None and RunConfig.from_dict(recorded) == config
    except UserError:
        return False


def _key(cell: Cell) -> tuple[str, str, int]:
    row, world, seed = cell
    return row.label, world, seed


def _cells(recipe: Recipe, rows: Sequence[Row], seeds: int) -> Iterator[Cell]:
    for seed in range(seeds):
        for world in recipe.worlds:
            for row in rows:
                yield row, world, seed


def run_cell(name: str, label: str, world: str, seed: int, scale: str, runs: Path, threads: int) -> dict[str, Any]:
    """One run, in a process of its own; picks up where an interrupted one stopped. Its lines go to log.txt."""
    torch.set_num_threads(threads)
    recipe = RECIPES[name]
    row = recipe.row(label)
    config = recipe.run_config(row, world, seed, scale)
    # a cell whose settings have changed gets a folder of its own, so the old run is neither resumed nor lost
    mark = hashlib.sha256(json.dumps(config.to_dict(), sort_keys=True).encode()).hexdigest()[:8]
    folder = runs / name / scale / re.sub(r"\W+", "-", f"{label} {world} seed{seed} {mark}")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.txt").open("a") as log:
        console = Console(file=log, force_terminal=False, width=160)
        title = f"{label}, {world}, seed {seed}"
        begun = RunFolder(folder).config_file.exists()
        result = resume(folder, console, title) if begun else train(config, folder, console, title)
    curve = [
        {"sequences": line["step"] * config.train.batch_size, recipe.metric: line[recipe.metric]}
        for line in RunFolder(folder).metrics()
        if "split" in line
    ]
    return {"row": label, "world": world, "seed": seed, "config": config.to_dict(), **result, "curve": curve}
