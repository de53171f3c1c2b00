"""The players of `dyck`: what each scores by arithmetic, and `bayes` against a sum over all nestings."""

import math

import pytest
import torch
from brackets import generator, nestings
from hypothesis import given, settings
from hypothesis import strategies as st

import mapformers as mf
from helpers import examples
from mapformers.players import dyck as dyck_players
from mapformers.tasks.dyck import continuation_f1
from mapformers.tasks.dyck_sampler import occupancy


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


def inside_fraction(length, depth):
    """The expected fraction of positions at which a bracket is open."""
    return 1 - float(occupancy(length, depth)[1:-1, [0, -1]].sum(dim=1).mean())


@pytest.mark.parametrize(("length", "depth"), [(32, 4), (12, 2)])
def test_random_answers_score_what_arithmetic_says(length, depth):
    """One certain answer out of four tokens.

    Inside a bracket three tokens are valid, and one of three found gives an F1 of 1/2. At depth 0 two are valid, and
    one of two found gives 2/3.
    """
    task = mf.build_task("dyck", length=length, depth=depth)
    scores = mf.evaluate(mf.players.build("random", task), task, n_sequences=2000)
    inside = inside_fraction(length, depth)
    assert scores["precision"] == pytest.approx(inside * 3 / 4 + (1 - inside) / 2, abs=0.01)
    assert scores["recall"] == pytest.approx(inside * 3 / 4 / 3 + (1 - inside) / 2 / 2, abs=0.01)
    assert scores["f1"] == pytest.approx(inside * 3 / 4 / 2 + (1 - inside) / 2 * 2 / 3, abs=0.01)


def test_the_commonest_answer_is_a_closer_and_scores_what_arithmetic_says():
    """The first bracket is never a target, so closers are more common; one closer fits half of the open brackets."""
    task = mf.build_task("dyck")
    player = mf.players.build("commonest", task)
    assert player.token in (2, 3)
    scores = mf.evaluate(player, task, n_sequences=2000)
    assert scores["precision"] == pytest.approx(inside_fraction(32, 4) / 2, abs=0.01)
    assert scores["f1"] == pytest.approx(inside_fraction(32, 4) / 2 / 2, abs=0.01)


def test_openers_alone_are_never_wrong_and_find_two_of_three():
    task = mf.build_task("dyck")
    openers = torch.tensor([50.0, 50.0, -50.0, -50.0])
    scores = mf.evaluate(lambda tokens: openers.expand(*tokens.shape, 4), task, n_sequences=1000)
    inside = inside_fraction(32, 4)
    assert scores["precision"] == pytest.approx(1, abs=1e-12)
    assert scores["f1"] == pytest.approx(inside * 0.8 + (1 - inside), abs=0.005)


@pytest.mark.parametrize("split", ["iid", "ood-long-deeper"])
def test_without_a_stack_f1_is_high_and_closers_are_guessed(split):
    """The last bracket tells all after an opener and at depth 0; elsewhere it finds two of three tokens: F1 = 4/5."""
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


@settings(max_examples=examples(40))
@given(half=st.integers(1, 6), seed=st.integers(0, 1000), types=st.integers(1, 3), data=st.data())
def test_bayes_gives_the_share_of_all_nestings_that_go_on_so(half, seed, types, data):
    length, depth = 2 * half, data.draw(st.integers(1, half))
    task = mf.build_task("dyck", length=length, depth=depth, types=types, loss="next-token")
    batch = task.sample("iid", 2, generator(seed))
    chances = mf.players.build("bayes", task)(batch.tokens).exp()
    for row in range(2):
        depths = batch.info["depth"][row].tolist()
        for time in range(length - 1):
            same_beginning = [walk for walk in nestings(length, depth) if list(walk[: time + 1]) == depths[: time + 1]]
            opening = sum(walk[time + 1] > walk[time] for walk in same_beginning) / len(same_beginning)
            expected = [opening / types] * types + [0.0] * types
            if depths[time]:
                expected[types + int(batch.info["top"][row, time])] = 1 - opening
            assert chances[row, time].tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("length", "depth", "types"), [(4, 2, 2), (8, 2, 2), (8, 4, 1), (10, 3, 3), (12, 4, 2)])
def test_best_f1_is_the_mean_over_all_nestings(length, depth, types):
    """The player `bayes` misses the tokens that can no longer come; counted over every nesting."""
    task = mf.build_task("dyck", length=length, depth=depth, types=types, loss="next-token")
    total = 0.0
    for walk in nestings(length, depth):
        for time in range(length - 1):
            same_beginning = [other for other in nestings(length, depth) if other[: time + 1] == walk[: time + 1]]
            openers = types * any(other[time + 1] > other[time] for other in same_beginning)
            closers = any(other[time + 1] < other[time] for other in same_beginning)
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


def test_players_are_known():
    assert set(mf.players.names(mf.build_task("dyck"))) >= {"perfect", "bayes", "counting", "last-bracket", "random"}
    stray = torch.tensor([[0, 2, 2, 1]])  # a closer with nothing open is no error
    assert dyck_players.closable(stray, 2)[0].tolist() == [[True, False], [False, False], [False, False], [False, True]]
