"""Worlds of `graph`: those of the library against their definitions, files, networkx, and what is refused."""

import json
import re
import shlex
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from graphs import FLAT, WORLDS, changed

import mapformers as mf
from mapformers.cli.main import COMMANDS, main
from mapformers.runs.config import RunConfig
from mapformers.tasks import graph_world
from mapformers.tasks.graph_world import GraphWorld, cayley_world, find_world, shipped_worlds

networkx = pytest.importorskip("networkx")
DOCUMENT = (Path(__file__).parents[2] / "docs" / "worlds.md").read_text()

# The worlds of the library, by their definitions. To write them again: definitions()[name].save(path).
LINES = {
    "red": "Westgate, Mill Lane, Abbey, Market, Central, Museum, Castle, Docks, Eastport",
    "blue": "Northfield, Orchard, College, Library, Central, Town Hall, Bridge, Riverside, Southend",
    "green": "Airport, Stadium, Garden, Market, Town Hall, Harbour, Lighthouse, Beach, Village",
    "yellow": "Zoo, Observatory, Theatre, Museum, Town Hall, Foundry, Brewery, Quarry",
    "ring": "Abbey, Garden, College, Theatre, Castle, Harbour, Bridge, Foundry, Abbey",
}


def subway():
    stations, edges = {}, []
    for line, names in LINES.items():
        stops = names.split(", ")
        stations |= dict.fromkeys(stops)
        for here, there in pairwise(stops):
            edges += [[here, f"{line}+", there], [there, f"{line}-", here]]
    actions = [f"{line}{way}" for line in LINES for way in "+-"]
    return {"name": "subway", "nodes": list(stations), "actions": actions, "edges": edges, "start": "Central"}


def tree(depth=4):
    nodes, edges = ["root"], []
    for node in nodes:
        path = node.removeprefix("root")
        for action in ("left", "right") if len(path) < depth else ():
            child = path + action[0]
            nodes.append(child)
            edges += [[node, action, child], [child, "up", node]]
    return {"name": "tree", "nodes": nodes, "actions": ["up", "left", "right"], "edges": edges}


def definitions():
    ring = range(16)
    turn, back, flip = (
        tuple((i + 1) % 16 for i in ring),
        tuple((i - 1) % 16 for i in ring),
        tuple(-i % 16 for i in ring),
    )
    a, b, b_back = (1, 0, 3, 2, 4), (2, 1, 4, 3, 0), (4, 1, 0, 3, 2)  # (0 1)(2 3), (0 2 4) and its inverse
    return {
        "dihedral": cayley_world("dihedral", {"r": turn, "r⁻¹": back, "f": flip}),
        "free-product": cayley_world("free-product", {"a": a, "b": b, "b⁻¹": b_back}),
        "subway": GraphWorld.from_dict(subway()),
        "tree": GraphWorld.from_dict(tree()),
    }


def test_shipped_worlds_are_their_definitions():
    assert list(shipped_worlds()) == WORLDS == sorted(definitions())
    for name, world in definitions().items():
        file = Path(graph_world.__file__).parent / "worlds" / f"{name}.json"
        assert file.read_text(encoding="utf-8") == world.to_json(), f"{file.name} is not what its definition says"
        assert find_world(name) == world


def walk(world, node, word):
    for action in word:
        node = world.exits()[node][action]
    return node


@pytest.mark.parametrize(
    ("name", "order", "relations", "no_relations"),
    [
        ("dihedral", 32, [["r"] * 16, ["f"] * 2, ["r", "f"] * 2, ["r", "r⁻¹"]], [["r"] * 8, ["r", "f", "r⁻¹", "f"]]),
        (
            "free-product",
            60,
            [["a"] * 2, ["b"] * 3, ["a", "b"] * 5, ["b", "b⁻¹"]],
            [["a", "b", "a", "b⁻¹"], ["a", "b"] * 3, ["a", "b"] * 4],
        ),
    ],
)
def test_groups_obey_their_relations_everywhere_and_do_not_commute(name, order, relations, no_relations):
    world = find_world(name)
    assert len(world.nodes) == order
    for node in world.nodes:
        assert all(walk(world, node, word) == node for word in relations)
        assert all(walk(world, node, word) != node for word in no_relations)


def test_names_of_dihedral_nodes_say_how_to_get_there():
    world = find_world("dihedral")
    powers = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
    for node in world.nodes:
        back, power, flip = re.fullmatch(r"e|(?:r(⁻?)([⁰¹²³⁴⁵⁶⁷⁸⁹]*))?(f?)", node).groups(default="")
        turns = 0 if not node.startswith("r") else int(power.translate(powers) or 1)
        assert walk(world, "e", ["r⁻¹" if back else "r"] * turns + ["f"] * len(flip)) == node


def test_every_shipped_world_is_connected():
    for name in WORLDS:
        world = find_world(name)
        reached = [world.start]
        for node in reached:
            reached += [there for there in dict.fromkeys(world.exits()[node].values()) if there not in reached]
        assert sorted(reached) == sorted(world.nodes)


EDGES = FLAT["edges"]


BAD_WORLDS = {
    "edge to a missing node": (
        changed(edges=[*EDGES, ["bath", "in", "attic"]]),
        "edge ['bath', 'in', 'attic'] leads to 'attic', which is not a node; add it to 'nodes' or correct the edge.",
    ),
    "edge from a missing node": (
        changed(edges=[*EDGES, ["attic", "in", "bath"]]),
        "edge ['attic', 'in', 'bath'] leaves 'attic', which is not a node; add it to 'nodes' or correct the edge.",
    ),
    "unknown action": (
        changed(edges=[*EDGES, ["bath", "fly", "hall"]]),
        "edge ['bath', 'fly', 'hall'] has the action 'fly', which is not known; add it to 'actions' or correct the",
    ),
    "two targets": (
        changed(edges=[*EDGES, ["hall", "in", "bath"]]),
        "action 'in' at node 'hall' leads to both 'kitchen' and 'bath'; an action leads to one node, so give the two "
        "edges different actions.",
    ),
    "no exit": (
        changed(edges=EDGES[:2] + EDGES[3:]),
        "node 'bath' has no exit, so a walk would end there; add an edge that leaves it.",
    ),
    "node twice": (
        changed(nodes=["hall", "kitchen", "bath", "hall"]),
        "node 'hall' is listed twice; give every node a name of its own.",
    ),
    "node twice as a number": (changed(nodes=[1, "1"], edges=[[1, "in", 1]]), "node '1' is listed twice; give every"),
    "action twice": (changed(actions=["in", "out", "in"]), "action 'in' is listed twice; give every action a name of"),
    "no nodes": (changed(nodes=[], edges=[]), "the world is empty; list at least one node in 'nodes'."),
    "no edges": (changed(edges=[]), "node 'hall' has no exit, so a walk would end there; add an edge that leaves it."),
    "observation for a missing node": (
        changed(observations={"attic": "dust"}),
        "there is an observation for 'attic', which is not a node; add it to 'nodes'.",
    ),
    "observation like an action": (
        changed(observations={"bath": "in"}),
        "node 'bath' holds 'in', which is the name of an action too; rename one of them.",
    ),
    "start": (changed(start="attic"), "the start 'attic' is not a node; name one of 'nodes'."),
    "unknown key": (changed(node=["attic"]), "There is no key of a world named 'node'; did you mean 'nodes'?"),
    "missing key": (
        {key: FLAT[key] for key in ("name", "nodes", "edges")},
        "'actions' is missing; a world has name, nodes, actions, edges.",
    ),
    "a list": ([FLAT], "a world is an object with name, nodes, actions, edges, not list."),
    "nodes not a list": (changed(nodes={"hall": 1}), "'nodes' must be a list, not {'hall': 1}."),
    "observations not an object": (changed(observations=["x"]), "'observations' must be {node: symbol}, not ['x']."),
    "node of another kind": (changed(nodes=[["hall"]]), "a node must be a word or a whole number, not ['hall']."),
    "true is no name": (changed(actions=[True]), "an action must be a word or a whole number, not True."),
    "empty name": (changed(name=" "), "'name' must be a word or a whole number, not ' '."),
    "half a character": (changed(name="a\ud800"), "'name' must be plain text on one line, not 'a\\ud800'."),
    "two lines": (changed(actions=["in", "out\n"]), "an action must be plain text on one line, not 'out\\n'."),
    "control character": (
        changed(observations={"hall": "\x1b[31m"}),
        "what node 'hall' holds must be plain text on one line, not '\\x1b[31m'.",
    ),
    "symbol": (
        changed(observations={"hall": None}),
        "what node 'hall' holds must be a word or a whole number, not None.",
    ),
    "edge of two": (changed(edges=[["hall", "in"]]), "an edge is [node, action, node], not ['hall', 'in']."),
    "edge of numbers": (
        changed(edges=[["hall", 1.5, "bath"]]),
        "each part of edge ['hall', 1.5, 'bath'] must be a word",
    ),
}


@pytest.mark.parametrize(("world", "sentence"), BAD_WORLDS.values(), ids=BAD_WORLDS)
def test_a_bad_world_is_refused_in_one_sentence_that_names_the_file(world, sentence, tmp_path, capsys):
    path = tmp_path / "a rather long name of a folder" / "world.json"
    path.parent.mkdir()
    path.write_text(json.dumps(world))
    with pytest.raises(mf.UserError, match=re.escape(f"{path}: {sentence}")):
        mf.build_task("graph", world=str(path))
    assert main(["show", "graph", "--world", str(path)]) == 2
    told = capsys.readouterr().err
    assert f"{path}: {sentence}" in told and told.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{", "this is not valid JSON (Expecting property name"),
        (b"", "this is not valid JSON (Expecting value"),
        (b'{"name": "x", "name": "y"}', "the key 'name' comes twice; keep one of the two."),
        (b"\xff\xfe", "it is not text in UTF-8; save it as such."),
        (b"[" * 100_000, "this is not valid JSON ("),
        (b'{"name": ' + b"1" * 5000 + b"}", "this is not valid JSON ("),
    ],
    ids=["cut short", "nothing", "a key twice", "not text", "too deep", "a long number"],
)
def test_an_unreadable_file_is_refused_in_one_sentence(content, sentence, tmp_path):
    path = tmp_path / "world.json"
    path.write_bytes(content)
    with pytest.raises(mf.UserError, match=re.escape(f"{path}: {sentence}")):
        mf.build_task("graph", world=str(path))


@pytest.mark.parametrize(
    ("world", "sentence"),
    [
        ("dihedrl", "There is no world named 'dihedrl'; did you mean 'dihedral'? Or give the path of a JSON file."),
        ("", "There is no world named ''; choose one of: dihedral, free-product, subway, tree. Or give the path"),
        (
            "nowhere.json",
            "Cannot read the world nowhere.json: no such file or directory; give the path of a JSON file.",
        ),
        ("./dihedral", "Cannot read the world ./dihedral: no such file or directory"),
        (".", "Cannot read the world .: it is a folder; give the path of a JSON file."),
        ("folder", "Cannot read the world folder: it is a folder; give the path of a JSON file."),
        ("x\0.json", "Cannot read the world x\0.json: embedded null byte"),
        ("x" * 5000, "There is no world named 'xxx"),
        ("{", "The world given as text: this is not valid JSON"),
    ],
)
def test_a_world_that_is_not_there_is_refused_in_one_sentence(world, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(mf.UserError, match=re.escape(sentence)):
        mf.build_task("graph", world=world)


def test_a_world_may_be_given_as_it_is_as_a_path_and_with_the_mark_that_some_editors_write(tmp_path):
    world = GraphWorld.from_dict(FLAT)
    path = tmp_path / "flat.json"
    path.write_text(world.to_json(), encoding="utf-8-sig")
    for given_as in (world, path, str(path), world.to_json()):
        task = mf.build_task("graph", world=given_as)
        assert task.world == world and task.settings.world == world.to_json()
    with pytest.raises(mf.UserError, match="world must be a word, not 3"):
        mf.build_task("graph", world=3)


def test_json_round_trip_and_save(tmp_path):
    world = GraphWorld.from_dict(changed(observations={"bath": "Spiegel — ü"}, start="bath"))
    assert GraphWorld.from_json(world.to_json()) == world
    world.save(tmp_path / "world.json")
    assert GraphWorld.load(tmp_path / "world.json") == world == find_world(str(tmp_path / "world.json"))
    with pytest.raises(mf.UserError, match=r"Cannot write to .*: no such file or directory; choose another folder"):
        world.save(tmp_path / "nowhere" / "world.json")


def test_numbers_are_names_too():
    world = GraphWorld.from_dict(
        {"name": "n", "nodes": [0, 1], "actions": [7], "edges": [[0, 7, 1], [1, 7, 0]], "start": 1}
    )
    assert world.nodes == ("0", "1") and world.exits() == {"0": {"7": "1"}, "1": {"7": "0"}} and world.start == "1"


def test_a_run_keeps_the_world_and_not_the_path(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("world.json").write_text(json.dumps(FLAT))
    tiny = "--scale smoke --steps 8 --d-model 16 --sequences 32 --eval-sequences 4 --final-sequences 8"
    line = f"train --task graph --world world.json --model mapwm {tiny}"
    assert main(shlex.split(line)) == 0
    Path("world.json").unlink()
    config = json.loads(Path("runs/graph-mapwm-seed0/config.json").read_text())
    assert GraphWorld.from_json(config["task"]["settings"]["world"]) == GraphWorld.from_dict(FLAT)
    assert RunConfig.from_dict(config).to_dict() == config
    assert main(["eval", "runs/graph-mapwm-seed0", "--n-sequences", "8"]) == 0
    Path("world.json").write_text(json.dumps(changed(start="bath")))
    capsys.readouterr()
    assert main(shlex.split(f"{line} --resume")) == 2
    assert "was started with another --world; resume it with" in capsys.readouterr().err


def test_shipped_worlds_stay_names_and_a_file_of_that_name_needs_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tree").write_text(json.dumps(FLAT))
    assert mf.build_task("graph", world="tree").settings.world == "tree"
    assert mf.build_task("graph", world="./tree").world.name == "flat"


def test_networkx_graphs_become_worlds():
    graph = networkx.DiGraph(name="pair")
    graph.add_edge(0, (1, 2), label="on", way=3)
    graph.add_edge((1, 2), 0, label="back", way=4)
    graph.nodes[0]["sign"] = "exit"
    world = GraphWorld.from_networkx(graph)
    assert (world.name, world.nodes, world.actions) == ("pair", ("0", "(1, 2)"), ("on", "back"))
    assert world.edges == (("0", "on", "(1, 2)"), ("(1, 2)", "back", "0")) and world.observations == {}
    other = GraphWorld.from_networkx(graph, action="way", observation="sign", name="ways", start=(1, 2))
    assert (other.name, other.actions, other.start) == ("ways", ("3", "4"), "(1, 2)")
    assert other.observations == {"0": "exit"}


def test_a_networkx_graph_can_be_the_world_itself():
    graph = networkx.DiGraph(name="pair")
    graph.add_edge("a", "b", label="go")
    graph.add_edge("b", "a", label="back")
    task = mf.build_task("graph", world=graph, steps=4)
    assert task.world == GraphWorld.from_networkx(graph)
    assert mf.RunConfig.compose("graph", "mapwm", "smoke", world=graph).build_task().world == task.world
    del graph.edges["b", "a"]["label"]
    with pytest.raises(
        mf.UserError, match=r"from 'b' to 'a' has no attribute 'label'; set it .*from_networkx\(graph, "
    ):
        mf.build_task("graph", world=graph)


@pytest.mark.parametrize("name", WORLDS)
def test_networkx_round_trip(name):
    world = find_world(name)
    graph = world.to_networkx()
    assert networkx.is_strongly_connected(graph)
    back = GraphWorld.from_networkx(graph, start=world.start)
    assert back.exits().keys() == world.exits().keys() and set(back.edges) == set(world.edges)
    assert (back.name, back.nodes, back.start) == (world.name, world.nodes, world.start)
    observed = GraphWorld.from_dict(changed(observations={"bath": "mirror"}))
    assert GraphWorld.from_networkx(observed.to_networkx(), observation="observation").observations == {
        "bath": "mirror"
    }


@pytest.mark.parametrize(
    ("graph", "sentence"),
    [
        (networkx.cycle_graph(3), "An undirected edge does not say which action leads back: take graph.to_directed()"),
        (
            networkx.DiGraph([(0, 1)]),
            "The edge from '0' to '1' has no attribute 'label'; set it to the name of the action",
        ),
        (networkx.DiGraph(), "The networkx graph: the world is empty"),
        (networkx.DiGraph([(0, 1, {"label": "on"})]), "The networkx graph: node '1' has no exit"),
        (networkx.MultiDiGraph([(0, 0, {"label": "x"}), (0, "0", {"label": "x"})]), "node '0' is listed twice"),
        ({0: [1]}, "from_networkx takes a networkx DiGraph or MultiDiGraph, not dict."),
    ],
    ids=["undirected", "no label", "empty", "no exit", "same name", "not a graph"],
)
def test_networkx_graphs_that_are_no_worlds(graph, sentence):
    with pytest.raises(mf.UserError, match=re.escape(sentence)):
        GraphWorld.from_networkx(graph)


def test_without_networkx_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(mf.UserError, match="to_networkx needs networkx; install it with `pip install networkx`"):
        find_world("tree").to_networkx()


@pytest.mark.parametrize(
    ("generators", "sentence"),
    [
        ({}, "give at least one permutation"),
        ({"a": (1, 0), "b": (1, 0, 2)}, "'b' must be a permutation of 0 to 1"),
        ({"a": (0, 0)}, "'a' must be a permutation of 0 to 1, not \\(0, 0\\)"),
    ],
)
def test_what_is_no_permutation_is_refused(generators, sentence):
    with pytest.raises(mf.UserError, match=sentence):
        cayley_world("group", generators)


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, flags=re.DOTALL)


def test_the_document_is_true(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec("\n".join(blocks("python")), {})
    assert "flat, from hall:" in capsys.readouterr().out
    (file,) = blocks("json")
    Path("flat.json").write_text(file)
    lines = [shlex.split(line, comments=True) for block in blocks("sh") for line in block.splitlines()]
    assert {line[0] for line in lines} == {"mapformers"} and {line[1] for line in lines} <= set(COMMANDS)
    for line in lines:
        quick = ["--scale", "smoke", "--sequences", "16"] if line[1] == "train" else []
        assert main([*line[1:], *quick]) == 0
    table = dict(re.findall(r"^\| `([\w-]+)` \| (\d+) \|", DOCUMENT, flags=re.MULTILINE))
    assert table == {name: str(len(find_world(name).nodes)) for name in WORLDS}
