"""`mapformers list` and `mapformers show`: what there is, and what a task looks like."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import tyro
from rich.console import Console

from mapformers.cli.parse import parse, parse_known
from mapformers.cli.tables import names_table
from mapformers.mixers import LAYERS
from mapformers.recipes import RECIPES
from mapformers.seeding import generator
from mapformers.tasks import TASKS

Kind = Literal["models", "tasks", "recipes"]
REGISTRIES: dict[str, Any] = {"models": LAYERS, "tasks": TASKS, "recipes": RECIPES}


@dataclass(frozen=True)
class ListArguments:
    kind: tyro.conf.Positional[Kind | None] = None
    """What to list (all unless given)."""


def list_main(args: Sequence[str]) -> int:
    asked = parse(ListArguments, args, "mapformers list", "List models, tasks and recipes by name.")
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
    quiet = [arg for arg in args if arg not in ("-h", "--help")]
    if not quiet or quiet[0].startswith("-"):
        parse(ShowArguments, args, prog, description)
    entry = TASKS[quiet[0]]
    world: Any = parse_known(entry.settings, quiet[1:], prog)
    both = dataclasses.make_dataclass(
        "Show", [("choice", ShowArguments), ("task_settings", entry.settings, world)], frozen=True
    )
    asked: Any = parse(both, args, prog, description)
    task = entry.build(asked.task_settings)
    print(task.show(asked.choice.split, generator(asked.choice.seed, "show")))
    return 0
