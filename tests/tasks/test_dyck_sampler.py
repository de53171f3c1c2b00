"""The sampler of `dyck` against an enumeration of all words, rejection, and the reflection principle."""

import math
from collections import Counter
from fractions import Fraction
from itertools import product

import pytest
import torch
from brackets import (
    assert_same_distribution,
    assert_uniform,
    generator,
    nestings,
    sequence_of,
    uniform,
    words,
)

import mapformers as mf
from mapformers.tasks.dyck_sampler import count, draw_depths, forward_chances, occupancy, opening_chances, place_of

SIZES = [(2, 1), (4, 1), (4, 2), (8, 2), (8, 3), (8, 4), (10, 3), (12, 4)]


def catalan(n):
    return math.comb(2 * n, n) // (n + 1)


def nested_at_most(length, depth):
    """The number of nestings no deeper than ``depth``, by reflection at both walls, without recursion."""
    n, period = length // 2, depth + 2
    shifts = range(-n, n + 1)

    def paths(end):
        return math.comb(length, end) if 0 <= end <= length else 0

    return sum(paths(n + k * period) - paths(n + depth + 1 + k * period) for k in shifts)


@pytest.mark.parametrize("length", range(2, 17, 2))
def test_counts_are_those_of_walks_listed_one_by_one(length):
    for depth in range(1, length // 2 + 1):
        assert count(length, depth) == len(nestings(length, depth))


@pytest.mark.parametrize("length", [2, 8, 32, 64, 128])
def test_counts_are_those_of_the_reflection_principle_and_sum_to_catalan_numbers(length):
    counts = [count(length, depth) for depth in range(1, length // 2 + 1)]
    assert sum(counts) == catalan(length // 2)
    for depth, found in enumerate(counts, start=1):
        assert found == nested_at_most(length, depth) - nested_at_most(length, depth - 1)
    assert counts[0] == counts[-1] == 1


@pytest.mark.parametrize(("length", "depth"), SIZES)
def test_every_nesting_has_the_same_chance_by_the_table(length, depth):
    chances = forward_chances(length, depth)
    assert chances.shape == (length, 2 * depth + 1) and chances.dtype == torch.float64
    for walk in nestings(length, depth):
        place, chance = 0, 1.0
        for time, reached in enumerate(place_of(torch.tensor([walk]), depth)[0].tolist()):
            ahead = float(chances[time, place])
            chance *= ahead if reached > place else 1 - ahead
            place = reached
        assert place == 2 * depth
        assert chance == pytest.approx(1 / len(nestings(length, depth)), rel=1e-13)


@pytest.mark.parametrize(("length", "depth"), [(32, 4), (128, 4), (32, 12), (128, 16), (256, 64)])
def test_every_drawn_nesting_has_the_same_chance_where_counts_outgrow_floats(length, depth):
    """The product of the probabilities along a walk is one over the count, which has up to 150 digits."""
    chances = forward_chances(length, depth)
    depths = draw_depths(uniform(200, length), depth)
    places = torch.nn.functional.pad(place_of(depths, depth), (1, 0))
    ahead = chances[torch.arange(length), places[:, :-1]]
    taken = torch.where(places[:, 1:] > places[:, :-1], ahead, 1 - ahead)
    for row in taken.tolist():
        whole = math.prod((Fraction(chance) for chance in row), start=Fraction(count(length, depth)))
        assert float(whole) == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize(("length", "depth"), [(128, 16), (512, 100)])
def test_chances_are_the_nearest_floats_to_their_fractions(length, depth):
    """Against exact fractions: the number of walks from a place to the end, by reflection instead of recursion."""
    chances = forward_chances(length, depth)
    for time, at in [(0, 0), (2, 2), (40, 10), (60, depth - 2), (length - depth - 2, depth - 2)]:
        left = length - time

        def to_the_end(start, steps, ceiling):  # walks from a depth to 0 within 0 … ceiling
            if not 0 <= start <= ceiling:
                return 0
            turns = range(-steps, steps + 1)
            period = 2 * (ceiling + 2)

            def paths(distance):
                ups, odd = divmod(steps + distance, 2)
                return 0 if odd or not 0 <= ups <= steps else math.comb(steps, ups)

            return sum(paths(start + k * period) - paths(start + 2 + k * period) for k in turns)

        def ways(start, steps):  # not yet at the greatest depth, which must be touched
            return to_the_end(start, steps, depth) - to_the_end(start, steps, depth - 1)

        if ways(at, left):
            assert float(chances[time, at]) == ways(at + 1, left - 1) / ways(at, left)


@pytest.mark.parametrize(("length", "depth"), [(6, 2), (10, 3), (12, 4), (14, 2)])
def test_nestings_are_drawn_uniformly(length, depth):
    cases = nestings(length, depth)
    drawn = Counter(map(tuple, draw_depths(uniform(100 * len(cases), length, seed=1), depth).tolist()))
    assert set(drawn) == set(cases)
    assert_uniform(drawn, cases)


@pytest.mark.parametrize(
    ("length", "depth", "types"),
    [(2, 1, 1), (2, 1, 3), (4, 2, 2), (6, 1, 2), (6, 2, 2), (6, 3, 2), (8, 3, 2), (4, 2, 4)],
)
def test_words_are_drawn_uniformly(length, depth, types):
    cases = words(length, depth, types)
    assert len(cases) == count(length, depth) * types ** (length // 2)
    task = mf.build_task("dyck", length=length, depth=depth, types=types)
    batch = task.sample("iid", 50 * len(cases), generator(2))
    drawn = Counter(tuple(sequence_of(batch, row)) for row in range(50 * len(cases)))
    if len(cases) == 1:
        assert set(drawn) == set(cases)
    else:
        assert_uniform(drawn, cases)


@pytest.mark.parametrize(("length", "depth"), [(16, 4), (24, 5), (24, 3)])
def test_nestings_are_those_left_over_by_rejection(length, depth):
    """A million coins are tossed for every step; walks that are no nesting of that depth are rejected."""
    steps = torch.randint(2, (1_500_000, length), generator=generator(3), dtype=torch.int8).mul_(2).sub_(1)
    walks = steps.cumsum(dim=1, dtype=torch.int8)
    kept = (walks.amin(dim=1) >= 0) & (walks[:, -1] == 0) & (walks.amax(dim=1) == depth)
    tossed = walks[kept].long()
    assert len(tossed) > 1000
    drawn = draw_depths(uniform(20_000, length, seed=4), depth)
    statistics = {
        "whole": lambda depths: [tuple(row) for row in depths[:, 1::2].tolist()],
        "area": lambda depths: depths.sum(dim=1).tolist(),
        "first top": lambda depths: (depths == depth).int().argmax(dim=1).tolist(),
        "returns": lambda depths: (depths == 0).sum(dim=1).tolist(),
        "middle": lambda depths: [tuple(row) for row in depths[:, length // 2 - 2 : length // 2 + 3].tolist()],
    }
    for name, statistic in statistics.items():
        if name != "whole" or length <= 16:
            assert_same_distribution(Counter(statistic(tossed)), Counter(statistic(drawn)))


@pytest.mark.parametrize(("length", "depth"), SIZES)
def test_occupancy_is_the_share_of_nestings_at_each_place(length, depth):
    chances = occupancy(length, depth)
    walks = place_of(torch.tensor(nestings(length, depth)), depth)
    assert chances[0].tolist() == [1.0, *[0.0] * (2 * depth)]
    for time in range(length):
        frequencies = torch.bincount(walks[:, time], minlength=2 * depth + 1) / len(walks)
        torch.testing.assert_close(chances[time + 1], frequencies.double(), rtol=1e-6, atol=1e-7)


def test_types_are_uniform_and_independent_of_the_nesting():
    task = mf.build_task("dyck", length=12, depth=3, types=3)
    batch = task.sample("iid", 20_000, generator(5))
    openers = torch.cat((batch.tokens, batch.targets[:, -1:]), dim=1)
    seen = Counter()
    for word in openers.tolist():
        first, second, third = [token for token in word if token < 3][:3]
        seen[first, second, third, word[1] < 3] += 1
    for second_opens in (True, False):
        part = Counter({case[:3]: n for case, n in seen.items() if case[3] is second_opens})
        assert_uniform(part, list(product(range(3), repeat=3)))


def test_opening_chances_are_zero_at_the_top_and_one_at_the_bottom():
    chances, seen = opening_chances(32, 4), occupancy(32, 4)[:-1] > 0
    assert float(chances[:, 4][seen[:, 4]].max()) == 0
    assert float(chances[:, 0][seen[:, 0]].min()) == 1
    assert float(chances[:, 8][seen[:, 8]].min()) == 1
