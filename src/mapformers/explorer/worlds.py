"""What the page must know of a task: its tokens, its rules as plain data, and worlds to walk in, drawn from a seed."""

import dataclasses
from typing import Any

import numpy as np
import torch

from mapformers import players
from mapformers.config import to_dict
from mapformers.errors import UserError, require
from mapformers.players.logician import Logician
from mapformers.seeding import generator
from mapformers.tasks import Task
from mapformers.tasks.dyck import Dyck
from mapformers.tasks.family import RELATIONS, grow_one
from mapformers.tasks.family_tree import FamilyTree
from mapformers.tasks.graph import Graph
from mapformers.tasks.graph_world import GraphWorld
from mapformers.tasks.navigation import Navigation
from mapformers.tasks.selective_copy import SelectiveCopy
from mapformers.tasks.walk import WalkTask, choice, contents

MAX_CELLS = 200_000  # of a world that is sent to the page
MAX_SAMPLE = 512  # tokens of a sequence that is sent to begin with
MAX_SEED = 2**31


def describe(task: Task[Any]) -> dict[str, Any]:
    """The task as the page sees it."""
    about: dict[str, Any] = {
        "name": task.name,
        "kind": kind_of(task),
        "tokens": [visible(str(name)) for name in task.token_names],
        "actions": list(task.action_ids),
        "metric": task.main_metric,
        "settings": to_dict(task.settings),
        "splits": {name: to_dict(task.split_settings(name)) for name in task.splits},
        "players": players.names(task),
    }
    if isinstance(task, WalkTask):
        about["empty"] = task.empty_id
        about["lag"] = players.simple.BestLag(task, task.settings).lag
    if isinstance(task, SelectiveCopy):
        about |= {"blank": task.blank_id, "separator": task.separator_id}
    return about


def visible(name: str) -> str:
    """A token with its blanks as signs, so that one can see it."""
    return name.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥") if not name.strip() or name[0] == " " else name


def kind_of(task: Task[Any]) -> str:
    """Which of the page's worlds shows a task; `tokens`: one that the page has no picture of."""
    kinds = {Navigation: "grid", Dyck: "brackets", FamilyTree: "family", Graph: "graph", SelectiveCopy: "copy"}
    named = next((kind for cls, kind in kinds.items() if isinstance(task, cls)), None)
    return named or ("text" if task.name == "text" else "tokens")


def draw_world(task: Task[Any], split: str, seed: int) -> dict[str, Any]:
    """A world of a split, or a sequence where a task has no world, the same for the same seed."""
    require(isinstance(split, str), "split must be the name of a split.")
    whole = isinstance(seed, int) and not isinstance(seed, bool)
    require(whole and 0 <= seed < MAX_SEED, f"seed must be a whole number from 0 to {MAX_SEED - 1}.")
    settings = task.split_settings(split)
    if isinstance(task, Navigation):
        return grid_world(task, settings, seed)
    if isinstance(task, Graph):
        return graph_world(task, settings, seed)
    if isinstance(task, FamilyTree):
        return family_world(settings, seed)
    batch = task.sample(split, 1, generator(seed, "explore"))
    sequence = [*batch.tokens[0].tolist(), int(batch.targets[0, -1])]
    scored = [False, *batch.score_mask[0].tolist()]
    return {"tokens": sequence[:MAX_SAMPLE], "scored": scored[:MAX_SAMPLE]}


def grid_world(task: Navigation, world: Any, seed: int) -> dict[str, Any]:
    """What every cell holds, and where the walk starts: walks draw both so, a cell when it is first visited."""
    cells = world.grid**world.dims
    require(cells <= MAX_CELLS, f"A world of {cells} cells is too large for the page; choose a smaller grid.")
    stream = generator(seed, "explore")
    start = choice(torch.rand(world.dims, generator=stream), world.grid)
    if world.edges == "torus":
        start = torch.zeros_like(start)
    found = contents(torch.rand(cells, generator=stream), world.p_empty, task.empty_id, world.n_objects)
    return {"start": start.tolist(), "contents": found.tolist(), **to_dict(world)}


def graph_world(task: Graph, settings: Any, seed: int, world: GraphWorld | None = None) -> dict[str, Any]:
    """The graph, what every node holds, and the node where the walk starts."""
    world = task.world if world is None else world
    require(len(world.nodes) <= MAX_CELLS, f"A world of {len(world.nodes)} nodes is too large for the page.")
    token = {name: index for index, name in enumerate(task.token_names)}
    for action in world.actions:
        require(
            token.get(action) in task.action_ids,
            f"This model does not know the action {action!r}; the world's actions must be among: "
            f"{', '.join(task.token_names[index] for index in task.action_ids)}.",
        )
    stream = generator(seed, "explore")
    draws = torch.rand(len(world.nodes), generator=stream)
    found = [task.empty_id or 0] * len(world.nodes)
    if task.empty_id is not None and task.object_ids:
        found = contents(draws, settings.p_empty, task.empty_id, settings.n_objects).tolist()
    for index, node in enumerate(world.nodes):
        if node in world.observations:
            name = world.observations[node]
            require(name in token, f"This model has never seen {name!r}, which the world has at {node!r}.")
            found[index] = token[name]
    number = {node: index for index, node in enumerate(world.nodes)}
    start = number[world.start]
    if settings.start == "random":
        start = int(choice(torch.rand(1, generator=stream), len(world.nodes)))
    exits = world.exits()
    return {
        "name": world.name,
        "nodes": list(world.nodes),
        "start": start,
        "contents": found,
        "exits": [{token[action]: number[to] for action, to in exits[node].items()} for node in world.nodes],
    }


def own_graph(task: Task[Any], text: Any, seed: int) -> dict[str, Any]:
    """A world that somebody brought, as the JSON of docs/worlds.md."""
    if not isinstance(task, Graph):
        raise UserError("Only a model that was trained on the task `graph` can walk on a graph of your own.")
    require(isinstance(text, str), "A world is the text of its JSON file.")
    return graph_world(task, dataclasses.replace(task.settings, start="fixed"), seed, GraphWorld.from_json(text))


def family_world(settings: Any, seed: int) -> dict[str, Any]:
    """A family, the name of everybody in it, and the person at whom the walk starts."""
    number = settings.tree_seed if settings.trees == "fixed" else seed
    forest = grow_one(number, settings.rules())
    people = len(forest.female)
    require(people <= MAX_CELLS, f"A family of {people} people is too large for the page; choose fewer generations.")
    stream = generator(seed, "explore")
    names = len(RELATIONS) + choice(torch.rand(people, generator=stream), settings.n_names)
    return {
        "start": int(choice(torch.rand(1, generator=stream), people)),
        "contents": names.tolist(),
        "relatives": forest.relatives.astype(int).tolist(),
        "female": np.asarray(forest.female).tolist(),
        "generation": forest.generation.astype(int).tolist(),
    }


def is_certain(task: Task[Any], tokens: tuple[int, ...]) -> dict[str, Any]:
    """What the logician makes of a walk in a family: the name it expects next, and whether kinship makes it certain."""
    require(isinstance(task, FamilyTree), "The logician knows families only.")
    require(len(tokens) % 2 == 1, "The logician is asked after a relation.")
    answers, certain = Logician(task, task.settings).play(torch.tensor([tokens]))
    return {"answer": int(answers[0, -1]), "certain": bool(certain[0, -1])}
