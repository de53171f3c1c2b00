"""Players: rule-based baselines. A player answers by a rule, learns nothing, and is evaluated like a model.

Players show what a score is worth. Some know the rules of the task and reach the best possible score. The
others have no map, and show what a model can score without one.

Examples:
    >>> import mapformers as mf
    >>> task = mf.build_task("navigation", dims=2, steps=16, grid=4)
    >>> player = mf.players.build("perfect", task, "ood-sparse")
    >>> float(mf.evaluate(player, task, "ood-sparse", n_sequences=16)["accuracy"])
    1.0
"""

from collections.abc import Mapping
from typing import Any

from mapformers.errors import unknown
from mapformers.players import dyck, family, graph, logician, relations_only, selective_copy, walker
from mapformers.players.player import Factory, Player, players_of, register_player
from mapformers.players.simple import AtRandom, BestLag, Commonest, LastValue
from mapformers.tasks import Task

FOR_EVERY_TASK: dict[str, Factory] = {
    "commonest": Commonest,
    "last-value": LastValue,
    "best-lag": BestLag,
    "random": AtRandom,
}


def names(task: Task[Any]) -> list[str]:
    """The names of the players that can play a task."""
    return [*players_of(task.name), *FOR_EVERY_TASK]


def without_map(task: str) -> list[str]:
    """The names of the players of a task that keep no map: what they score, a model can score without one."""
    known = {**players_of(task), **FOR_EVERY_TASK}
    return [name for name, factory in known.items() if not getattr(factory, "has_map", True)]


def build(name: str, task: Task[Any], split: str | Mapping[str, Any] = "iid") -> Player:
    """A player for one split of a task. Its rules may depend on the split, such as the size of a torus."""
    known = {**players_of(task.name), **FOR_EVERY_TASK}
    if name not in known:
        raise unknown(f"player of task {task.name!r}", name, known)
    return known[name](task, task.split_settings(split))


__all__ = [
    "Player",
    "build",
    "dyck",
    "family",
    "graph",
    "logician",
    "names",
    "register_player",
    "relations_only",
    "selective_copy",
    "walker",
    "without_map",
]
