"""`graph`: walks on any deterministic labelled graph; what will be found on coming back to a node?

A sequence is a₁ o₁ a₂ o₂ …: at each node one of the actions that are possible there, all alike, then what is found
where it leads. The world is a JSON file (graph_world.py, docs/worlds.md).
"""

import contextlib
import os
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from mapformers.errors import UserError, require
from mapformers.tasks.graph_world import GraphWorld, find_world, is_world_file
from mapformers.tasks.task import Batch, Metric, register_task, require_names
from mapformers.tasks.walk import WalkTask, choice, contents, object_names

EMPTY = "·"
NO_BREAK = "\u00a0"


@dataclass(frozen=True)
class GraphSettings:
    """A world and how it is walked.

    A file is read when it is named: the setting then holds the world itself, and so does a run, whatever becomes of
    the file.
    """

    world: str = "subway"
    """Name of a shipped world (subway, tree, dihedral, free-product), path of a JSON file, or the JSON itself."""
    steps: int = 128
    """Steps of a walk: action/observation pairs, so 128 steps are 256 tokens."""
    p_empty: float = 0.5
    """Probability that a node is empty, where the world does not say what is there."""
    n_objects: int = 16
    """Kinds of objects."""
    start: Literal["fixed", "random"] = "fixed"
    """Where walks begin: at the start of the world (its first node unless it names one), or at any node."""

    def __post_init__(self) -> None:
        for name in ("steps", "n_objects"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}.")
        require_names("n_objects", self.n_objects)
        require(0 <= self.p_empty <= 1, f"p_empty is a probability between 0 and 1, not {self.p_empty}.")
        if is_world_file(self.world):
            with contextlib.suppress(UserError):  # the task will say what is wrong with it
                object.__setattr__(self, "world", find_world(self.world).to_json())

    @classmethod
    def spelled(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """A world made in Python, or the path of one, as the text that the setting is."""
        world = settings.get("world")
        if isinstance(world, GraphWorld):
            return {**settings, "world": world.to_json()}
        return {**settings, "world": os.fspath(world)} if isinstance(world, os.PathLike) else dict(settings)


class Graph(WalkTask[GraphSettings]):
    """Tokens: the actions, then "empty" and the objects if the world leaves any node open, then what it fixes.

    Revisits are scored as on every walk. What a node holds in every sequence alike can be known on the first visit
    too: that is ``accuracy_first_visits``, of worlds that fix observations.
    """

    def __init__(self, settings: GraphSettings):
        super().__init__(settings)
        self.world = world = find_world(settings.world)
        self._exits = world.exits()
        symbols = list(dict.fromkeys(world.observations.values()))
        some_open = len(world.observations) < len(world.nodes)
        objects = object_names(settings.n_objects) if some_open else []
        if set(objects) & {*world.actions, *symbols}:
            objects = [f"object {name}" for name in objects]
        empty = [EMPTY] if some_open or EMPTY in symbols else []
        self.token_names = [*world.actions, *empty, *objects, *(symbol for symbol in symbols if symbol != EMPTY)]
        twice = [name for name, times in Counter(self.token_names).items() if times > 1]
        require(not twice, f"World {world.name!r}: {', '.join(twice)} names two tokens; rename it there.")
        self.action_ids = list(range(len(world.actions)))
        self.empty_id = len(world.actions) if empty else None
        self.object_ids = list(range(len(world.actions) + 1, len(world.actions) + 1 + len(objects)))
        self.splits = {
            "iid": {},
            "ood-dense": {"steps": max(1, settings.steps // 2), "p_empty": 0.2},
            "ood-sparse": {"steps": 2 * settings.steps, "p_empty": 0.8},
        }
        # From a start that is not known even the best player may be wrong: see players/graph.py.
        self.beside = ("perfect", "best-lag") if settings.start == "random" else ("best-lag",)
        self._tabulate()

    def _tabulate(self) -> None:
        """The graph as tensors: (N, K) of the k-th way out of a node, as an action and as a node; -1 for "open"."""
        number = {node: index for index, node in enumerate(self.world.nodes)}
        token = {name: index for index, name in enumerate(self.token_names)}
        ways = [list(self._exits[node].items()) for node in self.world.nodes]
        most = max(map(len, ways))
        padded = [way + way[:1] * (most - len(way)) for way in ways]  # never chosen
        self._degree = torch.tensor([len(way) for way in ways])
        self._action = torch.tensor([[token[action] for action, _ in way] for way in padded])
        self._target = torch.tensor([[number[node] for _, node in way] for way in padded])
        held = self.world.observations
        self._held = torch.tensor([token[held[node]] if node in held else -1 for node in self.world.nodes])
        self._start = number[self.world.start]

    def split_settings(self, split: str | Mapping[str, Any]) -> GraphSettings:
        settings = super().split_settings(split)
        same = (settings.world, settings.n_objects) == (self.settings.world, self.settings.n_objects)
        require(
            same, "A split must keep world and n_objects, or its tokens would be others; build another task for that."
        )
        return settings

    def numbers_per_sequence(self, settings: GraphSettings) -> int:
        """The start, the way taken at each step, and what each node holds."""
        return 1 + 2 * settings.steps

    def draw(self, uniform: Tensor, settings: GraphSettings) -> Batch:
        steps = settings.steps
        start = torch.full((len(uniform),), self._start)
        if settings.start == "random":
            start = choice(uniform[:, 0], len(self.world.nodes))
        actions, nodes = self._walk(start, uniform[:, 1 : 1 + steps])
        found = held = self._held[nodes]
        if self.empty_id is not None and self.object_ids:
            drawn = contents(uniform[:, 1 + steps :], settings.p_empty, self.empty_id, settings.n_objects)
            found = torch.where(held < 0, drawn, held)
        batch = self.walk_batch(actions, nodes, found, start=start, nodes=nodes)
        if self.world.observations:
            known = torch.zeros_like(batch.score_mask)
            known[:, 0::2] = held >= 0
            batch.info["fixed_first"] = known & ~batch.info["revisit"]
        return batch

    def _walk(self, node: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """From nodes (B,) by one uniform number per step (B, T): the actions taken and the nodes reached, (B, T)."""
        most = self._target.shape[1]
        degree, target = self._degree, self._target.flatten()
        ways = torch.empty(uniform.shape[1], len(uniform), dtype=torch.long)  # numbers of the pairs (node, way)
        for step, number in enumerate(uniform.T.contiguous()):
            torch.add(node * most, choice(number, degree[node]), out=ways[step])
            node = target[ways[step]]
        ways = ways.T.contiguous()
        return self._action.flatten()[ways], target[ways]

    def trace(self, actions: Sequence[int], settings: GraphSettings) -> list[str]:
        """By name, from the start of the world."""
        node, nodes = self.world.start, []
        for action in actions:
            name = self.token_names[action]
            if name not in self._exits[node]:
                raise UserError(f"Action {name!r} is not possible at node {node!r} of world {self.world.name!r}.")
            node = self._exits[node][name]
            nodes.append(node)
        return nodes

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Metric]:
        scores = super().score(logits, batch)
        if "fixed_first" in batch.info:
            right = logits.argmax(dim=-1) == batch.targets
            scores["accuracy_first_visits"] = Metric.share(right, batch.info["fixed_first"].to(right.device))
        return scores

    def model_defaults(self) -> dict[str, Any]:
        """No circle in the graph is longer than its number of nodes."""
        return {"base": float(len(self.world.nodes))}

    def show(self, split: str | Mapping[str, Any], generator: torch.Generator) -> str:
        """The walk in words, with the names of the nodes."""
        batch = self.sample(split, 1, generator)
        sequence = [*batch.tokens[0].tolist(), int(batch.targets[0, -1])]
        names = [self.token_names[token] for token in sequence]
        scored = batch.score_mask[0, 0::2].tolist()
        nodes = [self.world.nodes[node] for node in batch.info["nodes"][0].tolist()]
        steps = [
            f"{action} → {node} [{found}]" if again else f"{action} → {node} {found}"
            for action, node, found, again in zip(names[0::2], nodes, names[1::2], scored)
        ]
        unbroken = ", ".join(step.replace(" ", NO_BREAK) for step in steps)
        lines = textwrap.wrap(unbroken, width=110, break_long_words=False, break_on_hyphens=False)
        begin = self.world.nodes[int(batch.info["start"][0])]
        title, key = f"{self.world.name}, from {begin}:", "action → node and what is found there, [ ] a scored revisit"
        return "\n".join([title, *(line.replace(NO_BREAK, " ") for line in lines), "", key])


register_task(
    "graph",
    summary="Walks on a labelled graph of your own (JSON): predict what a node holds on coming back to it.",
    settings=GraphSettings,
    build=Graph,
)
