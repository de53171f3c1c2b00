"""`mapformers show`: one sample of a task, drawn as a person would read it."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from mapformers.cli.parse import parse
from mapformers.seeding import generator
from mapformers.tasks import TASKS

PROG = "mapformers show"
DESCRIPTION = """Draw one sample of a task as a person would read it.

Name a task, then --help, to see its settings."""


@dataclass(frozen=True)
class Arguments:
    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")]
    """A name from `mapformers list tasks`."""
    split: str = "iid"
    """Which split to draw from."""
    seed: int = 0
    """Which sample."""


def main(args: Sequence[str]) -> int:
    words = [arg for arg in args if not arg.startswith("-")]
    if not words:
        parse(Arguments, args, PROG, DESCRIPTION)  # --help, or what is missing
    entry = TASKS[next((word for word in words if word in TASKS), words[0])]
    fields: list[Any] = [("choice", Arguments), ("task_settings", entry.settings, entry.settings())]
    both = dataclasses.make_dataclass("Show", fields, frozen=True)
    asked: Any = parse(both, args, PROG, DESCRIPTION)
    task = entry.build(asked.task_settings)
    print(task.show(asked.choice.split, generator(asked.choice.seed, "show")))
    return 0
