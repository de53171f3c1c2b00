"""Run the cells of a recipe and keep what they measured in one JSON file. Cells already measured are not run again."""

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from mapformers.recipes.recipe import RECIPES, Recipe, Row
from mapformers.training.files import read_json, write_json
from mapformers.training.loop import resume, train
from mapformers.training.run import RunFolder

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
    record: dict[str, Any] = (
        read_json(results) if results.exists() else {"recipe": recipe.name, "scale": scale, "runs": []}
    )
    done = {(run["row"], run["world"], run["seed"]): run["config"] for run in record["runs"]}
    todo = []
    for row, world, seed in _cells(recipe, rows, seeds):
        config = recipe.run_config(row, world, seed, scale).to_dict()
        if done.get((row.label, world, seed)) != config:
            todo.append((row, world, seed))
    console.print(f"{recipe.name} at {scale} scale: {len(todo)} runs to do, {len(done)} done.", highlight=False)
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = {
            pool.submit(run_cell, recipe.name, row.label, world, seed, scale, runs, threads): (row, world, seed)
            for row, world, seed in todo
        }
        for finished, future in enumerate(as_completed(futures), start=1):
            row, world, seed = futures[future]
            key = (row.label, world, seed)
            record["runs"] = [run for run in record["runs"] if (run["row"], run["world"], run["seed"]) != key]
            record["runs"].append(future.result())
            record["runs"].sort(key=lambda run: (run["row"], run["world"], run["seed"]))
            write_json(results, record)
            scores = future.result()["splits"]
            figures = ", ".join(f"{split} {scores[split][recipe.metric]['value']:.3f}" for split in recipe.splits)
            console.print(
                f"[{finished}/{len(todo)}] {row.label}, {world}, seed {seed}: {figures}",
                highlight=False,
                soft_wrap=True,
                markup=False,
            )
    return record


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
    folder = runs / name / scale / re.sub(r"\W+", "-", f"{label} {world} seed{seed}").strip("-")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.txt").open("a") as log:
        console = Console(file=log, force_terminal=False, width=160)
        title = f"{label}, {world}, seed {seed}"
        if (folder / "config.json").exists() and read_json(folder / "config.json") == config.to_dict():
            result = resume(folder, console, title)
        else:
            (folder / "config.json").unlink(missing_ok=True)
            result = train(config, folder, console, title)
    curve = [
        {"sequences": line["step"] * config.train.batch_size, recipe.metric: line[recipe.metric]}
        for line in RunFolder(folder).metrics()
        if "split" in line
    ]
    return {"row": label, "world": world, "seed": seed, "config": config.to_dict(), **result, "curve": curve}
