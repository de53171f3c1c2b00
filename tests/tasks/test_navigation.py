"""`navigation` against a walker in plain Python that reads only the tokens, and against arithmetic.

Walks here are on the torus where that matters; tests/tasks/test_walls.py has those between walls.
"""

import math
import zlib
from collections import Counter
from dataclasses import asdict
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mapformers as mf
from helpers import examples
from mapformers.tasks.navigation import EMPTY
from mapformers.tasks.walk import first_visits


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def torus(**settings):
    return mf.build_task("navigation", **settings, edges="torus")


def sequence_of(batch, row):
    """The whole sequence a₁ o₁ a₂ o₂ … of one row."""
    return [*batch.tokens[row].tolist(), int(batch.targets[row, -1])]


def replay(sequence, dims, grid):
    """Walk the torus with a dict of cells: positions, first visits, and which targets are revisits."""
    here, seen = [0] * dims, {}
    positions, first_visits, revisits = [], [], []
    for time in range(len(sequence) // 2):
        action, observed = sequence[2 * time : 2 * time + 2]
        axis, backwards = divmod(action, 2)
        here[axis] = (here[axis] + (-1 if backwards else 1)) % grid
        positions.append(list(here))
        revisits.append(tuple(here) in seen)  # the target at the action is what will be observed
        if time + 1 < len(sequence) // 2:
            revisits.append(False)  # the target at an observation is the next action
        first, held = seen.setdefault(tuple(here), (time, observed))
        assert held == observed, "a cell changed what it holds"
        first_visits.append(first)
    return positions, first_visits, revisits


def segments(actions):
    """The lengths of the stretches in one direction, in order; the last one may be cut short."""
    lengths = [1]
    for before, now in pairwise(actions):
        if now == before:
            lengths[-1] += 1
        else:
            lengths.append(1)
    return lengths


def assert_distribution(counts, probabilities):
    """Pearson's chi-square is at most four standard deviations above its mean."""
    n = sum(counts.values())
    assert set(counts) <= set(probabilities)
    statistic = sum((counts[key] - n * p) ** 2 / (n * p) for key, p in probabilities.items())
    freedom = len(probabilities) - 1
    assert min(n * p for p in probabilities.values()) >= 5, "too few cases to tell"
    assert statistic < freedom + 4 * math.sqrt(2 * freedom), f"chi-square {statistic:.1f} at {freedom} degrees"


worlds = st.fixed_dictionaries(
    {
        "dims": st.integers(1, 5),
        "steps": st.integers(1, 24),
        "grid": st.integers(2, 5),
        "p_empty": st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]),
        "n_objects": st.integers(1, 30),
        "max_run": st.integers(1, 6),
        "edges": st.just("torus"),
    }
)


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(world=worlds, seed=st.integers(0, 2**31))
def test_batch_agrees_with_a_replay_from_tokens_alone(world, seed):
    task = mf.build_task("navigation", **world)
    batch = task.sample("iid", 10, generator(seed))
    assert batch.tokens.shape == (10, 2 * world["steps"] - 1)
    assert bool(batch.loss_mask.all())
    for row in range(10):
        sequence = sequence_of(batch, row)
        assert all(token in task.action_ids for token in sequence[0::2])
        assert all(2 * world["dims"] <= token < task.vocab_size for token in sequence[1::2])
        positions, first_visits, revisits = replay(sequence, world["dims"], world["grid"])
        assert batch.targets[row].tolist() == sequence[1:]
        assert batch.info["positions"][row].tolist() == positions
        assert (batch.info["displacement"][row] % world["grid"]).tolist() == positions
        assert batch.info["first_visit"][row].tolist() == first_visits
        assert batch.info["revisit"][row].tolist() == revisits
        scored = [again and token != task.empty_id for again, token in zip(revisits, sequence[1:])]
        assert batch.score_mask[row].tolist() == scored


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(world=worlds, seed=st.integers(0, 2**31), spoilt=st.integers(0, 20))
def test_metrics_agree_with_counting(world, seed, spoilt):
    """Answers with some mistakes, counted one by one at the revisits of a replay of the tokens."""
    task = mf.build_task("navigation", **world)
    batch, g = task.sample("iid", 10, generator(seed)), generator(seed + 1)
    answers = batch.targets.clone()
    for _ in range(spoilt):
        row, place = int(torch.randint(10, (), generator=g)), int(torch.randint(answers.shape[1], (), generator=g))
        answers[row, place] = torch.randint(task.vocab_size, (), generator=g)
    filled, everywhere = [], []
    for row in range(10):
        sequence = sequence_of(batch, row)
        revisits = replay(sequence, world["dims"], world["grid"])[2]
        for again, said, meant in zip(revisits, answers[row].tolist(), sequence[1:]):
            everywhere += [said == meant] * again
            filled += [said == meant] * (again and meant != task.empty_id)
    scores = task.score(one_hot(answers, task.vocab_size), batch)
    # Without "empty" an answer "empty" becomes token 0, an action, because all other logits are equal: wrong again.
    counted = {"accuracy": filled, "accuracy_objects": filled, "accuracy_all_revisits": everywhere}
    assert scores.keys() == counted.keys()
    for name, right in counted.items():
        assert scores[name].count == len(right)
        assert scores[name] == pytest.approx(sum(right) / len(right)) if right else math.isnan(scores[name])


PINNED = {  # by dimensions, in the order of the splits
    1: [936985191, 1238097320, 1350915935, 566319789],
    2: [3223359885, 1722055744, 3975418443, 3664963376],
    3: [1697167279, 3466515050, 2848874869],
    4: [1221340519, 1576647161, 735306117],
    5: [3375748689, 828742040, 1283591798],
}


@pytest.mark.parametrize("dims", PINNED)
def test_sampling_is_pinned(dims):
    """A change of the sampling changes every figure ever measured, so it must not happen unnoticed."""
    task = torus(dims=dims)
    batches = [task.sample(split, 8, generator()) for split in task.splits]
    contents = [batch.tokens.contiguous().numpy().astype("<i8").tobytes() for batch in batches]
    assert list(map(zlib.crc32, contents)) == PINNED[dims]


@pytest.mark.parametrize("edges", ["torus", "walls"])
@pytest.mark.parametrize("dims", range(1, 6))
def test_the_drawing_explains_what_it_shows_and_nothing_else(dims, edges):
    """S is drawn if the start was not seen; the legend explains the brackets in any number of dimensions."""
    task = mf.build_task("navigation", dims=dims, steps=6, grid=4, n_objects=3, edges=edges)
    drawn = set()
    for seed in range(30):
        *lines, key = task.show("iid", generator(seed)).splitlines()
        start = any("S" in line for line in lines)
        assert key.startswith("S start") == start and "[ ] a scored revisit" in key
        assert ("torus" in key) == (edges == "torus" and dims <= 2)
        drawn.add(start)
    assert drawn == ({True, False} if dims <= 2 else {False})


def test_displacement_counts_steps_and_does_not_wrap():
    task = torus(dims=2, steps=60, grid=3)
    batch = task.sample("iid", 4, generator())
    for row in range(4):
        x = y = 0
        for action, reached in zip(sequence_of(batch, row)[0::2], batch.info["displacement"][row].tolist()):
            x, y = x + (action == 0) - (action == 1), y + (action == 2) - (action == 3)
            assert reached == [x, y]


def test_start_cell_is_unvisited_until_it_is_observed():
    task = torus(dims=1, steps=4, grid=2, p_empty=0.0)
    batch = task.sample("iid", 16, generator())
    for row in range(16):
        # On two cells every step changes place: other, start, other, start.
        assert batch.info["positions"][row].flatten().tolist() == [1, 0, 1, 0]
        assert batch.info["first_visit"][row].tolist() == [0, 1, 0, 1]
        assert batch.info["revisit"][row].tolist() == [False, False, False, False, True, False, True]


@pytest.mark.parametrize("max_run", [1, 3, 10])
def test_runs_are_one_to_max_run_long_by_construction(max_run):
    """The directions always change, so runs cannot merge, and each run is seen as it was drawn."""
    task = torus(dims=2, steps=40, max_run=max_run)
    uniform = torch.rand(8, task.numbers_per_sequence(task.settings), generator=generator())
    uniform[:, :40] = torch.tensor([0.1, 0.6]).repeat(20)  # right, up, right, up …
    batch = task.draw(uniform, task.settings)
    for row in range(8):
        lengths = [1 + int(u * max_run) for u in uniform[row, 40:80].tolist()]
        expected = [2 * (run % 2) for run, length in enumerate(lengths) for _ in range(length)][:40]
        actions = sequence_of(batch, row)[0::2]
        assert actions == expected
        assert all(1 <= length <= max_run for length in segments(actions))


def segment_lengths(dims, max_run, longest):
    """P(length of a stretch): runs are uniform on 1…max_run, and the next one has the same direction with 1/2d."""
    again = 1 / (2 * dims)
    ways = [1.0] + [0.0] * longest  # ways[n]: expected number of run ends at n within one stretch, start included
    for n in range(1, longest + 1):
        earlier = sum(ways[n - k] * (again if n > k else 1.0) for k in range(1, min(max_run, n) + 1))
        ways[n] = earlier / max_run
    return {n: ways[n] * (1 - again) for n in range(1, longest + 1)}


@pytest.mark.parametrize(("dims", "max_run"), [(1, None), (2, None), (3, 4)], ids=["1D", "2D", "3D"])
def test_directions_and_run_lengths_are_uniform(dims, max_run):
    """The first stretches of long walks; the arithmetic takes into account that runs in one direction merge."""
    task = torus(dims=dims, steps=400, max_run=max_run)
    batch = task.sample("iid", 400, generator())
    first, lengths, turns = Counter(), Counter(), Counter()
    for row in range(400):
        actions = sequence_of(batch, row)[0::2]
        first[actions[0]] += 1
        found = segments(actions)[:8]
        lengths.update(found)
        ends = [sum(found[: i + 1]) for i in range(7)]
        turns.update((actions[end] - actions[end - 1]) % (2 * dims) for end in ends)
    assert_distribution(first, dict.fromkeys(task.action_ids, 1 / (2 * dims)))
    if dims > 1:
        assert_distribution(turns, dict.fromkeys(range(1, 2 * dims), 1 / (2 * dims - 1)))
    expected = segment_lengths(dims, task.settings.max_run, longest=200)
    assert sum(expected.values()) == pytest.approx(1, abs=1e-6)
    common = {n: p for n, p in expected.items() if 3200 * p >= 10}
    rest = "longer"
    pooled = Counter(n if n in common else rest for n in lengths.elements())
    assert_distribution(pooled, {**common, rest: 1 - sum(common.values())})


@pytest.mark.parametrize("p_empty", [0.2, 0.5, 0.8])
def test_new_cells_are_empty_with_p_empty_and_objects_are_uniform(p_empty):
    task = mf.build_task("navigation", dims=5, steps=64, grid=20, p_empty=p_empty)
    batch = task.sample("iid", 300, generator())
    seen = Counter()
    for row in range(300):
        observed = sequence_of(batch, row)[1::2]
        seen.update(token for time, token in enumerate(observed) if batch.info["first_visit"][row, time] == time)
    assert sum(seen.values()) > 10_000
    objects = {task.empty_id + 1 + i: (1 - p_empty) / 16 for i in range(16)}
    assert_distribution(seen, {task.empty_id: p_empty, **objects})


def test_each_cell_is_filled_independently():
    """Two new cells in a row: what the second one holds does not depend on the first one."""
    task = mf.build_task("navigation", dims=5, steps=64, grid=20, n_objects=3, p_empty=0.25)
    batch = task.sample("iid", 300, generator(1))
    pairs = Counter()
    for row in range(300):
        observed, first = sequence_of(batch, row)[1::2], batch.info["first_visit"][row].tolist()
        for time in range(0, 63, 2):
            if first[time] == time and first[time + 1] == time + 1:
                pairs[observed[time], observed[time + 1]] += 1
    contents = range(task.empty_id, task.vocab_size)
    assert_distribution(pairs, {(a, b): 1 / 16 for a in contents for b in contents})


FLAT = {
    "iid": (128, 64, 0.5),
    "ood-dense": (64, 32, 0.2),
    "ood-sparse": (256, 128, 0.8),
    "ood-sparse-512": (512, 128, 0.8),
}
TABLE = {  # by dimensions: (steps, grid, p_empty) of each split
    1: FLAT,
    2: FLAT,
    3: {"iid": (256, 16, 0.5), "ood-dense": (128, 8, 0.2), "ood-sparse": (512, 32, 0.8)},
    5: {"iid": (16, 5, 0.5), "ood-dense": (8, 3, 0.2), "ood-sparse": (32, 10, 0.8)},
}


@pytest.mark.parametrize("dims", TABLE)
def test_splits_are_those_of_the_table_and_differ_in_nothing_else(dims):
    task = torus(dims=dims)
    assert list(task.splits) == list(TABLE[dims])
    for split, (steps, grid, p_empty) in TABLE[dims].items():
        world = asdict(task.split_settings(split))
        expected = {"steps": steps, "grid": grid, "p_empty": p_empty}
        kept = {"dims": dims, "n_objects": 16, "max_run": 10 if dims == 1 else 3, "edges": "torus"}
        assert world == {**kept, **expected}
        batch = task.sample(split, 2, generator())
        assert batch.tokens.shape == (2, 2 * steps - 1)
        assert 0 <= int(batch.info["positions"].min()) <= int(batch.info["positions"].max()) < grid


def test_splits_follow_the_settings_asked_for():
    task = torus(dims=2, steps=10, grid=7, p_empty=0.3, n_objects=5, max_run=2)
    kept = {"dims": 2, "n_objects": 5, "max_run": 2, "edges": "torus"}
    assert {split: asdict(task.split_settings(split)) for split in task.splits} == {
        "iid": {**kept, "steps": 10, "grid": 7, "p_empty": 0.3},
        "ood-dense": {**kept, "steps": 5, "grid": 4, "p_empty": 0.2},
        "ood-sparse": {**kept, "steps": 20, "grid": 14, "p_empty": 0.8},
        "ood-sparse-40": {**kept, "steps": 40, "grid": 14, "p_empty": 0.8},
    }


def test_a_split_may_be_a_dict_over_the_iid_settings():
    task = mf.build_task("navigation", dims=2)
    asked = {"steps": 64, "grid": 32, "p_empty": 0.2}
    by_dict, by_name = (task.sample(split, 4, generator()) for split in (asked, "ood-dense"))
    assert torch.equal(by_dict.tokens, by_name.tokens)
    assert task.split_settings({"grid": 9}).grid == 9
    assert task.split_settings({"grid": 9}).steps == 128


@pytest.mark.parametrize(
    ("split", "sentence"),
    [
        ("odd-dense", "did you mean 'ood-dense'"),
        ({"grids": 9}, "did you mean 'grid'"),
        ({"grid": 1}, "grid must be at least 2"),
        ({"p_empty": 1.5}, "between 0 and 1"),
        ({"edges": "none"}, "edges must be one of walls, torus"),
        ({"steps": "many"}, "steps must be a whole number"),
    ],
    ids=["name", "setting", "grid", "p_empty", "edges", "type"],
)
def test_a_wrong_split_is_refused_in_one_sentence(split, sentence):
    task = mf.build_task("navigation")
    with pytest.raises(mf.UserError, match=sentence):
        task.sample(split, 1, generator())


@pytest.mark.parametrize("dims", range(1, 6))
@pytest.mark.parametrize("n_objects", [1, 16, 40])
def test_vocabulary(dims, n_objects):
    task = mf.build_task("navigation", dims=dims, n_objects=n_objects)
    assert task.vocab_size == len(task.token_names) == 2 * dims + 1 + n_objects
    assert len(set(task.token_names)) == task.vocab_size
    assert task.action_ids == list(range(2 * dims))
    assert task.token_names[task.empty_id] == EMPTY


@pytest.mark.parametrize(
    ("dims", "names"),
    [(1, ["→", "←"]), (2, ["→", "←", "↑", "↓"]), (3, ["+x", "-x", "+y", "-y", "+z", "-z"])],
)
def test_action_names_say_where_they_lead(dims, names):
    assert mf.build_task("navigation", dims=dims).token_names[: 2 * dims] == names


def test_nothing_is_empty_at_p_empty_0():
    task = mf.build_task("navigation", steps=32, grid=4, p_empty=0.0)
    batch = task.sample("iid", 16, generator())
    assert task.empty_id not in batch.tokens
    assert torch.equal(batch.score_mask, batch.info["revisit"])
    assert bool(batch.score_mask.any())


def test_everything_is_empty_at_p_empty_1_and_nothing_is_scored():
    task = mf.build_task("navigation", steps=32, grid=4, p_empty=1.0)
    batch = task.sample("iid", 16, generator())
    assert bool((batch.tokens[:, 1::2] == task.empty_id).all())
    assert bool(batch.info["revisit"].any()) and not bool(batch.score_mask.any())
    scores = task.score(torch.zeros(*batch.tokens.shape, task.vocab_size), batch)
    assert math.isnan(scores["accuracy"]) and scores["accuracy"].count == 0


@pytest.mark.parametrize("split", ["iid", "ood-dense", "ood-sparse", "ood-sparse-512"])
def test_scored_targets_are_never_empty_and_never_actions(split):
    task = mf.build_task("navigation")
    batch = task.sample(split, 8, generator())
    scored = batch.targets[batch.score_mask]
    assert len(scored) > 0
    assert int(scored.min()) > task.empty_id


def one_hot(answers, vocab_size):
    return torch.nn.functional.one_hot(answers, vocab_size).float()


def test_accuracy_counts_revisits_to_cells_that_are_not_empty():
    """Hand-made answers: right at one scored revisit, at one empty revisit, and at everything that does not count."""
    task = mf.build_task("navigation", dims=2, steps=64, grid=4)
    batch = task.sample("iid", 8, generator())
    revisit, scored = batch.info["revisit"], batch.score_mask
    wrong = (batch.targets + 1) % task.vocab_size
    answers = torch.where(revisit, wrong, batch.targets)
    for kind in (scored, revisit & ~scored):
        row, place = kind.nonzero()[0].tolist()
        answers[row, place] = batch.targets[row, place]
    scores = task.score(one_hot(answers, task.vocab_size), batch)
    assert list(scores) == ["accuracy", "accuracy_objects", "accuracy_all_revisits"]
    assert scores["accuracy"] == 1 / int(scored.sum())
    assert scores["accuracy"].count == int(scored.sum())
    assert scores["accuracy_all_revisits"] == 2 / int(revisit.sum())
    assert scores["accuracy_all_revisits"].count == int(revisit.sum())


def test_accuracy_objects_leaves_empty_out_of_the_argmax():
    """A walk to and fro between a cell with object A and an empty one; "empty" has the highest logit everywhere."""
    task = mf.build_task("navigation", dims=1, steps=6, grid=4, n_objects=3)
    right, left, empty, a, b = 0, 1, task.empty_id, task.empty_id + 1, task.empty_id + 2
    places = torch.tensor([[1, 0, 1, 0, 1, 0, 1]])
    held = torch.tensor([[a, empty, b, b, b, b, b]])  # only the first visits count
    batch = task.walk_batch(torch.tensor([[right, left] * 3 + [right]]), places, held)
    assert batch.targets[0, 0::2].tolist() == [a, empty, a, empty, a, empty, a]
    logits = torch.zeros(1, 13, task.vocab_size)
    logits[..., empty] = 9
    logits[0, [0, 4, 6], a] = 5  # a first visit, a revisit to A, and a revisit to the empty cell
    logits[0, 8, b] = 5  # at a revisit to A, the wrong object
    logits[0, 12, a], logits[0, 12, left] = 5, 6  # at a revisit to A, the right object but an action before it
    scores = task.score(logits, batch)
    assert {name: (float(score), score.count) for name, score in scores.items()} == {
        "accuracy": (0, 3),
        "accuracy_objects": (1 / 3, 3),
        "accuracy_all_revisits": (2 / 5, 5),
    }
    assert float(logits[0, 0, empty]) == 9, "the logits are left as they were"
    logits[0, 4, a] = 10
    assert task.score(logits, batch)["accuracy"] == task.score(logits, batch)["accuracy_objects"] == 1 / 3


def test_accuracy_objects_without_anything_to_score_is_nan():
    task = mf.build_task("navigation", steps=8, p_empty=1.0)
    batch = task.sample("iid", 4, generator())
    score = task.score(torch.zeros(*batch.tokens.shape, task.vocab_size), batch)["accuracy_objects"]
    assert math.isnan(score) and score.count == 0


def test_answering_empty_scores_zero_and_the_share_of_empty_revisits():
    task = mf.build_task("navigation", dims=2, steps=64, grid=4)
    batch = task.sample("iid", 8, generator())
    scores = task.score(one_hot(torch.full_like(batch.targets, task.empty_id), task.vocab_size), batch)
    revisits, filled = scores["accuracy_all_revisits"].count, scores["accuracy"].count
    assert scores["accuracy"] == 0
    assert scores["accuracy_all_revisits"] == (revisits - filled) / revisits


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"dims": 0}, "dims must be 1 to 5"),
        ({"dims": 6}, "dims must be 1 to 5"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"grid": 1}, "grid must be at least 2"),
        ({"max_run": 0}, "max_run must be at least 1"),
        ({"n_objects": 0}, "n_objects must be at least 1"),
        ({"n_objects": 10**9}, "n_objects must be at most 1000000"),
        ({"p_empty": -0.1}, "between 0 and 1"),
        ({"p_empty": float("nan")}, "between 0 and 1"),
        ({"edges": "wall"}, "edges must be one of walls, torus, not 'wall'"),
        ({"dims": 2.0}, "dims must be a whole number"),
        ({"dim": 2}, "did you mean 'dims'"),
    ],
    ids=lambda value: "-".join(map(str, *value.items())) if isinstance(value, dict) else "",
)
def test_wrong_settings_are_refused_in_one_sentence(wrong, sentence):
    with pytest.raises(mf.UserError, match=sentence):
        mf.build_task("navigation", **wrong)


@pytest.mark.parametrize(
    ("dims", "split", "low", "high"),
    [(1, "iid", 1, 1), (1, "ood-dense", 0.93, 0.95), (1, "ood-sparse", 1, 1), (2, "ood-dense", 0.999, 1)],
)
def test_what_a_map_of_the_trained_ring_can_know(dims, split, low, high):
    """The fraction of scored revisits to a cell seen before at the same place modulo 64, the size of training."""
    task = torus(dims=dims)
    batch = task.sample(split, 512, torch.Generator().manual_seed(0))
    scored = batch.score_mask[:, 0::2]
    ring = batch.info["displacement"] % 64
    seen_before = first_visits(ring[..., 0] + 64 * ring[..., -1] * (dims - 1)) < torch.arange(scored.shape[1])
    assert low <= int((seen_before & scored).sum()) / int(scored.sum()) <= high
