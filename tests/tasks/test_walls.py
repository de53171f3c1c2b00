"""`navigation` with walls, against a slow sampler that is written from the rules, step by step."""

import math
import random
import zlib
from collections import Counter
from dataclasses import asdict
from itertools import pairwise, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mapformers as mf
from helpers import examples
from mapformers.runs.config import RunConfig
from mapformers.tasks.navigation import World
from mapformers.tasks.walk import first_visits


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def walls(**options):
    return mf.build_task("navigation", edges="walls", **options)


def moved(cell, action):
    """The cell to which an action leads, inside the grid or not."""
    axis, backwards = divmod(action, 2)
    return tuple(x + (axis == i) * (-1 if backwards else 1) for i, x in enumerate(cell))


def possible_actions(cell, grid):
    return [action for action in range(2 * len(cell)) if all(0 <= x < grid for x in moved(cell, action))]


def slow_walk(start, grid, steps, choose_direction, choose_length):
    """The rules, step by step: a run goes on unless it has ended or a wall is ahead; then another one begins.

    Returned are the actions, and the length that each run was given with the length that it had.
    """
    cell, actions, runs, direction, left = start, [], [], None, 0
    while len(actions) < steps:
        possible = possible_actions(cell, grid)
        if left == 0 or direction not in possible:
            direction, left = choose_direction(possible), choose_length()
            runs.append([direction, left, 0])
        cell, left = moved(cell, direction), left - 1
        actions.append(direction)
        runs[-1][2] += 1
    return actions, runs


def random_walk(rng, dims, grid, steps, max_run):
    """A start and a walk of the slow sampler, from Python's own random numbers."""
    start = tuple(rng.randrange(grid) for _ in range(dims))
    return start, *slow_walk(start, grid, steps, rng.choice, lambda: rng.randint(1, max_run))


def sequence_of(batch, row):
    return [*batch.tokens[row].tolist(), int(batch.targets[row, -1])]


def starts_of(batch):
    return [tuple(cell) for cell in (batch.info["positions"][:, 0] - batch.info["displacement"][:, 0]).tolist()]


def assert_uniform(counts, values):
    """Pearson's chi-square is at most four standard deviations above its mean."""
    values, n = list(values), sum(counts.values())
    assert set(counts) <= set(values)
    expected = n / len(values)
    assert expected >= 5, "too few cases to tell"
    statistic, freedom = sum((counts[v] - expected) ** 2 / expected for v in values), len(values) - 1
    assert statistic <= freedom + 4 * math.sqrt(2 * freedom), f"chi-square {statistic:.1f} at {freedom} degrees"


def chi_square_of_two(one, other):
    """The chi-square of two samples of one distribution, over its degrees of freedom in standard deviations."""
    values = [v for v in set(one) | set(other) if one[v] + other[v] >= 10]
    rare = [sum(counts[v] for v in counts if v not in values) for counts in (one, other)]
    cells = [(one[v], other[v]) for v in values] + ([tuple(rare)] if sum(rare) >= 10 else [])
    n, m = (sum(column) for column in zip(*cells))
    statistic = sum((a * math.sqrt(m / n) - b * math.sqrt(n / m)) ** 2 / (a + b) for a, b in cells)
    freedom = len(cells) - 1
    return (statistic - freedom) / math.sqrt(2 * freedom)


worlds = st.fixed_dictionaries(
    {
        "dims": st.integers(1, 5),
        "steps": st.integers(1, 24),
        "grid": st.integers(2, 6),
        "p_empty": st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]),
        "n_objects": st.integers(1, 30),
        "max_run": st.integers(1, 12),
    }
)


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(world=worlds, seed=st.integers(0, 2**31))
def test_a_replay_from_the_start_finds_no_step_into_a_wall(world, seed):
    """Positions, first visits, contents and masks, from the start and the tokens."""
    task = walls(**world)
    batch = task.sample("iid", 8, generator(seed))
    assert batch.tokens.shape == (8, 2 * world["steps"] - 1) and bool(batch.loss_mask.all())
    for row, start in enumerate(starts_of(batch)):
        sequence, cell, seen, revisits = sequence_of(batch, row), start, {}, []
        for time, (action, observed) in enumerate(zip(sequence[0::2], sequence[1::2])):
            assert action in possible_actions(cell, world["grid"])
            cell = moved(cell, action)
            assert batch.info["positions"][row, time].tolist() == list(cell)
            assert batch.info["displacement"][row, time].tolist() == [x - s for x, s in zip(cell, start)]
            revisits += [cell in seen, False]
            first, held = seen.setdefault(cell, (time, observed))
            assert held == observed, "a cell changed what it holds"
            assert task.empty_id <= observed < task.vocab_size
            assert batch.info["first_visit"][row, time] == first
        assert batch.targets[row].tolist() == sequence[1:]
        assert batch.info["revisit"][row].tolist() == revisits[:-1]
        scored = [again and token != task.empty_id for again, token in zip(revisits, sequence[1:])]
        assert batch.score_mask[row].tolist() == scored


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(world=worlds, seed=st.integers(0, 2**31))
def test_a_walk_is_that_of_the_slow_sampler_from_the_same_numbers(world, seed):
    """The numbers of a walk: its start, a direction for each run, a length for each run, what cells hold."""
    task = walls(**world)
    dims, steps, grid, max_run = (world[name] for name in ("dims", "steps", "grid", "max_run"))
    assert task.numbers_per_sequence(task.settings) == dims + 3 * steps
    uniform = torch.rand(8, dims + 3 * steps, generator=generator(seed))
    batch = task.draw(uniform, task.settings)
    for row, numbers in enumerate(uniform.tolist()):
        start = tuple(int(u * grid) for u in numbers[:dims])
        directions, lengths = iter(numbers[dims : dims + steps]), iter(numbers[dims + steps : dims + 2 * steps])
        actions, runs = slow_walk(
            start,
            grid,
            steps,
            lambda possible, numbers=directions: possible[int(next(numbers) * len(possible))],
            lambda numbers=lengths: 1 + int(next(numbers) * max_run),
        )
        assert starts_of(batch)[row] == start
        assert sequence_of(batch, row)[0::2] == actions
        assert_runs_end_by_length_or_wall(start, runs, grid)


def assert_runs_end_by_length_or_wall(start, runs, grid):
    cell = start
    for number, (direction, length, had) in enumerate(runs):
        for _ in range(had):
            cell = moved(cell, direction)
        last = number == len(runs) - 1  # the last run may be cut off by the end of the walk
        assert had == length or last or direction not in possible_actions(cell, grid)
        assert 1 <= had <= length


@pytest.mark.parametrize(("dims", "grid"), [(1, 4), (2, 3), (3, 3), (2, 2)], ids=["1D", "2D", "3D", "corners only"])
def test_directions_are_uniform_among_the_possible_ones(dims, grid):
    """At corners, edges and in the interior. With runs of one step every step is a draw of its own."""
    task = walls(dims=dims, grid=grid, steps=60, max_run=1)
    batch = task.sample("iid", 600, generator(1))
    taken = {}
    for row, cell in enumerate(starts_of(batch)):
        for action in sequence_of(batch, row)[0::2]:
            taken.setdefault(cell, Counter())[action] += 1
            cell = moved(cell, action)
    assert len(taken) == grid**dims
    for cell, counts in taken.items():
        assert_uniform(counts, possible_actions(cell, grid))


@pytest.mark.parametrize(("dims", "grid", "max_run"), [(1, 12, 10), (2, 5, 3), (3, 4, 3)], ids=["1D", "2D", "3D"])
def test_walks_are_distributed_as_those_of_the_slow_sampler(dims, grid, max_run):
    """First directions by start, stretches in one direction, turns at walls, last cells, numbers of cells seen."""
    n, steps, rng = 3000, 30, random.Random(0)
    slow = [random_walk(rng, dims, grid, steps, max_run)[:2] for _ in range(n)]
    batch = walls(dims=dims, grid=grid, steps=steps, max_run=max_run).sample("iid", n, generator(2))
    fast = [(start, sequence_of(batch, row)[0::2]) for row, start in enumerate(starts_of(batch))]
    for name, statistic in STATISTICS.items():
        one, other = (Counter(statistic(start, actions, grid) for start, actions in walks) for walks in (fast, slow))
        assert chi_square_of_two(one, other) < 4, name


def at_walls(cell, grid):
    return sum(x in (0, grid - 1) for x in cell)


def stretch(actions):
    """The length of the first stretch in one direction."""
    return next((i for i, action in enumerate(actions) if action != actions[0]), len(actions))


def path(start, actions):
    cells = [start]
    for action in actions:
        cells.append(moved(cells[-1], action))
    return cells


STATISTICS = {
    "first direction by start": lambda start, actions, grid: (start if len(start) < 3 else start[0], actions[0]),
    "first stretch": lambda start, actions, grid: stretch(actions),
    "first stretch by start": lambda start, actions, grid: (at_walls(start, grid), stretch(actions)),
    "second stretch": lambda start, actions, grid: stretch(actions[stretch(actions) :] or [0]),
    "first turn": lambda start, actions, grid: (actions[0], actions[stretch(actions) % len(actions)]),
    "number of turns": lambda start, actions, grid: sum(a != b for a, b in pairwise(actions)),
    "steps along walls": lambda start, actions, grid: sum(at_walls(cell, grid) > 0 for cell in path(start, actions)),
    "last cell": lambda start, actions, grid: path(start, actions)[-1],
    "number of cells": lambda start, actions, grid: len(set(path(start, actions)[1:])),
}


def axis_first(rng, possible):
    """A wrong rule: an axis uniformly at random, then one of its possible directions."""
    axis = rng.choice(sorted({action // 2 for action in possible}))
    return rng.choice([action for action in possible if action // 2 == axis])


@pytest.mark.parametrize("wrong", ["direction", "length"])
def test_the_comparison_of_distributions_can_fail(wrong):
    rng, walks = random.Random(0), ([], [])
    for _ in range(3000):
        start = (rng.randrange(5), rng.randrange(5))
        walks[0].append((start, slow_walk(start, 5, 30, rng.choice, lambda: rng.randint(1, 3))[0]))
        if wrong == "direction":
            other = slow_walk(start, 5, 30, lambda possible: axis_first(rng, possible), lambda: rng.randint(1, 3))
        else:
            other = slow_walk(start, 5, 30, rng.choice, lambda: rng.choice([1, 2, 2, 3]))
        walks[1].append((start, other[0]))
    name = {"direction": "first direction by start", "length": "first stretch"}[wrong]
    assert chi_square_of_two(*(Counter(STATISTICS[name](*walk, 5) for walk in part) for part in walks)) > 4


@pytest.mark.parametrize(("dims", "grid"), [(1, 64), (2, 7), (5, 3)])
def test_the_start_is_uniform_in_the_grid(dims, grid):
    batch = walls(dims=dims, grid=grid, steps=2).sample("iid", 5000, generator(3))
    assert_uniform(Counter(starts_of(batch)), product(range(grid), repeat=dims))


def test_the_start_counts_as_unvisited_until_it_is_observed():
    """On two cells every step changes place: other, start, other, start."""
    batch = walls(dims=1, steps=4, grid=2, p_empty=0.0).sample("iid", 16, generator())
    for row, (start,) in enumerate(starts_of(batch)):
        assert batch.info["positions"][row].flatten().tolist() == [1 - start, start, 1 - start, start]
        assert batch.info["first_visit"][row].tolist() == [0, 1, 0, 1]
        assert batch.info["revisit"][row].tolist() == [False, False, False, False, True, False, True]


def test_a_long_run_ends_at_the_wall_and_the_next_one_turns_round():
    batch = walls(dims=1, grid=5, steps=20, max_run=10**9).sample("iid", 32, generator())
    for row, (start,) in enumerate(starts_of(batch)):
        actions = sequence_of(batch, row)[0::2]
        first = 4 - start if actions[0] == 0 else start
        ways = [actions[0]] * first + ([1 - actions[0]] * 4 + [actions[0]] * 4) * 3
        assert actions == ways[:20]


def tensors_of(batch):
    parts = {"tokens": batch.tokens, "targets": batch.targets, "loss": batch.loss_mask, "score": batch.score_mask}
    return {**parts, **batch.info}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


@pytest.mark.parametrize("dims", [1, 2, 5])
def test_two_batches_of_64_are_one_of_128_and_rows_do_not_see_each_other(dims):
    task, stream = walls(dims=dims), generator()
    halves = [tensors_of(task.sample("iid", 64, stream)) for _ in range(2)]
    whole = tensors_of(task.sample("iid", 128, generator()))
    assert_same(whole, {name: torch.cat([half[name] for half in halves]) for name in whole})
    part = tensors_of(task.sample("iid", 128, generator(), part=(5, 128)))
    assert_same(part, {name: tensor[5:6] for name, tensor in whole.items()})


def test_the_same_generator_gives_the_same_batch_and_another_one_another():
    first, again, other = (tensors_of(walls().sample("iid", 8, generator(seed))) for seed in (3, 3, 4))
    assert_same(first, again)
    assert not torch.equal(first["tokens"], other["tokens"])


def test_sampling_does_not_depend_on_threads_and_leaves_the_numbers_alone():
    task, threads = walls(), torch.get_num_threads()
    uniform = torch.rand(16, task.numbers_per_sequence(task.settings), generator=generator())
    before = uniform.clone()
    try:
        batches = []
        for n in (1, 2):
            torch.set_num_threads(n)
            batches.append(tensors_of(task.draw(uniform, task.settings)))
    finally:
        torch.set_num_threads(threads)
    assert_same(*batches)
    assert torch.equal(uniform, before)


PINNED = {  # by dimensions, in the order of the splits
    1: [2620203865, 2416134325, 3777666908, 3805265092],
    2: [3899807477, 712989574, 302649858, 2867919001],
    3: [2695285519, 4170660635, 4084505736],
    4: [2775170558, 3285824901, 771585624],
    5: [92790712, 2697275465, 1631529975],
}


@pytest.mark.parametrize("dims", PINNED)
def test_sampling_is_pinned(dims):
    """A change of the sampling changes every figure ever measured, so it must not happen unnoticed."""
    task = walls(dims=dims)
    tokens = [task.sample(split, 8, generator()).tokens for split in task.splits]
    assert [zlib.crc32(part.contiguous().numpy().astype("<i8").tobytes()) for part in tokens] == PINNED[dims]


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
    4: {"iid": (64, 8, 0.5), "ood-dense": (32, 4, 0.2), "ood-sparse": (128, 16, 0.8)},
    5: {"iid": (16, 5, 0.5), "ood-dense": (32, 5, 0.2), "ood-sparse": (64, 10, 0.8)},
}


@pytest.mark.parametrize("dims", TABLE)
def test_splits_are_those_of_the_table_and_keep_the_walls(dims):
    task = walls(dims=dims)
    assert list(task.splits) == list(TABLE[dims])
    for split, (steps, grid, p_empty) in TABLE[dims].items():
        kept = {"dims": dims, "n_objects": 16, "max_run": 10 if dims == 1 else 3, "edges": "walls"}
        assert asdict(task.split_settings(split)) == {**kept, "steps": steps, "grid": grid, "p_empty": p_empty}
        batch = task.sample(split, 4, generator())
        assert batch.tokens.shape == (4, 2 * steps - 1)
        assert 0 <= int(batch.info["positions"].min()) <= int(batch.info["positions"].max()) < grid


@pytest.mark.parametrize("sizes", [{"steps": 18}, {"grid": 6}], ids=["steps", "grid"])
def test_longer_splits_in_5d_belong_to_the_world_of_the_paper_alone(sizes):
    task = walls(dims=5, **sizes)
    steps, grid = sizes.get("steps", 16), sizes.get("grid", 5)
    assert task.splits["ood-dense"] == {"steps": steps // 2, "grid": 3, "p_empty": 0.2}
    assert task.splits["ood-sparse"] == {"steps": 2 * steps, "grid": 2 * grid, "p_empty": 0.8}


def known_without_the_size(task, split, n=256):
    """The fraction of scored revisits to a displacement from the start that was seen before."""
    batch = task.sample(split, n, generator(4))
    scored, places = batch.score_mask[:, 0::2], batch.info["displacement"]
    numbers = (places * 10_000 ** torch.arange(places.shape[-1])).sum(dim=-1)
    seen_before = first_visits(numbers) < torch.arange(scored.shape[1])
    assert int(scored.sum()) > 100
    return int((seen_before & scored).sum()) / int(scored.sum())


@pytest.mark.parametrize("dims", range(1, 6))
def test_with_walls_all_can_be_known_without_the_size_of_the_grid(dims):
    task = walls(dims=dims)
    assert [known_without_the_size(task, split) for split in task.splits] == [1.0] * len(task.splits)


@pytest.mark.parametrize(("dims", "best"), [(1, 0.94), (3, 0.74), (4, 0.50), (5, 0.25)])
def test_on_a_torus_it_cannot(dims, best):
    """The paper prints 1.00 in one, three and five dimensions, so its grid must have walls."""
    task = mf.build_task("navigation", dims=dims, edges="torus")
    assert known_without_the_size(task, "ood-dense", 1024) == pytest.approx(best, abs=0.02)


def test_the_perfect_player_of_iid_is_perfect_on_ood_dense_with_walls_only():
    """It knows the grid it was built for: wrong on a smaller torus, no matter between walls."""
    scores = {}
    for edges in ("walls", "torus"):
        task = mf.build_task("navigation", dims=1, edges=edges)
        player = mf.players.build("perfect", task, "iid")
        scores[edges] = mf.evaluate(player, task, "ood-dense", n_sequences=256)["accuracy"]
    assert scores["walls"] == 1
    assert scores["torus"] == pytest.approx(0.94, abs=0.02)


def test_a_trace_does_not_wrap_between_walls():
    task = walls(dims=2, steps=4, grid=2)
    assert task.trace([0, 1, 1, 2], task.settings) == [(1, 0), (0, 0), (-1, 0), (-1, 1)]
    torus = task.split_settings({"edges": "torus"})
    assert task.trace([0, 1, 1, 2], torus) == [(1, 0), (0, 0), (1, 0), (1, 1)]


def test_walls_are_the_default():
    task, spelled = mf.build_task("navigation"), mf.build_task("navigation", edges="walls")
    assert task.settings.edges == "walls" and task.numbers_per_sequence(task.settings) == 3 * 128 + 2
    assert_same(*(tensors_of(one.sample("iid", 8, generator())) for one in (task, spelled)))


def test_a_recorded_run_that_mentions_no_edges_was_on_the_torus():
    plain = RunConfig.compose("navigation", "mapwm", "smoke").to_dict()
    assert plain["task"]["settings"].pop("edges") == "walls"
    assert RunConfig.from_dict(plain) == RunConfig.compose("navigation", "mapwm", "smoke", edges="torus")


def test_wrong_edges_are_refused_in_one_sentence():
    sentence = "^edges must be one of walls, torus, not 'wall'.$"
    with pytest.raises(mf.UserError, match=sentence):
        RunConfig.compose("navigation", "mapwm", "smoke", edges="wall")
    with pytest.raises(mf.UserError, match=sentence):
        World(2, 8, 4, 0.5, 16, 3, "wall")


def test_a_model_trains_on_walls_and_the_run_keeps_them(tmp_path):
    config = RunConfig.compose("navigation", "mapwm", "smoke", edges="walls")
    assert config.build_task().settings.edges == "walls"
    assert RunConfig.from_dict(config.to_dict()) == config
    sizes = {"steps": 12, "grid": 4, "d_model": 16, "sequences": 64, "eval_sequences": 8, "final_sequences": 8}
    run = mf.train("navigation", "mapwm", scale="smoke", out=tmp_path / "run", edges="walls", **sizes)
    assert run.task.settings.edges == mf.load(tmp_path / "run").task.settings.edges == "walls"
