"""`graph`: random walks on a graph of your own, read from a file; predict what a revisited node holds.

A sequence is a₁ o₁ a₂ o₂ …: one of the actions that are possible at the current node, uniformly at random, then what is
found at the node to which it leads. The world is a JSON file (graph_world.py, docs/worlds.md).
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
from mapformers.stages import doing
from mapformers.tasks.graph_world import GraphWorld, find_world, is_networkx, is_world_file
from mapformers.tasks.task import Batch, Metric, register_task, require_names
from mapformers.tasks.walk import WalkTask, choice, contents, object_names

EMPTY = "·"
NO_BREAK = "\u00a0"


@dataclass(frozen=True)
class GraphSettings:
    """A world, and how walks on it are drawn.

    A file is read at once, and the setting then holds the world itself. So a run keeps its world even if the file
    changes later.
    """

    world: str = "subway"
    """Name of a shipped world (subway, tree, dihedral, free-product), path of a JSON file, or the JSON itself."""
    steps: int = 128
    """Steps of a walk. A step is an action and an observation, so 128 steps are 256 tokens."""
    p_empty: float = 0.5
    """Probability that a node is empty, unless the world fixes what it holds."""
    n_objects: int = 16
    """Number of different objects."""
    start: Literal["fixed", "random"] = "fixed"
    """Where walks start. fixed: at the start node of the world; random: at any node, uniformly at random."""

    def __post_init__(self) -> None:
        for name in ("steps", "n_objects"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}.")
        require_names("n_objects", self.n_objects)
        require(0 <= self.p_empty <= 1, f"p_empty is a probability between 0 and 1, not {self.p_empty}.")
        if is_world_file(self.world):
            with (
                doing("reading the world"),
                contextlib.suppress(UserError),
            ):  # a bad file is refused when the task is built
                object.__setattr__(self, "world", find_world(self.world).to_json())

    @classmethod
    def spelled(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings with a `GraphWorld`, a `networkx` graph or a `Path` turned into text."""
        world = settings.get("world")
        if is_networkx(world):
            world = GraphWorld.from_networkx(world)
        if isinstance(world, GraphWorld):
            return {**settings, "world": world.to_json()}
        return {**settings, "world": os.fspath(world)} if isinstance(world, os.PathLike) else dict(settings)


class Graph(WalkTask[GraphSettings]):
    """Tokens: the actions; "empty" and the objects, unless the world fixes all nodes; the observations it fixes.

    Revisits are scored as on every walk. A fixed observation is the same in every sequence, so a model can know it at
    the first visit. Worlds with fixed observations therefore have a second metric, ``accuracy_first_visits``.
    """

    @doing("building the world")  # one of a million nodes takes a while
    def __init__(self, settings: GraphSettings):
        super().__init__(settings)
        self.world = world = find_world(settings.world)
        self._exits = world.exits()
        self._never_reached = self._find_never_reached()
        self._require_reached(settings)
        symbols = list(dict.fromkeys(world.observations.values()))
        any_not_fixed = len(world.observations) < len(world.nodes)
        objects = object_names(settings.n_objects) if any_not_fixed else []
        if set(objects) & {*world.actions, *symbols}:
            objects = [f"object {name}" for name in objects]
        empty = [EMPTY] if any_not_fixed or EMPTY in symbols else []
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
        # If the start is not known, even the best player can be wrong: see players/graph.py.
        self.reference_players = ("perfect", "best-lag") if settings.start == "random" else ("best-lag",)
        self._tabulate()

    def _find_never_reached(self) -> str | None:
        """The first node to which no walk from the start node of the world leads."""
        found = [self.world.start]
        reached = set(found)
        for node in found:  # breadth first: the list grows while it is read
            new = set(self._exits[node].values()) - reached
            reached |= new
            found += new
        return next((node for node in self.world.nodes if node not in reached), None)

    def _require_reached(self, settings: GraphSettings) -> None:
        """Refuse a node that no walk can reach; walks that start anywhere reach them all."""
        world, node = self.world, self._never_reached
        require(
            node is None or settings.start == "random",
            f"World {world.name!r}: node {node!r} cannot be reached from the start {world.start!r}; add an edge that "
            "leads there, leave the node out, or let walks start anywhere (start: random).",
        )

    def _tabulate(self) -> None:
        """The graph as tensors.

        ``_degree``  (N,) the number of exits of each node.
        ``_action``  (N, K) the action of exit k of a node, and ``_target`` (N, K) the node to which it leads.
        ``_fixed``   (N,) the token of the fixed observation of a node; -1 if it is not fixed.
        """
        number = {node: index for index, node in enumerate(self.world.nodes)}
        token = {name: index for index, name in enumerate(self.token_names)}
        exits = [list(self._exits[node].items()) for node in self.world.nodes]
        max_degree = max(map(len, exits))
        padded = [ways + ways[:1] * (max_degree - len(ways)) for ways in exits]  # the padding is never chosen
        self._degree = torch.tensor([len(ways) for ways in exits])
        self._action = torch.tensor([[token[action] for action, _ in ways] for ways in padded])
        self._target = torch.tensor([[number[node] for _, node in ways] for ways in padded])
        fixed = self.world.observations
        self._fixed = torch.tensor([token[fixed[node]] if node in fixed else -1 for node in self.world.nodes])
        self._start = number[self.world.start]

    def split_settings(self, split: str | Mapping[str, Any] | GraphSettings) -> GraphSettings:
        settings = super().split_settings(split)
        same = (settings.world, settings.n_objects) == (self.settings.world, self.settings.n_objects)
        require(
            same,
            "A split must keep world and n_objects, which decide the tokens; build another task to change them.",
        )
        self._require_reached(settings)
        return settings

    def numbers_per_sequence(self, settings: GraphSettings) -> int:
        """The start, the exit taken at each step, and what each node holds."""
        return 1 + 2 * settings.steps

    def draw(self, uniform: Tensor, settings: GraphSettings) -> Batch:
        steps = settings.steps
        start = torch.full((len(uniform),), self._start)
        if settings.start == "random":
            start = choice(uniform[:, 0], len(self.world.nodes))
        actions, nodes = self._walk(start, uniform[:, 1 : 1 + steps])
        found = fixed = self._fixed[nodes]
        if self.empty_id is not None and self.object_ids:
            drawn = contents(uniform[:, 1 + steps :], settings.p_empty, self.empty_id, settings.n_objects)
            found = torch.where(fixed < 0, drawn, fixed)
        batch = self.walk_batch(actions, nodes, found, start=start, nodes=nodes)
        if self.world.observations:
            is_fixed = torch.zeros_like(batch.score_mask)
            is_fixed[:, 0::2] = fixed >= 0
            batch.info["fixed_first"] = is_fixed & ~batch.info["revisit"]
        return batch

    def _walk(self, node: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Walks from nodes (B,), with one uniform number per step (B, T): the actions and the nodes reached, (B, T)."""
        max_degree = self._target.shape[1]
        degree, target = self._degree, self._target.flatten()
        exits = torch.empty(uniform.shape[1], len(uniform), dtype=torch.long)  # node · max_degree + number of the exit
        for step, number in enumerate(uniform.T.contiguous()):
            torch.add(node * max_degree, choice(number, degree[node]), out=exits[step])
            node = target[exits[step]]
        exits = exits.T.contiguous()
        return self._action.flatten()[exits], target[exits]

    def trace(self, actions: Sequence[int], settings: GraphSettings) -> list[str]:
        """The names of the nodes, from the start node of the world."""
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
            scores["accuracy_first_visits"] = Metric.fraction(right, batch.info["fixed_first"].to(right.device))
        return scores

    def model_defaults(self) -> dict[str, Any]:
        """``base`` is the number of nodes: no circle in the graph is longer."""
        return {"base": float(len(self.world.nodes))}

    def show(self, split: str | Mapping[str, Any], generator: torch.Generator) -> str:
        """The walk as text, with the names of the nodes."""
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
    settings=GraphSettings,
    build=Graph,
)
