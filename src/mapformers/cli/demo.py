"""`mapformers demo`: two models learn the same 2D worlds; one of them discovers the map. Prints it and draws it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console
from torch import Tensor

from mapformers.analysis import align, token_movements, walked_path
from mapformers.cli.parse import parse
from mapformers.cli.threads import use_threads
from mapformers.errors import UserError, require
from mapformers.explorer.bundle import bundle
from mapformers.explorer.loaded_runs import open_runs
from mapformers.files import clear_file_errors, write_atomically, write_json
from mapformers.model import Decoder
from mapformers.recipes import RECIPES, TableView
from mapformers.reports.map_figure import MapPicture, draw_map
from mapformers.runs.run import load
from mapformers.seeding import generator
from mapformers.tasks import Task
from mapformers.training.train import start_run

DESCRIPTION = """Learn a cognitive map of a 2D world, end to end.

Trains a one-layer RoPE transformer and a one-layer MapFormer (MapWM, rank 2) on walks over a 64 x 64 grid, then
measures both in worlds they never saw: smaller and denser, larger and emptier. Draws what the MapFormer learned.
"""
INTRO = """An agent walks on a grid. The model reads a₁ o₁ a₂ o₂ …: an action, then what is found there.
Which tokens are actions, and what they do, is for the model to find out.
Scored is what it predicts on coming back to a place that is not empty.
"""
ROWS = ("RoPE (1L)", "MapWM-r2")
WORLD, MAPPED = "2D", "MapWM-r2"
SHOWN = ("mapwm-r2", "rope")  # on the page, the map first


@dataclass(frozen=True)
class Arguments:
    scale: Literal["smoke", "cpu"] = "cpu"
    """cpu: the real thing, a few minutes; smoke: seconds, learns nothing, shows that it runs."""
    seed: int = 0
    """Seed of the initialisation and of the data."""
    out: Path = Path("runs/demo")
    """Where runs, figures and the picture go; an existing demo is left alone and a number added."""
    threads: int = 2
    """Threads to compute on. Another number than 2 rounds differently, and so learns a little differently."""


def main(args: Sequence[str]) -> int:
    asked = parse(Arguments, args, "mapformers demo", DESCRIPTION)
    require(asked.seed >= 0, f"--seed must not be negative, but is {asked.seed}.")
    require(asked.out.name != "", "--out needs the name of a folder for the demo, such as runs/demo.")
    with use_threads(asked.threads):
        return run_demo(asked)


def run_demo(asked: Arguments) -> int:
    recipe = RECIPES["table2"]
    folder = _free_folder(asked.out)
    log, screen = Console(stderr=True), Console()
    screen.print(INTRO, highlight=False)
    started = time.monotonic()
    runs = []
    for label in ROWS:
        config = recipe.cell(label, WORLD, asked.seed).config(asked.scale)
        result = start_run(config, folder / label.split()[0].lower(), log, title=f"{label:<9}")
        runs.append({"row": label, "world": WORLD, "seed": asked.seed, "config": config.to_dict(), **result})
    took = time.monotonic() - started
    record = {"recipe": recipe.name, "scale": asked.scale, "seconds": round(took, 1), "runs": runs}
    write_json(folder / "demo.json", record)
    screen.print(TableView(seeds=False).table(recipe, record, WORLD))
    run = load(folder / MAPPED.lower())
    assert isinstance(run.model, Decoder)
    draw_map(map_picture(run.model, run.task, asked.seed), folder / "map.png")
    screen.print(f"Picture: {folder / 'map.png'}   figures: {folder / 'demo.json'}", highlight=False, soft_wrap=True)
    page = folder / "explore.html"
    write_atomically(page, bundle(open_runs([folder / name for name in SHOWN])).encode())
    screen.print(f"Walk in it yourself: open {page} in a browser.", highlight=False, soft_wrap=True)
    on = f"{asked.threads} thread{'s' if asked.threads > 1 else ''}"
    screen.print(f"Training and measuring took {took / 60:.1f} minutes on {on}.", highlight=False)
    return 0


def map_picture(model: Decoder, task: Task[Any], seed: int) -> MapPicture:
    """What the figure shows: movements of all tokens, and one walk the model has not seen."""
    batch = task.sample("iid", 1, generator(seed, "picture"))
    truth = _from_start(batch.info["displacement"][0])
    integrated, explained = align(_from_start(walked_path(model, batch.tokens[0])[0::2]), truth)
    return MapPicture(
        movements=token_movements(model).numpy(),
        token_names=task.token_names,
        action_ids=task.action_ids,
        truth=truth.numpy(),
        integrated=integrated.numpy(),
        explained=explained,
    )


def _from_start(path: Tensor) -> Tensor:
    """A walk after each of its steps, with the start before them, from which it is counted: (T, n) -> (T + 1, n)."""
    return torch.cat((path.new_zeros(1, path.shape[1]), path))


def _free_folder(wanted: Path) -> Path:
    """``wanted``, or the first of ``wanted-2``, ``wanted-3``, … that does not exist yet."""
    with clear_file_errors("write to", wanted):
        for number in range(1, 1000):
            folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
            if not folder.exists():
                folder.mkdir(parents=True)
                return folder
    raise UserError(f"{wanted} and its numbered successors all exist; choose another --out.")
