"""`mapformers list` and `mapformers show`: what there is, and what a task looks like."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tyro
from rich.console import Console

from mapformers.cli.parse import parse
from mapformers.cli.tables import names_table
from mapformers.errors import unknown
from mapformers.mixers import LAYERS
from mapformers.recipes import RECIPES
from mapformers.seeding import generator
from mapformers.tasks import TASKS

REGISTRIES: dict[str, Any] = {"models": LAYERS, "tasks": TASKS, "recipes": RECIPES}


@dataclass(frozen=True)
class ListArguments:
    kind: tyro.conf.Positional[str | None] = None
    """models, tasks or recipes (all unless given)."""


def list_main(args: Sequence[str]) -> int:
    asked = parse(ListArguments, args, "mapformers list", "List models, tasks and recipes by name.")
    if asked.kind is not None and asked.kind not in REGISTRIES:
        raise unknown("list", asked.kind, REGISTRIES)
    console = Console()
    for kind in [asked.kind] if asked.kind else list(REGISTRIES):
        registry = REGISTRIES[kind]
        console.print(names_table(kind, [(name, registry[name].summary) for name in registry]))
    return 0


@dataclass(frozen=True)
class ShowArguments:
    task: tyro.conf.Positional[str]
    """A name from `mapformers list tasks`."""
    split: str = "iid"
    """Which split to draw from."""
    seed: int = 0
    """Which sample."""


def show_main(args: Sequence[str]) -> int:
    prog, description = "mapformers show", "Draw one sample of a task as a person would read it."
    words = [arg for arg in args if not arg.startswith("-")]
    if not words:
        parse(ShowArguments, args, prog, description)  # --help, or what is missing
    entry = TASKS[next((word for word in words if word in TASKS), words[0])]
    fields: list[Any] = [("choice", ShowArguments), ("task_settings", entry.settings, entry.settings())]
    both = dataclasses.make_dataclass("Show", fields, frozen=True)
    asked: Any = parse(both, args, prog, description)
    task = entry.build(asked.task_settings)
    print(task.show(asked.choice.split, generator(asked.choice.seed, "show")))
    return 0
