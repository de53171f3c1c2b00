"""`graph`: walks against a walker in plain Python that reads only the tokens, players, scores and settings."""

import hashlib
import math
import zlib
from collections import Counter
from fractions import Fraction

import pytest
import torch
from graphs import WORLDS, build, changed, generator, without_the_unreached
from hypothesis import given, settings
from hypothesis import strategies as st

import mapformers as mf
from helpers import examples
from mapformers.tasks.graph import EMPTY


def sequence_of(batch, row):
    """The whole sequence a₁ o₁ a₂ o₂ … of one row."""
    return [*batch.tokens[row].tolist(), int(batch.targets[row, -1])]


def chi_square(counts, probabilities):
    """Pearson's statistic and its degrees of freedom."""
    n = sum(counts.values())
    assert set(counts) <= set(probabilities)
    assert min(n * p for p in probabilities.values()) >= 5, "too few cases to tell"
    statistic = sum((counts[key] - n * p) ** 2 / (n * p) for key, p in probabilities.items())
    return statistic, len(probabilities) - 1


def assert_distribution(*parts):
    """The sum of independent chi-squares is at most four standard deviations above its mean."""
    statistics = [chi_square(*part) for part in parts]
    total, freedom = (sum(column) for column in zip(*statistics))
    assert total < freedom + 4 * math.sqrt(2 * freedom), f"chi-square {total:.1f} at {freedom} degrees"


@st.composite
def worlds(draw):
    """Any small world as JSON data: some actions at each node, some fixed observations, any start."""
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
    """Follow the edges with a dict of what was seen: nodes, first visits, and which targets are revisits or fixed."""
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


@settings(max_examples=examples(400), deadline=None, derandomize=True)
@given(world=worlds(), options=walks, seed=st.integers(0, 2**31))
def test_batch_agrees_with_a_replay_from_tokens_alone(world, options, seed):
    world = world if options["start"] == "random" else without_the_unreached(world)
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


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(world=worlds(), options=walks, seed=st.integers(0, 2**31), spoilt=st.integers(0, 20))
def test_metrics_agree_with_counting(world, options, seed, spoilt):
    """Answers with some mistakes, counted one by one in a replay of the tokens."""
    world = world if options["start"] == "random" else without_the_unreached(world)
    task = build(world, **options)
    batch, g = task.sample("iid", 7, generator(seed)), generator(seed + 1)
    answers = batch.targets.clone()
    for _ in range(spoilt):
        row, place = int(torch.randint(7, (), generator=g)), int(torch.randint(answers.shape[1], (), generator=g))
        answers[row, place] = torch.randint(task.vocab_size, (), generator=g)
    counted = {"accuracy": [], "accuracy_objects": [], "accuracy_all_revisits": [], "accuracy_first_visits": []}
    for row in range(7):
        sequence = sequence_of(batch, row)
        start = world["nodes"][int(batch.info["start"][row])]
        _, _, revisits, known = replay(sequence, world, start, task.token_names)
        for again, new, said, meant in zip(revisits, known, answers[row].tolist(), sequence[1:]):
            counted["accuracy"] += [said == meant] * (again and task.token_names[meant] != EMPTY)
            counted["accuracy_objects"] = counted[
                "accuracy"
            ]  # "empty" answered for certain leaves nothing right to say
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
    """The probability of a prefix a₁ o₁ … a_t, as an exact fraction, summed over the starts by what is known there."""
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


@settings(max_examples=examples(150), deadline=None, derandomize=True)
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
def test_on_a_cayley_graph_the_start_need_not_be_known(name):
    task = build(name, start="random")
    scores = mf.evaluate(mf.players.build("perfect", task), task, n_sequences=32)
    assert scores["accuracy"] == scores["accuracy_all_revisits"] == 1


def test_where_nodes_cannot_be_told_apart_the_player_need_not_be_right():
    """After three new nodes the fourth is the first one again on a ring of three, and the second one after d0."""
    ring = [["c0", "go", "c1"], ["c1", "go", "c2"], ["c2", "go", "c0"]]
    tail = [["d0", "go", "d1"], ["d1", "go", "d2"], ["d2", "go", "d3"], ["d3", "go", "d2"]]
    nodes = ["c0", "c1", "c2", "d0", "d1", "d2", "d3"]
    world = {"name": "blind", "nodes": nodes, "actions": ["go"], "edges": ring + tail}
    task = build(world, start="random", steps=4, p_empty=0.0, n_objects=1000)
    batch = task.sample("iid", 400, generator())
    answers = mf.players.build("perfect", task)(batch.tokens).argmax(dim=-1)[:, 6]
    for answer, right, start in zip(answers, batch.targets[:, 6], batch.info["start"].tolist()):
        assert (answer == right) == (nodes[start] != "d0")


ATTIC = changed(nodes=["hall", "kitchen", "bath", "attic"], edges=[*changed()["edges"], ["attic", "out", "hall"]])


def test_a_node_that_no_walk_can_reach_is_refused():
    sentence = "World 'flat': node 'attic' cannot be reached from the start 'hall'; add an edge that leads there"
    with pytest.raises(mf.UserError, match=sentence):
        build(ATTIC)
    assert "attic" in build({**ATTIC, "start": "attic"}).world.nodes  # the start itself need not be led to


def test_walks_that_start_anywhere_reach_every_node():
    task = build(ATTIC, start="random")
    starts = task.sample("iid", 64, generator()).info["start"]
    assert task.world.nodes.index("attic") in starts.tolist()
    with pytest.raises(mf.UserError, match="node 'attic' cannot be reached"):
        task.sample({"start": "fixed"}, 1, generator())


def test_player_of_another_world_knows_nothing_but_answers():
    task = build("dihedral")
    tokens = torch.randint(task.vocab_size, (2, 9), generator=generator())
    assert mf.players.build("perfect", build("tree"))(tokens.clamp(max=2)).shape == (2, 9, 20)


def answers_of_a_commuting_map(batch, movement, moduli):
    """The accuracy of a player that adds up movements and answers what it last saw at the place they lead to."""
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
    """A player that counts turns (modulo any number) and flips, and remembers what it saw there, is often wrong."""
    batch = build("dihedral").sample("iid", 64, generator())
    movement = [(1, 0), (-1, 0), (0, 1)]
    for turns in (2, 4, 8, 16, 1000):
        assert answers_of_a_commuting_map(batch, movement, (turns, 2)) < 0.72


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
    """A ring with one landmark: the player expects the landmark until it meets it, and then knows the place."""
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
