"""Dyck against words listed one by one, a sampler that throws away, a stack in plain Python, and arithmetic."""

import math
import zlib
from collections import Counter
from dataclasses import asdict, replace
from fractions import Fraction
from functools import cache
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mapformers as mf
from mapformers.players import dyck as dyck_players
from mapformers.tasks.dyck import DyckSettings, continuation_f1
from mapformers.tasks.dyck_sampler import count, draw_depths, forward_chances, occupancy, opening_chances, place_of

SIZES = [(2, 1), (4, 1), (4, 2), (8, 2), (8, 3), (8, 4), (10, 3), (12, 4)]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def uniform(*shape, seed=0):
    return torch.rand(*shape, dtype=torch.float64, generator=generator(seed))


def sequence_of(batch, row):
    return [*batch.tokens[row].tolist(), int(batch.targets[row, -1])]


def stacks_of(word, types):
    """The stack after each token; None if the word is not nested rightly."""
    stack, stacks = [], []
    for token in word:
        if token < types:
            stack = [*stack, token]
        elif not stack or stack[-1] != token - types:
            return None
        else:
            stack = stack[:-1]
        stacks.append(stack)
    return stacks


@cache
def words(length, depth, types):
    """Every word over the 2·types brackets that is nested rightly, closed, and exactly that deep: all are tried."""
    found = []
    for word in product(range(2 * types), repeat=length):
        stacks = stacks_of(word, types)
        if stacks and not stacks[-1] and max(map(len, stacks)) == depth:
            found.append(word)
    return found


@cache
def nestings(length, depth):
    """The same for one type of bracket, as depths after each step, each step tried both ways."""
    walks = [()]
    for _ in range(length):
        walks = [(*walk, (walk[-1] if walk else 0) + step) for walk in walks for step in (1, -1)]
        walks = [walk for walk in walks if 0 <= walk[-1] <= depth]
    return [walk for walk in walks if walk[-1] == 0 and max(walk) == depth]


def catalan(n):
    return math.comb(2 * n, n) // (n + 1)


def nested_at_most(length, depth):
    """Nestings no deeper than ``depth``, by reflection at both walls: no recursion at all."""
    n, period = length // 2, depth + 2
    shifts = range(-n, n + 1)

    def paths(end):
        return math.comb(length, end) if 0 <= end <= length else 0

    return sum(paths(n + k * period) - paths(n + depth + 1 + k * period) for k in shifts)


def assert_uniform(counts, cases):
    """Pearson's chi-square, at most four standard deviations from its mean on either side."""
    n = counts.total()
    assert set(counts) <= set(cases)
    assert n >= 10 * len(cases), "too few samples to tell"
    expected, freedom = n / len(cases), len(cases) - 1
    statistic = sum((counts[case] - expected) ** 2 / expected for case in cases)
    assert abs(statistic - freedom) <= 4 * math.sqrt(2 * freedom), f"chi-square {statistic:.1f} at {freedom} degrees"


def assert_same_distribution(one, other):
    """Two-sample chi-square over the cases both saw often enough, the rest pooled."""
    n, m = one.total(), other.total()
    often = [case for case in one | other if one[case] + other[case] >= 20]
    rows = [(one[case], other[case]) for case in often]
    rows.append((n - sum(a for a, _ in rows), m - sum(b for _, b in rows)))
    rows = [(a, b) for a, b in rows if a + b > 0]
    statistic = sum((a * math.sqrt(m / n) - b * math.sqrt(n / m)) ** 2 / (a + b) for a, b in rows)
    freedom = len(rows) - 1
    assert freedom >= 3
    assert statistic < freedom + 4 * math.sqrt(2 * freedom), f"chi-square {statistic:.1f} at {freedom} degrees"


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
    """The product of the chances met on the way is one over a count of up to 150 digits."""
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
    """Out of the fractions themselves: walks left from a place, by reflection instead of by recursion."""
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
    """A million coins tossed for every step; what is no nesting of that depth is thrown away."""
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
        shares = torch.bincount(walks[:, time], minlength=2 * depth + 1) / len(walks)
        torch.testing.assert_close(chances[time + 1], shares.double(), rtol=1e-6, atol=1e-7)


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


asked = st.integers(1, 12).flatmap(
    lambda half: st.fixed_dictionaries(
        {"length": st.just(2 * half), "depth": st.integers(1, half), "types": st.integers(1, 6)}
    )
)


@settings(max_examples=300)
@given(asked=asked, seed=st.integers(0, 2**31))
def test_batch_agrees_with_a_stack_in_plain_python(asked, seed):
    length, depth, types = asked["length"], asked["depth"], asked["types"]
    batch = mf.build_task("dyck", **asked).sample("iid", 4, generator(seed))
    assert batch.tokens.shape == (4, length - 1)
    assert bool(batch.loss_mask.all()) and bool(batch.score_mask.all())
    for row in range(4):
        word = sequence_of(batch, row)
        stacks = stacks_of(word, types)
        assert stacks is not None and stacks[-1] == [] and max(map(len, stacks)) == depth
        assert batch.targets[row].tolist() == word[1:]
        assert batch.info["depth"][row].tolist() == [len(stack) for stack in stacks[:-1]]
        assert batch.info["top"][row].tolist() == [stack[-1] if stack else -1 for stack in stacks[:-1]]
        padded = [stack + [-1] * (depth - len(stack)) for stack in stacks[:-1]]
        assert batch.info["stack"][row].tolist() == padded
        for time, allowed in enumerate(batch.info["valid"][row].tolist()):
            prefix = word[: time + 1]
            assert allowed == [stacks_of([*prefix, token], types) is not None for token in range(2 * types)]


def plain_f1(logits, valid):
    """The metric as its definition reads, in plain Python."""
    weights = [math.exp(logit) for logit in logits]
    chances = [weight / math.fsum(weights) for weight in weights]
    wrong = math.fsum(p for p, allowed in zip(chances, valid) if not allowed)
    precision = math.fsum(p for p, allowed in zip(chances, valid) if allowed)
    recall = sum(p > wrong for p, allowed in zip(chances, valid) if allowed) / sum(valid)
    both = precision + recall
    return precision, recall, 2 * precision * recall / both if both else 0.0


@settings(max_examples=200)
@given(asked=asked, seed=st.integers(0, 2**31), scale=st.sampled_from([0.1, 1.0, 4.0]))
def test_metric_agrees_with_plain_python(asked, seed, scale):
    task = mf.build_task("dyck", **asked)
    batch = task.sample("iid", 3, generator(seed))
    logits = torch.randn(*batch.tokens.shape, task.vocab_size, generator=generator(seed + 1), dtype=torch.float64)
    logits += scale * batch.info["valid"] * torch.randn(logits.shape, generator=generator(seed + 2))
    counted = torch.rand(batch.tokens.shape, generator=generator(seed + 3)) < 0.7
    counted[0, 0] = True
    scores = task.score(logits, replace(batch, score_mask=counted))
    places = [
        plain_f1(logits[r, t].tolist(), batch.info["valid"][r, t].tolist()) for r, t in counted.nonzero().tolist()
    ]
    hard = []
    for row, time in counted.nonzero().tolist():
        top, closers = int(batch.info["top"][row, time]), logits[row, time, asked["types"] :].tolist()
        if top >= 0 and batch.tokens[row, time] >= asked["types"]:
            hard.append(all(closers[top] > other for kind, other in enumerate(closers) if kind != top))
    assert scores["closer_accuracy"].count == len(hard)
    if hard:
        assert scores["closer_accuracy"] == sum(hard) / len(hard)
    for name, values in zip(("precision", "recall", "f1"), zip(*places)):
        assert scores[name] == pytest.approx(math.fsum(values) / len(values), rel=1e-12)
        assert scores[name].count == len(values)


@pytest.mark.parametrize(
    ("chances", "valid", "expected"),
    [
        ([0.3, 0.3, 0.3, 0.1], [1, 1, 1, 0], (0.9, 1, 1.8 / 1.9)),
        (
            [0.5, 0.125, 0.25, 0.125],
            [1, 1, 1, 0],
            (0.875, 2 / 3, 2 * 0.875 * 2 / 3 / (0.875 + 2 / 3)),
        ),  # a tie is a miss
        ([0.25, 0.25, 0.25, 0.25], [1, 1, 0, 0], (0.5, 0, 0)),
        ([0.0, 0.0, 0.5, 0.5], [1, 1, 0, 0], (0, 0, 0)),
        ([0.0, 0.0, 1.0, 0.0], [1, 1, 1, 0], (1, 1 / 3, 0.5)),
        ([0.5, 0.5, 0.0, 0.0], [1, 1, 0, 0], (1, 1, 1)),
    ],
    ids=["all better", "tie", "uniform", "all wrong", "one of three", "perfect"],
)
def test_metric_by_hand(chances, valid, expected):
    found = continuation_f1(torch.tensor(chances, dtype=torch.float64).log(), torch.tensor(valid).bool())
    assert [float(value) for value in found] == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_metric_of_nan_is_nan():
    assert math.isnan(continuation_f1(torch.full((4,), math.nan), torch.tensor([True, True, False, False]))[2])


def test_tokens_the_task_does_not_have_never_follow():
    """A model with a padded vocabulary: probability on its spare tokens is wrong, and costs in the loss."""
    task = mf.build_task("dyck")
    batch = task.sample("iid", 2, generator())
    logits = torch.where(batch.info["valid"], 50.0, -50.0)
    spare = torch.nn.functional.pad(logits, (0, 3), value=-50.0)
    assert task.score(spare, batch) == {"f1": 1, "precision": 1, "recall": 1, "closer_accuracy": 1}
    assert float(task.loss(spare, batch)) == pytest.approx(0, abs=1e-15)
    spare[..., -1] = 50.0
    assert task.score(spare, batch)["recall"] == 0
    assert task.loss(spare, batch) > 1


@settings(max_examples=50)
@given(asked=asked, seed=st.integers(0, 2**31))
def test_valid_set_loss_is_the_plain_mean_over_tokens(asked, seed):
    task = mf.build_task("dyck", **asked)
    batch = task.sample("iid", 2, generator(seed))
    counted = torch.rand(batch.tokens.shape, generator=generator(seed + 1)) < 0.6
    counted[0, 0] = True
    batch = replace(batch, loss_mask=counted)
    logits = torch.randn(*batch.tokens.shape, task.vocab_size, generator=generator(seed), dtype=torch.float64)
    costs = []
    for row, time in counted.nonzero().tolist():
        for logit, allowed in zip(logits[row, time].tolist(), batch.info["valid"][row, time].tolist()):
            costs.append(math.log1p(math.exp(-logit if allowed else logit)))
    assert float(task.loss(logits, batch)) == pytest.approx(math.fsum(costs) / len(costs), rel=1e-12)


def test_next_token_loss_is_cross_entropy_with_the_bracket_that_follows():
    task = mf.build_task("dyck", loss="next-token")
    batch = task.sample("iid", 4, generator())
    logits = torch.randn(*batch.tokens.shape, 4, generator=generator(1))
    chances = logits.log_softmax(dim=-1).gather(2, batch.targets.unsqueeze(2))
    torch.testing.assert_close(task.loss(logits, batch), -chances.mean())
    valid_set = mf.build_task("dyck").loss(logits, batch)
    assert not torch.isclose(valid_set, task.loss(logits, batch))


@pytest.mark.parametrize("types", [1, 2, 5])
@pytest.mark.parametrize("loss", ["valid-set", "next-token"])
def test_the_perfect_player_scores_one_on_every_split(types, loss):
    task = mf.build_task("dyck", types=types, loss=loss)
    for split in [*task.splits, {"length": 2, "depth": 1}, {"length": 40, "depth": 20}]:
        player = mf.players.build("perfect", task, split)
        scores = mf.evaluate(player, task, split, n_sequences=24)
        figures = {"f1": 1.0, "precision": 1.0, "recall": 1.0, "closer_accuracy": 1.0}
        if split == {"length": 2, "depth": 1}:
            assert math.isnan(scores.pop("closer_accuracy"))  # nothing is ever open after a closer
            del figures["closer_accuracy"]
        assert scores == figures
        assert scores["f1"].count == 24 * (task.split_settings(split).length - 1)


def inside_share(length, depth):
    """The expected share of positions with something open."""
    return 1 - float(occupancy(length, depth)[1:-1, [0, -1]].sum(dim=1).mean())


@pytest.mark.parametrize(("length", "depth"), [(32, 4), (12, 2)])
def test_random_answers_score_what_arithmetic_says(length, depth):
    """One certain answer of four. Inside, three of them may follow, and one of three found makes an F1 of 1/2; at depth
    0, two of them, and one of two found makes 2/3."""
    task = mf.build_task("dyck", length=length, depth=depth)
    scores = mf.evaluate(mf.players.build("random", task), task, n_sequences=2000)
    inside = inside_share(length, depth)
    assert scores["precision"] == pytest.approx(inside * 3 / 4 + (1 - inside) / 2, abs=0.01)
    assert scores["recall"] == pytest.approx(inside * 3 / 4 / 3 + (1 - inside) / 2 / 2, abs=0.01)
    assert scores["f1"] == pytest.approx(inside * 3 / 4 / 2 + (1 - inside) / 2 * 2 / 3, abs=0.01)


def test_the_commonest_answer_is_a_closer_and_scores_what_arithmetic_says():
    """The first bracket is never a target, so closers are commoner; one is right for half of what is open."""
    task = mf.build_task("dyck")
    player = mf.players.build("commonest", task)
    assert player.token in (2, 3)
    scores = mf.evaluate(player, task, n_sequences=2000)
    assert scores["precision"] == pytest.approx(inside_share(32, 4) / 2, abs=0.01)
    assert scores["f1"] == pytest.approx(inside_share(32, 4) / 2 / 2, abs=0.01)


def test_openers_alone_are_never_wrong_and_find_two_of_three():
    task = mf.build_task("dyck")
    openers = torch.tensor([50.0, 50.0, -50.0, -50.0])
    scores = mf.evaluate(lambda tokens: openers.expand(*tokens.shape, 4), task, n_sequences=1000)
    inside = inside_share(32, 4)
    assert scores["precision"] == pytest.approx(1, abs=1e-12)
    assert scores["f1"] == pytest.approx(inside * 0.8 + (1 - inside), abs=0.005)


@pytest.mark.parametrize("split", ["iid", "ood-long-deeper"])
def test_without_a_stack_f1_is_high_and_closers_are_guessed(split):
    """A bracket alone tells all after an opener and at depth 0, and two valid tokens of three elsewhere: F1 = 4/5."""
    task = mf.build_task("dyck")
    alone, counting = (mf.evaluate(mf.players.build(name, task), task, split) for name in ("last-bracket", "counting"))
    hard = alone["closer_accuracy"].count / alone["f1"].count
    assert alone["f1"] == pytest.approx(1 - 0.2 * hard, abs=1e-12)
    assert alone["closer_accuracy"] == 0
    assert counting["f1"] == pytest.approx(1 - 0.2 * hard * (1 - counting["closer_accuracy"]), abs=1e-12)
    assert 0.6 < counting["closer_accuracy"] < 0.9 < 0.96 < counting["f1"] < 0.99


def test_counting_guesses_the_type_with_most_open():
    player = mf.players.build("counting", mf.build_task("dyck", length=10, depth=3))
    word = [0, 0, 1, 0, 2, 3, 1, 3, 2]  # ( ( [ ( ) ] [ ] )
    guesses = [logits[2:].tolist() for logits in player(torch.tensor([word]))[0]]
    sure, maybe = 100, 0
    assert [max(pair) for pair in guesses] == [sure, sure, sure, sure, maybe, maybe, sure, maybe, maybe]
    assert [pair.index(max(pair)) for pair in guesses] == [0, 0, 1, 0, 0, 0, 1, 0, 0]


@settings(max_examples=40)
@given(half=st.integers(1, 6), seed=st.integers(0, 1000), types=st.integers(1, 3), data=st.data())
def test_bayes_gives_the_share_of_all_nestings_that_go_on_so(half, seed, types, data):
    length, depth = 2 * half, data.draw(st.integers(1, half))
    task = mf.build_task("dyck", length=length, depth=depth, types=types, loss="next-token")
    batch = task.sample("iid", 2, generator(seed))
    chances = mf.players.build("bayes", task)(batch.tokens).exp()
    for row in range(2):
        depths = batch.info["depth"][row].tolist()
        for time in range(length - 1):
            alike = [walk for walk in nestings(length, depth) if list(walk[: time + 1]) == depths[: time + 1]]
            opening = sum(walk[time + 1] > walk[time] for walk in alike) / len(alike)
            expected = [opening / types] * types + [0.0] * types
            if depths[time]:
                expected[types + int(batch.info["top"][row, time])] = 1 - opening
            assert chances[row, time].tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("length", "depth", "types"), [(4, 2, 2), (8, 2, 2), (8, 4, 1), (10, 3, 3), (12, 4, 2)])
def test_best_f1_is_the_mean_over_all_nestings(length, depth, types):
    """What Bayes misses is what can no longer come: counted over every nesting there is."""
    task = mf.build_task("dyck", length=length, depth=depth, types=types, loss="next-token")
    total = 0.0
    for walk in nestings(length, depth):
        for time in range(length - 1):
            alike = [other for other in nestings(length, depth) if other[: time + 1] == walk[: time + 1]]
            openers = types * any(other[time + 1] > other[time] for other in alike)
            closers = any(other[time + 1] < other[time] for other in alike)
            recall = (openers + closers) / (types + (walk[time] > 0))
            total += 2 * recall / (1 + recall)
    assert task.best_f1() == pytest.approx(total / len(nestings(length, depth)) / (length - 1), rel=1e-12)


@pytest.mark.parametrize("split", ["iid", "ood-long", "ood-deep", "ood-long-deeper"])
def test_best_f1_is_what_bayes_scores(split):
    task = mf.build_task("dyck", loss="next-token")
    batch = task.sample(split, 1500, generator(7))
    logits = mf.players.build("bayes", task, split)(batch.tokens)
    by_sequence = continuation_f1(logits, batch.info["valid"])[2].mean(dim=1)
    error = float(by_sequence.std()) / math.sqrt(1500)
    assert abs(float(by_sequence.mean()) - task.best_f1(split)) < 4 * error
    assert task.score(logits, batch)["precision"] == 1
    assert mf.build_task("dyck").best_f1(split) == 1


def test_best_f1_at_the_paper_s_size_is_not_one():
    assert mf.build_task("dyck", loss="next-token").best_f1() == pytest.approx(0.9271, abs=5e-5)


def test_bayes_has_a_smaller_cross_entropy_than_a_player_that_only_knows_the_rules():
    task = mf.build_task("dyck", loss="next-token")
    batch = task.sample("iid", 200, generator())
    losses = [
        float(task.loss(mf.players.build(name, task)(batch.tokens).double(), batch)) for name in ("bayes", "perfect")
    ]
    assert losses[0] < losses[1] - 0.1


@pytest.mark.parametrize("split", ["ood-long", "ood-deep"])
def test_bayes_knows_one_length_and_one_depth(split):
    task = mf.build_task("dyck")
    with pytest.raises(mf.UserError, match="length 32 and depth 4 alone; build it for the split it plays"):
        mf.evaluate(mf.players.build("bayes", task), task, split)


def test_opening_chances_are_zero_at_the_top_and_one_at_the_bottom():
    chances, seen = opening_chances(32, 4), occupancy(32, 4)[:-1] > 0
    assert float(chances[:, 4][seen[:, 4]].max()) == 0
    assert float(chances[:, 0][seen[:, 0]].min()) == 1
    assert float(chances[:, 8][seen[:, 8]].min()) == 1


def test_players_are_known():
    assert set(mf.players.names(mf.build_task("dyck"))) >= {"perfect", "bayes", "counting", "last-bracket", "random"}
    stray = torch.tensor([[0, 2, 2, 1]])  # a closer with nothing open is no error
    assert dyck_players.closable(stray, 2)[0].tolist() == [[True, False], [False, False], [False, False], [False, True]]


@pytest.mark.parametrize(
    ("asked", "splits"),
    [
        (
            {},
            {
                "iid": (32, 4),
                "ood-long": (128, 4),
                "ood-deep": (32, 12),
                "ood-long-deep": (128, 12),
                "ood-long-deeper": (128, 16),
            },
        ),
        (
            {"length": 12, "depth": 3},
            {
                "iid": (12, 3),
                "ood-long": (48, 3),
                "ood-deep": (12, 6),
                "ood-long-deep": (48, 11),
                "ood-long-deeper": (48, 15),
            },
        ),
        (
            {"length": 4, "depth": 2},
            {"iid": (4, 2), "ood-long": (16, 2), "ood-long-deep": (16, 8), "ood-long-deeper": (16, 8)},
        ),
    ],
    ids=["paper", "short", "shortest"],
)
def test_splits_differ_in_length_and_depth_alone(asked, splits):
    task = mf.build_task("dyck", **asked)
    assert list(task.splits) == list(splits)
    for split, (length, depth) in splits.items():
        assert asdict(task.split_settings(split)) == {
            "length": length,
            "depth": depth,
            "types": 2,
            "loss": "valid-set",
        }
        batch = task.sample(split, 8, generator())
        assert batch.tokens.shape == (8, length - 1)
        assert batch.info["depth"].amax(dim=1).tolist() == [depth] * 8


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"length": 31}, "length must be even, as every bracket is closed, not 31"),
        ({"length": 0}, "length must be at least 2, not 0"),
        ({"depth": 17}, "A depth of 17 needs a length of at least 34, not 32"),
        ({"depth": 0}, "depth must be at least 1, not 0"),
        ({"types": 0}, "types must be at least 1, not 0"),
        ({"loss": "next-tokens"}, "loss must be one of valid-set, next-token"),
        ({"depth": 4.0}, "depth must be a whole number"),
        ({"lenght": 32}, "did you mean 'length'"),
    ],
    ids=lambda value: "-".join(map(str, *value.items())) if isinstance(value, dict) else "",
)
def test_wrong_settings_are_refused_in_one_sentence(wrong, sentence):
    with pytest.raises(mf.UserError, match=sentence):
        mf.build_task("dyck", **wrong)
    if "loss" not in wrong:
        with pytest.raises(mf.UserError, match=sentence):
            mf.build_task("dyck").sample(wrong, 1, generator())


def test_a_split_keeps_types_and_loss():
    task = mf.build_task("dyck")
    with pytest.raises(mf.UserError, match="must keep types"):
        task.sample({"types": 3}, 1, generator())
    with pytest.raises(mf.UserError, match="must keep the loss"):
        task.sample({"loss": "next-token"}, 1, generator())
    with pytest.raises(mf.UserError, match="loss must be one of"):
        DyckSettings(loss="cross-entropy")


@pytest.mark.parametrize("types", range(1, 8))
def test_vocabulary(types):
    task = mf.build_task("dyck", types=types)
    names = task.token_names
    assert task.vocab_size == len(set(names)) == 2 * types
    assert [a + b for a, b in zip(names[:types], names[types:])][:4] == ["()", "[]", "{}", "<>"][:types]
    assert task.action_ids == list(range(2 * types))
    assert task.model_defaults()["rank"] == max(2, types)


def test_show_draws_each_pair_at_its_height():
    task = mf.build_task("dyck", length=8, depth=3, types=1)
    moves = torch.tensor([[0.0, 0.99, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    task.sample = lambda *_: task.draw(torch.cat((moves, moves), dim=1), task.settings)
    assert task.show("iid", generator()).splitlines()[:5] == [
        "brackets   ()((()))",
        "may close  )·)))))·",
        "depth 3        ()",
        "depth 2       (  )",
        "depth 1    ()(    )",
    ]


@pytest.mark.parametrize(("split", "types"), [("iid", 2), ("ood-long-deeper", 2), ("iid", 6)])
def test_show_shows_the_whole_sequence(split, types):
    task = mf.build_task("dyck", types=types)
    shown = task.show(split, generator(9)).splitlines()
    rows = [line.removeprefix("brackets").strip() for line in shown if line.startswith("brackets")]
    word = sequence_of(task.sample(split, 1, generator(9)), 0)
    assert "".join(rows).replace(" ", "") == "".join(task.token_names[token] for token in word)
    drawn = "".join(line.partition("  ")[2] for line in shown if line.startswith("depth"))
    assert len(drawn.replace(" ", "")) == len("".join(rows).replace(" ", ""))


def test_training_at_the_paper_s_scale_is_the_paper_s():
    paper = mf.build_task("dyck").training("paper")
    assert (paper.sequences, paper.lr, paper.schedule, paper.weight_decay) == (560_000, 1e-4, "cosine", 0.01)
    assert paper.warmup_steps > 0


CHECKSUMS = {(32, 4): 1692446322, (128, 16): 3292764136}


@pytest.mark.parametrize("size", CHECKSUMS, ids=str)
def test_batches_are_pinned_whole_in_halves_and_by_threads(size):
    """A change of the sampling changes every figure ever measured: it must not happen unnoticed."""
    task, split = mf.build_task("dyck"), {"length": size[0], "depth": size[1]}
    threads = torch.get_num_threads()
    try:
        for n in (1, 2):
            torch.set_num_threads(n)
            whole = task.sample(split, 64, generator())
            assert zlib.crc32(whole.tokens.contiguous().numpy().astype("<i8").tobytes()) == CHECKSUMS[size]
    finally:
        torch.set_num_threads(threads)
    stream = generator()
    halves = [task.sample(split, 32, stream) for _ in range(2)]
    parts = [task.sample(split, 64, generator(), part=(part, 2)) for part in range(2)]
    for pair in (halves, parts):
        assert torch.equal(whole.tokens, torch.cat([half.tokens for half in pair]))
        for name, tensor in whole.info.items():
            assert torch.equal(tensor, torch.cat([half.info[name] for half in pair])), name
