"""Worlds of the task `graph`: nodes, actions, and where each action leads. They are read from JSON or made in Python.

{"name": "flat", "nodes": ["kitchen", "hall"], "actions": ["out", "in"],
 "edges": [["kitchen", "out", "hall"], ["hall", "in", "kitchen"]], "start": "hall", "observations": {"hall": "clock"}}
"""

import importlib
import json
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import Any

from mapformers.errors import UserError, require, unknown
from mapformers.files import clear_file_errors, write_atomically

REQUIRED = ("name", "nodes", "actions", "edges")
OPTIONAL = ("start", "observations")

UNPRINTABLE = ("Cc", "Cs", "Zl", "Zp")  # Unicode categories: control characters, surrogates, line and paragraph ends

Edge = tuple[str, str, str]
Permutation = tuple[int, ...]


@dataclass(frozen=True)
class GraphWorld:
    """A deterministic labelled graph: at a node, an action leads to one node or is not possible.

    Make one with `from_dict`, `from_json`, `load`, `from_networkx` or `cayley_world`, and
    give it to a task: ``build_task("graph", world=world)``.
    """

    name: str
    nodes: tuple[str, ...] = field(repr=False)
    actions: tuple[str, ...]
    edges: tuple[Edge, ...] = field(repr=False)
    start: str
    observations: Mapping[str, str] = field(repr=False, hash=False)
    """node -> what is always found there, for the nodes at which that is fixed."""

    def __post_init__(self) -> None:
        _check(self)

    def exits(self) -> dict[str, dict[str, str]]:
        """node -> {action: the node to which it leads}, for the actions possible there, in the order of ``actions``."""
        ways: dict[str, dict[str, str]] = {node: {} for node in self.nodes}
        for tail, action, head in self.edges:
            other = ways[tail].setdefault(action, head)
            require(
                other == head,
                f"action {action!r} at node {tail!r} leads to both {other!r} and {head!r}; an action leads to one "
                "node, so give the two edges different actions.",
            )
        return {node: {action: way[action] for action in self.actions if action in way} for node, way in ways.items()}

    @classmethod
    def from_dict(cls, data: Any, source: str = "The world") -> "GraphWorld":
        """A world from a dict with the keys of the JSON format. Every error sentence begins with ``source``."""
        with _errors_named(source):
            return cls(**_read(data))

    @classmethod
    def from_json(cls, text: str, source: str = "The world") -> "GraphWorld":
        """A world from the text of its JSON file."""
        with _errors_named(source):
            try:
                data = json.loads(text, object_pairs_hook=_object_of_unique_keys)
            except UserError:
                raise
            except (ValueError, RecursionError) as error:
                raise UserError(f"this is not valid JSON ({error}); correct it there.") from None
            return cls(**_read(data))

    @classmethod
    def load(cls, path: str | Path) -> "GraphWorld":
        """The world of a JSON file."""
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            raise UserError(f"Cannot read the world {path}: it is not text in UTF-8; save it as such.") from None
        except IsADirectoryError:
            raise UserError(f"Cannot read the world {path}: it is a folder; give the path of a JSON file.") from None
        except (OSError, ValueError) as error:
            why = (getattr(error, "strerror", None) or str(error)).lower()
            raise UserError(f"Cannot read the world {path}: {why}; give the path of a JSON file.") from None
        return cls.from_json(text, str(path))

    @classmethod
    def from_networkx(
        cls,
        graph: Any,
        action: str = "label",
        *,
        observation: str | None = None,
        name: str | None = None,
        start: Any = None,
    ) -> "GraphWorld":
        """A world from a `networkx` DiGraph or MultiDiGraph.

        ``action``       the edge attribute that names the action of an edge.
        ``observation``  the node attribute that names what is always found at a node; nodes may lack it.
        ``name``         the name of the world; by default that of the graph.
        ``start``        the node at which walks start; by default the first one.

        A node is named by its ``str``.
        """
        require(
            is_networkx(graph), f"from_networkx takes a networkx DiGraph or MultiDiGraph, not {type(graph).__name__}."
        )
        require(
            graph.is_directed(),
            "An undirected edge does not say which action leads back: take graph.to_directed(), where one action leads "
            f"there and back, and change {action!r} of one direction if they are two.",
        )
        edges = []
        for tail, head, label in graph.edges(data=action):
            edge = f"The edge from {str(tail)!r} to {str(head)!r} has no attribute {action!r}"
            require(
                label is not None,
                f"{edge}; set it to the name of the action, or name another one: GraphWorld.from_networkx(graph, "
                "action=…).",
            )
            edges.append([str(tail), str(label), str(head)])
        found = {} if observation is None else dict(graph.nodes(data=observation))
        data = {
            "name": name or getattr(graph, "name", "") or "graph",
            "nodes": [str(node) for node in graph.nodes],
            "actions": list(dict.fromkeys(label for _, label, _ in edges)),
            "edges": edges,
            "observations": {str(node): str(symbol) for node, symbol in found.items() if symbol is not None},
        }
        return cls.from_dict(data if start is None else {**data, "start": str(start)}, "The networkx graph")

    def to_networkx(self) -> Any:
        """A `networkx` MultiDiGraph, to draw or to study.

        Edges have the attribute ``label``, their action. Nodes have ``observation`` if it is fixed.
        """
        try:
            networkx = importlib.import_module("networkx")
        except ImportError:
            raise UserError("to_networkx needs networkx; install it with `pip install networkx`.") from None
        graph = networkx.MultiDiGraph(name=self.name)
        graph.add_nodes_from(self.nodes)
        graph.add_edges_from((tail, head, {"label": action}) for tail, action, head in self.edges)
        networkx.set_node_attributes(graph, dict(self.observations), "observation")
        return graph

    def to_json(self) -> str:
        """The text of the world's JSON file, one edge per line. It can also be the setting ``world`` of a task."""

        def spell(value: Any) -> str:
            return json.dumps(value, ensure_ascii=False)

        edges = ",\n".join(f"    {spell(edge)}" for edge in self.edges)
        parts = {key: spell(getattr(self, key)) for key in ("name", "start", "nodes", "actions")}
        parts["edges"] = f"[\n{edges}\n  ]"
        if self.observations:
            parts["observations"] = spell(dict(self.observations))
        return "{\n" + ",\n".join(f'  "{key}": {text}' for key, text in parts.items()) + "\n}\n"

    def save(self, path: str | Path) -> None:
        """Write the world to a JSON file."""
        with clear_file_errors("write to", Path(path)):
            write_atomically(Path(path), self.to_json().encode())


@cache
def shipped_worlds() -> tuple[str, ...]:
    """The names of the worlds that come with the library."""
    files = [file.name for file in _shipped().iterdir()]
    return tuple(sorted(name.removesuffix(".json") for name in files if name.endswith(".json")))


def find_world(world: str) -> GraphWorld:
    """The world that ``world`` stands for: the name of a shipped world, the path of a JSON file, or the JSON itself."""
    if _is_json(world):
        return GraphWorld.from_json(world, "The world given as text")
    if world in shipped_worlds():
        return GraphWorld.from_json((_shipped() / f"{world}.json").read_text(encoding="utf-8"), world)
    is_name = not _is_path(Path.exists, world) and Path(world).name == world and not world.endswith(".json")
    if is_name:
        raise UserError(f"{unknown('world', world, shipped_worlds())} Or give the path of a JSON file.")
    return GraphWorld.load(world)


def is_networkx(world: Any) -> bool:
    """Whether it is a graph of `networkx`, which need not be installed to tell."""
    return all(hasattr(world, part) for part in ("is_directed", "nodes", "edges"))


def is_world_file(world: str) -> bool:
    """Whether ``world`` is the path of a file, and not the name of a shipped world or the JSON itself."""
    return not _is_json(world) and world not in shipped_worlds() and _is_path(Path.is_file, world)


def _is_path(test: Callable[[Path], bool], path: str) -> bool:
    """Whether ``path`` passes a test such as `Path.exists`; False if it cannot be a path at all."""
    try:
        return path != "" and test(Path(path))
    except (OSError, ValueError):  # too long for a path, or with a character that no path can have
        return False


def cayley_world(name: str, generators: Mapping[str, Permutation]) -> GraphWorld:
    """The Cayley graph of the group that some permutations generate: action a leads from g to g·a.

    A permutation is a tuple of the images of 0, 1, …; g·a applies first g, then a. Inverses are actions only if they
    are given. A node is named by the shortest word that leads to it from the start node, which is "e".
    """
    require(len(generators) > 0, "A group needs generators: give at least one permutation by name.")
    identity = tuple(range(len(next(iter(generators.values())))))
    for action, permutation in generators.items():
        is_permutation = sorted(permutation) == list(identity)
        require(is_permutation, f"{action!r} must be a permutation of 0 to {len(identity) - 1}, not {permutation}.")
    words: dict[Permutation, list[str]] = {identity: []}
    edges: list[tuple[Permutation, str, Permutation]] = []
    elements = [identity]
    for element in elements:  # breadth first: the list grows while it is read
        for action, permutation in generators.items():
            product = tuple(permutation[image] for image in element)
            if product not in words:
                words[product] = [*words[element], action]
                elements.append(product)
            edges.append((element, action, product))
    names = {element: _spell(word) for element, word in words.items()}
    spelled = [[names[tail], action, names[head]] for tail, action, head in edges]
    nodes = list(names.values())
    return GraphWorld.from_dict({"name": name, "nodes": nodes, "actions": list(generators), "edges": spelled})


def _spell(word: Iterable[str]) -> str:
    """A word as text: r r r f becomes r³f, and r⁻¹ r⁻¹ becomes r⁻²."""
    raised = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
    runs = [(action, len(list(run))) for action, run in groupby(word)]
    powers = [a if n == 1 else a.removesuffix("¹") + str(n).translate(raised) for a, n in runs]
    return "".join(powers) or "e"


def _read(data: Any) -> dict[str, Any]:
    """The fields of a world, checked for their types."""
    wanted = ", ".join(REQUIRED)
    require(isinstance(data, Mapping), f"a world is an object with {wanted}, not {type(data).__name__}.")
    for key in data:
        if key not in REQUIRED + OPTIONAL:
            raise unknown("key of a world", key, REQUIRED + OPTIONAL)
    for key in REQUIRED:
        require(key in data, f"{key!r} is missing; a world has {wanted}.")
    for key in ("nodes", "actions", "edges"):
        require(isinstance(data[key], list | tuple), f"{key!r} must be a list, not {data[key]!r}.")
    require(len(data["nodes"]) > 0, "the world is empty; list at least one node in 'nodes'.")
    observations = data.get("observations", {})
    require(isinstance(observations, Mapping), f"'observations' must be {{node: symbol}}, not {observations!r}.")
    nodes = tuple(_word(node, "a node") for node in data["nodes"])
    return {
        "name": _word(data["name"], "'name'"),
        "nodes": nodes,
        "actions": tuple(_word(action, "an action") for action in data["actions"]),
        "edges": tuple(_edge(edge) for edge in data["edges"]),
        "start": _word(data["start"], "'start'") if "start" in data else nodes[0],
        "observations": {
            _word(node, "a node of 'observations'"): _word(symbol, f"what node {node!r} holds")
            for node, symbol in observations.items()
        },
    }


def _check(world: GraphWorld) -> None:
    """Refuse a world on which no walk is possible: every name must be known and unique, every node needs an exit."""
    for kind, names in (("node", world.nodes), ("action", world.actions)):
        twice = _first_repeated(names)
        require(twice is None, f"{kind} {twice!r} is listed twice; give every {kind} a name of its own.")
    nodes, actions = set(world.nodes), set(world.actions)
    for tail, action, head in world.edges:
        edge = f"edge {[tail, action, head]}"
        remedy = "add it to 'nodes' or correct the edge."
        require(tail in nodes, f"{edge} leaves {tail!r}, which is not a node; {remedy}")
        require(head in nodes, f"{edge} leads to {head!r}, which is not a node; {remedy}")
        known = f"{edge} has the action {action!r}, which is not known; add it to 'actions' or correct the edge."
        require(action in actions, known)
    for node, ways in world.exits().items():
        require(len(ways) > 0, f"node {node!r} has no exit, so a walk would end there; add an edge that leaves it.")
    require(world.start in nodes, f"the start {world.start!r} is not a node; name one of 'nodes'.")
    for node, symbol in world.observations.items():
        require(node in nodes, f"there is an observation for {node!r}, which is not a node; add it to 'nodes'.")
        both = f"node {node!r} holds {symbol!r}, which is the name of an action too; rename one of them."
        require(symbol not in actions, both)


@contextmanager
def _errors_named(source: str) -> Iterator[None]:
    """Errors raised inside begin with ``source``."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{source}: {error}") from None


def _object_of_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; refused if a key comes twice, since Python would silently drop the first of them."""
    twice = _first_repeated(key for key, _ in pairs)
    require(twice is None, f"the key {twice!r} comes twice; keep one of the two.")
    return dict(pairs)


def _first_repeated(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _word(value: Any, what: str) -> str:
    """A name: a word, or a whole number turned into one."""
    fits = isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip() != ""
    require(fits, f"{what} must be a word or a whole number, not {value!r}.")
    plain = all(unicodedata.category(letter) not in UNPRINTABLE for letter in str(value))
    require(plain, f"{what} must be plain text on one line, not {value!r}.")
    return str(value)


def _edge(edge: Any) -> Edge:
    fits = isinstance(edge, list | tuple) and len(edge) == 3
    require(fits, f"an edge is [node, action, node], not {edge!r}.")
    tail, action, head = (_word(part, f"each part of edge {edge!r}") for part in edge)
    return tail, action, head


def _is_json(world: str) -> bool:
    return world.lstrip().startswith("{")


def _shipped() -> Any:
    return resources.files("mapformers.tasks") / "worlds"
