"""Walks on graphs against a walker in plain Python that reads nothing but the tokens, and worlds against their laws."""

import hashlib
import json
import math
import re
import shlex
import sys
import zlib
from collections import Counter
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mapformers as mf
import mapformers.players.graph  # registers the player
import mapformers.tasks.graph  # registers the task
from mapformers.cli.main import COMMANDS, main
from mapformers.tasks.graph import EMPTY
from mapformers.tasks.graph_world import GraphWorld, cayley_world, find_world, shipped_worlds
from mapformers.training.run import RunConfig

DOCUMENT = (Path(__file__).parents[2] / "docs" / "worlds.md").read_text()
WORLDS = ["dihedral", "free-product", "subway", "tree"]
FLAT = {
    "name": "flat",
    "nodes": ["hall", "kitchen", "bath"],
    "actions": ["in", "out"],
    "edges": [["hall", "in", "kitchen"], ["kitchen", "out", "hall"], ["bath", "out", "hall"], ["hall", "out", "bath"]],
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def build(world=FLAT, **options):
    return mf.build_task("graph", world=world if isinstance(world, str) else json.dumps(world), **options)


def sequence_of(batch, row):
    """The whole a₁ o₁ a₂ o₂ … of one row."""
    return [*batch.tokens[row].tolist(), int(batch.targets[row, -1])]


def chi_square(counts, probabilities):
    """Pearson's statistic and its degrees of freedom."""
    n = sum(counts.values())
    assert set(counts) <= set(probabilities)
    assert min(n * p for p in probabilities.values()) >= 5, "too few cases to tell"
    statistic = sum((counts[key] - n * p) ** 2 / (n * p) for key, p in probabilities.items())
    return statistic, len(probabilities) - 1


def assert_distribution(*parts):
    """The sum of independent chi-squares, at most four standard deviations above its mean."""
    statistics = [chi_square(*part) for part in parts]
    total, freedom = (sum(column) for column in zip(*statistics))
    assert total < freedom + 4 * math.sqrt(2 * freedom), f"chi-square {total:.1f} at {freedom} degrees"


@st.composite
def worlds(draw):
    """Any small world as JSON data: some actions at each node, some observations fixed, any start."""
    nodes = [f"n{i}" for i in range(draw(st.integers(1, 6)))]
    actions = [f"a{i}" for i in range(draw(st.integers(1, 4)))]
    edges = []
    for node in nodes:
        for action in draw(st.lists(st.sampled_from(actions), min_size=1, unique=True)):
            edges.append([node, action, draw(st.sampled_from(nodes))])
    world = {"name": "any", "nodes": nodes, "actions": actions, "edges": draw(st.permutations(edges))}
    if draw(st.booleans()):
        world["start"] = draw(st.sampled_from(nodes))
    if draw(st.booleans()):
        symbols = st.sampled_from(["A", "sign", EMPTY])
        world["observations"] = draw(st.dictionaries(st.sampled_from(nodes), symbols))
    return world


walks = st.fixed_dictionaries(
    {
        "steps": st.integers(1, 24),
        "p_empty": st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]),
        "n_objects": st.integers(1, 30),
        "start": st.sampled_from(["fixed", "random"]),
    }
)


def replay(sequence, world, start, names):
    """Follow the edges with a dict of what was seen: nodes, first visits, which targets are revisits or known."""
    leads_to = {(tail, action): head for tail, action, head in world["edges"]}
    fixed = world.get("observations", {})
    here, seen, nodes, first_visits, revisits, known = start, {}, [], [], [], []
    for time in range(len(sequence) // 2):
        action, observed = (names[token] for token in sequence[2 * time : 2 * time + 2])
        here = leads_to[here, action]  # a KeyError if the action is not possible
        assert observed not in world["actions"]
        if here in fixed:
            assert observed == fixed[here]
        nodes.append(here)
        revisits.append(here in seen)
        known.append(here not in seen and here in fixed)
        if time + 1 < len(sequence) // 2:
            revisits.append(False)
            known.append(False)
        first, held = seen.setdefault(here, (time, observed))
        assert held == observed, "a node changed what it holds"
        first_visits.append(first)
    return nodes, first_visits, revisits, known


@settings(max_examples=400, deadline=None, derandomize=True)
@given(world=worlds(), options=walks, seed=st.integers(0, 2**31))
def test_batch_agrees_with_a_replay_from_tokens_alone(world, options, seed):
    task = build(world, **options)
    batch = task.sample("iid", 5, generator(seed))
    assert batch.tokens.shape == (5, 2 * options["steps"] - 1)
    assert bool(batch.loss_mask.all())
    for row in range(5):
        sequence = sequence_of(batch, row)
        start = world["nodes"][int(batch.info["start"][row])]
        if options["start"] == "fixed":
            assert start == world.get("start", world["nodes"][0])
            assert task.trace(sequence[0::2], task.settings) == [world["nodes"][n] for n in batch.info["nodes"][row]]
        nodes, first_visits, revisits, known = replay(sequence, world, start, task.token_names)
        assert batch.targets[row].tolist() == sequence[1:]
        assert [world["nodes"][node] for node in batch.info["nodes"][row]] == nodes
        assert batch.info["first_visit"][row].tolist() == first_visits
        assert batch.info["revisit"][row].tolist() == revisits
        assert batch.score_mask[row].tolist() == [
            again and task.token_names[token] != EMPTY for again, token in zip(revisits, sequence[1:])
        ]
        if world.get("observations"):
            assert batch.info["fixed_first"][row].tolist() == known
        else:
            assert "fixed_first" not in batch.info


@settings(max_examples=300, deadline=None, derandomize=True)
@given(world=worlds(), options=walks, seed=st.integers(0, 2**31), spoilt=st.integers(0, 20))
def test_metrics_agree_with_counting(world, options, seed, spoilt):
    """Answers with some mistakes, counted one by one as a replay of the tokens says what they are."""
    task = build(world, **options)
    batch, g = task.sample("iid", 7, generator(seed)), generator(seed + 1)
    answers = batch.targets.clone()
    for _ in range(spoilt):
        row, place = int(torch.randint(7, (), generator=g)), int(torch.randint(answers.shape[1], (), generator=g))
        answers[row, place] = torch.randint(task.vocab_size, (), generator=g)
    counted = {"accuracy": [], "accuracy_all_revisits": [], "accuracy_first_visits": []}
    for row in range(7):
        sequence = sequence_of(batch, row)
        start = world["nodes"][int(batch.info["start"][row])]
        _, _, revisits, known = replay(sequence, world, start, task.token_names)
        for again, new, said, meant in zip(revisits, known, answers[row].tolist(), sequence[1:]):
            counted["accuracy"] += [said == meant] * (again and task.token_names[meant] != EMPTY)
            counted["accuracy_all_revisits"] += [said == meant] * again
            counted["accuracy_first_visits"] += [said == meant] * new
    scores = task.score(torch.nn.functional.one_hot(answers, task.vocab_size).float(), batch)
    assert "accuracy" in scores and scores.keys() <= counted.keys()
    assert ("accuracy_all_revisits" in scores) == (EMPTY in task.token_names)
    assert ("accuracy_first_visits" in scores) == bool(world.get("observations"))
    for name, score in scores.items():
        right = counted[name]
        assert score.count == len(right)
        assert score == pytest.approx(sum(right) / len(right)) if right else math.isnan(score)


def votes_of_all_starts(sequence, world, task):
    """The chance of a prefix a₁ o₁ … a_t from each start, as a fraction, summed over starts by what is known there."""
    exits, fixed = {node: {} for node in world["nodes"]}, world.get("observations", {})
    for tail, action, head in world["edges"]:
        exits[tail][action] = head
    p_empty, n = Fraction(task.settings.p_empty), task.settings.n_objects
    objects = set(task.token_names) - {*world["actions"], *fixed.values(), EMPTY}
    found = {}
    for here in world["nodes"]:
        chance, memory = Fraction(1), dict(fixed)
        for place, token in enumerate(sequence):
            name = task.token_names[token]
            if place % 2 == 0:
                chance *= Fraction(1, len(exits[here])) * (name in exits[here])
                here = exits[here].get(name, here)
            elif here in memory:
                chance *= memory[here] == name
            else:
                drawn = (1 - p_empty) / n if name in objects else Fraction(0)
                chance *= p_empty if name == EMPTY else drawn
                memory[here] = name
        held = memory.get(here)
        if held is not None:
            found[held] = found.get(held, 0) + chance
    return found


@settings(max_examples=150, deadline=None, derandomize=True)
@given(world=worlds(), options=walks, seed=st.integers(0, 2**31))
def test_player_that_does_not_know_the_start_answers_by_bayes_rule(world, options, seed):
    task = build(world, **{**options, "start": "random", "steps": min(options["steps"], 8)})
    batch = task.sample("iid", 2, generator(seed))
    answers = mf.players.build("perfect", task)(batch.tokens).argmax(dim=-1)
    for row in range(2):
        sequence = batch.tokens[row].tolist()
        for place in range(0, len(sequence), 2):
            votes = votes_of_all_starts(sequence[: place + 1], world, task)
            best = max(votes.values(), default=0)
            answer = task.token_names[int(answers[row, place])]
            if best > 0:
                assert float(votes.get(answer, 0)) == pytest.approx(float(best), rel=1e-9)
            else:
                assert int(answers[row, place]) == (task.empty_id or 0)


@pytest.mark.parametrize("start", ["fixed", "random"])
@pytest.mark.parametrize("name", WORLDS)
def test_actions_are_uniform_over_those_that_are_possible(name, start):
    task = build(name, start=start)
    batch = task.sample("iid", 512, generator())
    world, taken = task.world, Counter()
    nodes = torch.cat((batch.info["start"][:, None], batch.info["nodes"][:, :-1]), dim=1)
    actions = torch.cat((batch.tokens, batch.targets[:, -1:]), dim=1)[:, 0::2]
    taken.update(zip(nodes.flatten().tolist(), actions.flatten().tolist()))
    parts = []
    for number, node in enumerate(world.nodes):
        possible = [world.actions.index(action) for tail, action, _ in world.edges if tail == node]
        here = Counter({action: n for (at, action), n in taken.items() if at == number})
        if sum(here.values()) >= 5 * len(possible):
            parts.append((here, dict.fromkeys(possible, 1 / len(possible))))
    assert len(parts) > 0.9 * len(world.nodes)
    assert_distribution(*parts)


def test_random_starts_are_uniform_and_fixed_ones_are_fixed():
    task = build("subway", start="random")
    starts = Counter(task.sample("iid", 3000, generator()).info["start"].tolist())
    assert_distribution((starts, dict.fromkeys(range(30), 1 / 30)))
    fixed = build("subway").sample("iid", 32, generator()).info["start"]
    assert {build("subway").world.nodes[node] for node in fixed.tolist()} == {"Central"}


@pytest.mark.parametrize("p_empty", [0.2, 0.5, 0.8])
def test_new_nodes_are_empty_with_p_empty_and_objects_are_uniform(p_empty):
    task = build("free-product", p_empty=p_empty)
    batch = task.sample("iid", 600, generator())
    new = batch.info["first_visit"] == torch.arange(128)
    observed = torch.cat((batch.tokens, batch.targets[:, -1:]), dim=1)[:, 1::2]
    objects = {task.empty_id + 1 + i: (1 - p_empty) / 16 for i in range(16)}
    assert_distribution((Counter(observed[new].tolist()), {task.empty_id: p_empty, **objects}))


@pytest.mark.parametrize("name", WORLDS)
def test_perfect_player_is_always_right_on_every_split(name):
    task = build(name)
    for split in task.splits:
        scores = mf.evaluate(mf.players.build("perfect", task, split), task, split, n_sequences=32)
        assert scores["accuracy"] == scores["accuracy_all_revisits"] == 1
        assert scores["accuracy"].count > 500


@pytest.mark.parametrize("name", ["dihedral", "free-product"])
def test_where_all_nodes_look_alike_the_start_need_not_be_known(name):
    task = build(name, start="random")
    scores = mf.evaluate(mf.players.build("perfect", task), task, n_sequences=32)
    assert scores["accuracy"] == scores["accuracy_all_revisits"] == 1


def test_where_nodes_cannot_be_told_apart_the_player_need_not_be_right():
    """After three new nodes the fourth is the first again on a ring of three, and the second after d0."""
    ring = [["c0", "go", "c1"], ["c1", "go", "c2"], ["c2", "go", "c0"]]
    tail = [["d0", "go", "d1"], ["d1", "go", "d2"], ["d2", "go", "d3"], ["d3", "go", "d2"]]
    nodes = ["c0", "c1", "c2", "d0", "d1", "d2", "d3"]
    world = {"name": "blind", "nodes": nodes, "actions": ["go"], "edges": ring + tail}
    task = build(world, start="random", steps=4, p_empty=0.0, n_objects=1000)
    batch = task.sample("iid", 400, generator())
    answers = mf.players.build("perfect", task)(batch.tokens).argmax(dim=-1)[:, 6]
    for answer, right, start in zip(answers, batch.targets[:, 6], batch.info["start"].tolist()):
        assert (answer == right) == (nodes[start] != "d0")


def test_player_of_another_world_knows_nothing_but_answers():
    task = build("dihedral")
    tokens = torch.randint(task.vocab_size, (2, 9), generator=generator())
    assert mf.players.build("perfect", build("tree"))(tokens.clamp(max=2)).shape == (2, 9, 20)


def answers_of_a_commuting_map(batch, movement, moduli):
    """What was last seen where the movements, added up, lead: the share of scored revisits that this gets right."""
    sequence = torch.cat((batch.tokens, batch.targets[:, -1:]), dim=1)
    places = torch.tensor(movement)[sequence[:, 0::2]].cumsum(dim=1) % torch.tensor(moduli)
    scored, right = batch.score_mask[:, 0::2], 0
    for row in range(len(sequence)):
        seen = {}
        for time, place in enumerate(map(tuple, places[row].tolist())):
            found = int(sequence[row, 2 * time + 1])
            right += bool(scored[row, time]) and seen.get(place) == found
            seen[place] = found
    return right / int(scored.sum())


def test_dihedral_needs_a_map_that_does_not_commute():
    """Counting turns (modulo anything) and flips, and remembering what was last seen there, fails at every fourth."""
    batch = build("dihedral").sample("iid", 64, generator())
    movement = [(1, 0), (-1, 0), (0, 1)]
    for turns in (2, 4, 8, 16, 1000):
        assert answers_of_a_commuting_map(batch, movement, (turns, 2)) < 0.72


# Worlds that come with the library, from their definitions. To write them anew: definitions()[name].save(path).

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
        file = Path(mapformers.tasks.graph.__file__).parent / "worlds" / f"{name}.json"
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


def changed(**parts):
    return {**FLAT, **parts}


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


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"steps": 0}, "steps must be at least 1, not 0"),
        ({"n_objects": 0}, "n_objects must be at least 1, not 0"),
        ({"n_objects": 10**9}, "n_objects must be at most 1000000"),
        ({"p_empty": float("nan")}, "between 0 and 1"),
        ({"start": "hall"}, "start must be one of fixed, random"),
        ({"word": "tree"}, "did you mean 'world'"),
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(wrong, sentence):
    with pytest.raises(mf.UserError, match=sentence):
        mf.build_task("graph", **wrong)


def test_a_split_keeps_the_tokens():
    with pytest.raises(mf.UserError, match="must keep world and n_objects"):
        build().sample({"n_objects": 3}, 1, generator())
    with pytest.raises(mf.UserError, match="must keep world and n_objects"):
        build().sample({"world": "tree"}, 1, generator())


def test_an_action_that_is_not_possible_is_named():
    task = build()
    with pytest.raises(mf.UserError, match="Action 'in' is not possible at node 'kitchen' of world 'flat'"):
        task.trace([0, 0], task.settings)


def test_splits_follow_the_settings_asked_for():
    default = build("subway")
    assert {split: (s.steps, s.p_empty) for split in default.splits for s in [default.split_settings(split)]} == {
        "iid": (128, 0.5),
        "ood-dense": (64, 0.2),
        "ood-sparse": (256, 0.8),
    }
    assert default.settings.n_objects == 16 and default.settings.world == "subway"
    task = build("tree", steps=10, p_empty=0.3, n_objects=5, start="random")
    assert dict(task.splits) == {
        "iid": {},
        "ood-dense": {"steps": 5, "p_empty": 0.2},
        "ood-sparse": {"steps": 20, "p_empty": 0.8},
    }
    assert {task.split_settings(split).start for split in task.splits} == {"random"}


CHECKSUMS = {
    ("dihedral", "fixed"): "8b602b1fc62316d8",
    ("free-product", "fixed"): "10a5f7fa0763f3d8",
    ("subway", "fixed"): "218a5e68128a2c4a",
    ("subway", "random"): "6aee54abc06e0092",
    ("tree", "fixed"): "e51cd68c57f3c863",
}


@pytest.mark.parametrize(("name", "start"), CHECKSUMS)
def test_sequences_are_pinned(name, start):
    """A change of the sampling or of a shipped world changes every figure measured on it."""
    batch = build(name, start=start).sample("iid", 8, generator(0))
    content = batch.tokens.contiguous().numpy().astype("<i8").tobytes()
    assert hashlib.sha256(content).hexdigest()[:16] == CHECKSUMS[name, start]


PINNED = {  # of the OOD splits
    "dihedral": [2680298615, 3692274535],
    "free-product": [2698528048, 2314291491],
    "subway": [2475888814, 909896220],
    "tree": [3056551970, 4178488826],
}


@pytest.mark.parametrize("name", PINNED)
def test_ood_sequences_are_pinned(name):
    task = build(name)
    batches = [task.sample(split, 8, generator(0)) for split in ("ood-dense", "ood-sparse")]
    contents = [batch.tokens.contiguous().numpy().astype("<i8").tobytes() for batch in batches]
    assert list(map(zlib.crc32, contents)) == PINNED[name]


@pytest.mark.parametrize("world", [*WORLDS, changed(observations={"bath": "mirror"})], ids=[*WORLDS, "flat"])
def test_halves_and_threads_give_the_same_batch(world):
    task, threads = build(world, start="random"), torch.get_num_threads()
    stream = generator(7)
    halves = [task.sample("iid", 64, stream) for _ in range(2)]
    try:
        torch.set_num_threads(2)
        whole = task.sample("iid", 128, generator(7))
        second = task.sample("iid", 128, generator(7), part=(1, 2))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(whole.tokens, torch.cat([half.tokens for half in halves]))
    assert torch.equal(second.tokens, halves[1].tokens)
    for name, tensor in whole.info.items():
        assert torch.equal(tensor, torch.cat([half.info[name] for half in halves])), name


def test_vocabulary():
    task = build(changed(observations={"bath": "mirror", "hall": EMPTY}), n_objects=3)
    assert task.token_names == ["in", "out", EMPTY, "A", "B", "C", "mirror"]
    assert task.action_ids == [0, 1] and task.empty_id == 2
    fixed = build(changed(observations={"hall": "x", "bath": "y", "kitchen": "y"}))
    assert fixed.token_names == ["in", "out", "x", "y"] and fixed.empty_id is None
    some_empty = build(changed(observations={"hall": EMPTY, "bath": "y", "kitchen": "y"}))
    assert some_empty.token_names == ["in", "out", EMPTY, "y"]


def test_objects_step_aside_for_names_of_the_world():
    letters = {"name": "letters", "nodes": [1], "actions": ["A"], "edges": [[1, "A", 1]]}
    assert build(letters, n_objects=2).token_names == ["A", EMPTY, "object A", "object B"]
    landmark = build(changed(observations={"bath": "B"}), n_objects=2)
    assert landmark.token_names == ["in", "out", EMPTY, "object A", "object B", "B"]
    with pytest.raises(mf.UserError, match="World 'dot': · names two tokens; rename it there"):
        build({"name": "dot", "nodes": [1], "actions": [EMPTY], "edges": [[1, EMPTY, 1]]})


def test_fixed_observations_are_scored_on_coming_back_and_measured_on_the_first_visit():
    observations = {"hall": "x", "bath": "y", "kitchen": EMPTY}
    task = build(changed(observations=observations), steps=16)
    for split in task.splits:
        scores = mf.evaluate(mf.players.build("perfect", task, split), task, split, n_sequences=16)
        assert scores["accuracy"] == scores["accuracy_all_revisits"] == scores["accuracy_first_visits"] == 1
        assert 16 <= scores["accuracy_first_visits"].count <= 3 * 16
    batch = task.sample("iid", 16, generator())
    wrong = torch.where(batch.info["fixed_first"], (batch.targets + 1) % task.vocab_size, batch.targets)
    scores = task.score(torch.nn.functional.one_hot(wrong, task.vocab_size).float(), batch)
    assert scores["accuracy"] == 1 and scores["accuracy_first_visits"] == 0


def test_landmarks_tell_the_player_where_it_is():
    """On a ring with one landmark: it is expected until it is met, and from then on the place is known."""
    nodes = [str(i) for i in range(5)]
    edges = [[node, "on", nodes[(i + 1) % 5]] for i, node in enumerate(nodes)]
    ring = {"name": "ring", "nodes": nodes, "actions": ["on"], "edges": edges, "observations": {"3": "flag"}}
    task = build(ring, start="random", steps=12)
    scores = mf.evaluate(mf.players.build("perfect", task), task, n_sequences=64)
    assert scores["accuracy"] == scores["accuracy_first_visits"] == 1


def test_show_tells_the_walk_in_words():
    task = build(changed(observations={"bath": "mirror", "kitchen": "pan", "hall": EMPTY}), steps=6)
    told = task.show("iid", generator())
    head, *walk, blank, key = told.splitlines()
    assert head == "flat, from hall:" and blank == "" and "[ ] a scored revisit" in key
    steps = " ".join(walk).split(", ")
    assert len(steps) == 6
    here, seen = "hall", set()
    for step in steps:
        action, arrow, node, found = step.split(" ")
        here = task.world.exits()[here][action]
        symbol = {"bath": "mirror", "kitchen": "pan", "hall": EMPTY}[here]
        assert (arrow, node) == ("→", here)
        assert found == (f"[{symbol}]" if here in seen and symbol != EMPTY else symbol)
        seen.add(here)


def test_show_breaks_lines_between_steps_only():
    told = build("subway").show("iid", generator()).splitlines()
    assert all(len(line) <= 110 for line in told)
    assert all(line.endswith(",") for line in told[1:-3]) and not told[-3].endswith(",")
    assert "\u00a0" not in "".join(told)


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
    assert "was started with other settings" in capsys.readouterr().err


def test_shipped_worlds_stay_names_and_a_file_of_that_name_needs_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tree").write_text(json.dumps(FLAT))
    assert mf.build_task("graph", world="tree").settings.world == "tree"
    assert mf.build_task("graph", world="./tree").world.name == "flat"


networkx = pytest.importorskip("networkx")


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
