"""Players score what arithmetic says they must: the perfect one exactly 1, the others what chance and geometry give.

Expectations are derived in the docstrings. How far a figure may lie from its expectation is taken from the scatter
between sequences, which are independent, and not between targets, which are not (a cell may be visited ten times).
"""

import math

import pytest
import torch

import mapformers as mf
from mapformers.players import selective_copy as _registers  # noqa: F401
from mapformers.seeding import generator

SEQUENCES = 256
TASKS = ["navigation", "selective-copy"]
SPLITS = [(name, split) for name in TASKS for split in mf.build_task(name).splits]
each_split = pytest.mark.parametrize(("name", "split"), SPLITS, ids=[f"{name}-{split}" for name, split in SPLITS])


def measured(player, task, split, n_sequences=SEQUENCES, metric="accuracy"):
    return mf.evaluate(player, task, split, n_sequences=n_sequences, seed=7)[metric]


def answers_and_batch(player, task, split, n_sequences=SEQUENCES):
    """The player's logits for the sequences that `evaluate` draws, all in one batch."""
    batch = task.sample(split, n_sequences, generator(7, "evaluate"))
    return player.answer(batch).argmax(dim=-1), batch


def assert_scores(player, task, split, expected, n_sequences=SEQUENCES):
    """The fraction of right answers is within four standard errors of ``expected`` (a number, or one per sequence)."""
    answers, batch = answers_and_batch(player, task, split, n_sequences)
    counted = batch.score_mask.sum(dim=1).double()
    right = ((answers == batch.targets) & batch.score_mask).sum(dim=1).double()
    expected = torch.as_tensor(expected, dtype=torch.float64).expand_as(counted)
    error = (right - expected * counted).square().sum().sqrt() / counted.sum()
    score, mean = right.sum() / counted.sum(), (expected * counted).sum() / counted.sum()
    assert abs(score - mean) < 4 * error, f"{score:.4f} where {mean:.4f} ± {error:.4f} is expected"
    assert error < 0.01, "too few sequences to tell"


@each_split
def test_perfect_is_exactly_one_on_every_split(name, split):
    task = mf.build_task(name)
    scores = mf.evaluate(mf.players.build("perfect", task, split), task, split, n_sequences=48, seed=7)
    assert set(scores.values()) == {1.0}
    assert min(metric.count for metric in scores.values()) >= 48


@pytest.mark.parametrize("dims", [1, 3, 4, 5])
def test_perfect_is_exactly_one_in_other_dimensions(dims):
    task = mf.build_task("navigation", dims=dims)
    for split in task.splits:
        scores = mf.evaluate(mf.players.build("perfect", task, split), task, split, n_sequences=24, seed=7)
        assert set(scores.values()) == {1.0}, split


def test_perfect_needs_the_rules_of_its_own_split():
    task = mf.build_task("navigation", dims=1, grid=5, steps=40, edges="torus")
    assert measured(mf.players.build("perfect", task, {"grid": 6}), task, "iid") < 0.9


@each_split
def test_perfect_sees_no_later_token(name, split):
    """If every token from some position on changes, the answers before it stay the same."""
    task = mf.build_task(name)
    player = mf.players.build("perfect", task, split)
    tokens = task.sample(split, 4, generator(7, "evaluate")).tokens
    at = 3 * tokens.shape[1] // 4
    changed = tokens.clone()
    changed[:, at:] = (tokens[:, at:] + 2) % task.vocab_size if name == "selective-copy" else tokens[:, at:].flip(0)
    assert torch.equal(player(tokens)[:, :at], player(changed)[:, :at])
    assert torch.equal(player(tokens)[:, :at], player(tokens[:, :at]))


@each_split
def test_random_is_right_once_in_the_size_of_the_vocabulary(name, split):
    task = mf.build_task(name)
    assert_scores(mf.players.build("random", task, split), task, split, 1 / task.vocab_size)


def test_random_is_right_by_chance_in_small_and_large_vocabularies():
    """With one object and one dimension there are 4 tokens: a quarter of the answers is right."""
    for settings in ({"dims": 1, "n_objects": 1}, {"dims": 5, "n_objects": 3}):
        task = mf.build_task("navigation", steps=64, grid=3, **{"p_empty": 0.0, **settings})
        assert_scores(mf.players.build("random", task), task, "iid", 1 / task.vocab_size)


@each_split
def test_commonest_is_right_once_in_the_number_of_kinds(name, split):
    """Objects and symbols are uniformly random, and independent of the sequences that `commonest` was taken from.

    Scored revisits are to cells that are not empty, so "empty" is never the commonest answer.
    """
    task = mf.build_task(name)
    player = mf.players.build("commonest", task, split)
    assert task.token_names[player.token] in "ABCDEFGHIJKLMNOP"
    assert_scores(player, task, split, 1 / 16)


def test_the_only_kind_there_is_is_the_commonest():
    for task in (mf.build_task("navigation", n_objects=1), mf.build_task("selective-copy", n_kinds=1)):
        assert measured(mf.players.build("commonest", task), task, "iid", 16) == 1


@pytest.mark.parametrize("split", mf.build_task("navigation").splits)
def test_last_value_in_navigation_is_right_by_chance_alone(split):
    """One step ago was another cell (every step moves), and it holds the same object with probability (1 − p)/16."""
    task = mf.build_task("navigation")
    p_empty = task.split_settings(split).p_empty
    assert_scores(mf.players.build("last-value", task, split), task, split, (1 - p_empty) / 16)


@pytest.mark.parametrize("split", mf.build_task("selective-copy").splits)
def test_last_value_in_selective_copy_repeats_its_last_answer(split):
    """The first answer is the separator, which is never right; any other is the symbol before, right with 1/16."""
    task = mf.build_task("selective-copy")
    assert_scores(mf.players.build("last-value", task, split), task, split, 127 / 128 / 16)


def test_last_value_is_the_last_that_is_no_action():
    """Against plain Python, lag by lag; the answer is 0 if there is no observation yet."""
    for task in (mf.build_task("navigation", steps=12), mf.build_task("selective-copy", n_symbols=4, n_blanks=4)):
        player = mf.players.build("last-value", task)
        tokens = task.sample("iid", 8, generator(7, "evaluate")).tokens
        for player.lag in (1, 2, 5):
            answers = player(tokens).argmax(dim=-1).tolist()
            for row, said in zip(tokens.tolist(), answers):
                seen: list[int] = []
                for token, answer in zip(row, said):
                    seen += [token] * (token not in task.action_ids)
                    assert answer == (seen[-player.lag] if len(seen) >= player.lag else 0)


def test_best_lag_in_navigation_is_the_turn_back():
    """After a turn back, two observations ago is the same cell and so right; any other cell is right by chance.

    One observation ago never is the same cell, and from three on the walk must have gone farther to be back. With p the
    share of empty cells and s of scored revisits after a turn back: s + (1 − s)(1 − p)/16.
    """
    task = mf.build_task("navigation")
    player = mf.players.build("best-lag", task)
    assert player.lag == 2
    for split in task.splits:
        answers, batch = answers_and_batch(player, task, split)
        positions, scored = batch.info["positions"], batch.score_mask[:, 0::2]
        back = torch.zeros_like(scored)
        back[:, 2:] = (positions[:, 2:] == positions[:, :-2]).all(dim=-1)
        right = (answers == batch.targets)[:, 0::2]
        assert bool(right[back & scored].all())
        share = (back & scored).sum(dim=1) / scored.sum(dim=1).clamp(min=1)
        p_empty = task.split_settings(split).p_empty
        assert_scores(player, task, split, share + (1 - share) * (1 - p_empty) / 16)


MEETINGS = [("graph", split) for split in mf.build_task("graph").splits]
MEETINGS += [("family-tree", split) for split in mf.build_task("family-tree").splits]
each_meeting = pytest.mark.parametrize(("name", "split"), MEETINGS, ids=[f"{name}-{split}" for name, split in MEETINGS])


def chance_in(task, split):
    """The probability that two places have the same content: one of 16 objects unless empty, or one of ten names."""
    settings = task.split_settings(split)
    return (1 - settings.p_empty) / 16 if task.name == "graph" else 1 / 10


@each_meeting
def test_perfect_and_random_and_commonest_on_graphs_and_in_families(name, split):
    """Contents and names are uniformly random, so any one answer is right as often as it occurs."""
    task = mf.build_task(name)
    assert measured(mf.players.build("perfect", task, split), task, split, 64) == 1
    assert_scores(mf.players.build("random", task, split), task, split, 1 / task.vocab_size)
    commonest = mf.players.build("commonest", task, split)
    assert commonest.token not in task.action_ids and commonest.token != task.empty_id
    assert_scores(commonest, task, split, 1 / 16 if name == "graph" else 1 / 10, n_sequences=512)


@each_meeting
def test_last_value_on_graphs_and_in_families_is_right_by_chance_alone(name, split):
    """No line of the subway leads from a station to itself, and nobody is their own relative."""
    task = mf.build_task(name)
    if name == "graph":
        assert all(tail != head for tail, _, head in task.world.edges)
    assert_scores(mf.players.build("last-value", task, split), task, split, chance_in(task, split), n_sequences=512)


@each_meeting
def test_best_lag_on_graphs_and_in_families_is_the_way_back(name, split):
    """If the last step undid the one before, two steps ago was the same node or person; otherwise it is chance."""
    task = mf.build_task(name)
    player = mf.players.build("best-lag", task, split)
    assert player.lag == 2
    answers, batch = answers_and_batch(player, task, split, 512)
    where, scored = batch.info["nodes" if name == "graph" else "person"], batch.score_mask[:, 0::2]
    back = torch.zeros_like(scored)
    back[:, 2:] = where[:, 2:] == where[:, :-2]
    assert bool((answers == batch.targets)[:, 0::2][back & scored].all())
    share = (back & scored).sum(dim=1) / scored.sum(dim=1).clamp(min=1)
    assert_scores(player, task, split, share + (1 - share) * chance_in(task, split), n_sequences=512)


def test_where_all_tokens_act_they_are_all_that_can_be_seen():
    """Brackets: the last value is the last bracket."""
    task = mf.build_task("dyck")
    tokens = task.sample("iid", 8, generator(7, "evaluate")).tokens
    last = mf.players.build("last-value", task)
    assert torch.equal(last(tokens).argmax(dim=-1), tokens)
    lag = mf.players.build("best-lag", task).lag
    before = tokens[:, : tokens.shape[1] - lag + 1]
    assert torch.equal(mf.players.build("best-lag", task)(tokens).argmax(dim=-1)[:, lag - 1 :], before)


def best_lag_in_copy(n_symbols, n_blanks, n_kinds):
    """The best fixed offset: n_symbols + n_blanks + 1 − b tokens back, for any b from 0 to n_blanks.

    Answer i then repeats position i + b, which has symbol i if b blanks come before it. Every one of the n_blanks + 1
    gaps between blanks holds as many symbols on average, so this is true for one symbol in n_blanks + 1. Otherwise
    there may be a symbol that is right by chance.
    """
    source = 1 / (n_blanks + 1)
    return source + (n_symbols / (n_symbols + n_blanks) - source) / n_kinds


def test_best_lag_copies_perfectly_where_there_are_no_blanks():
    task = mf.build_task("selective-copy", n_symbols=9, n_blanks=0)
    player = mf.players.build("best-lag", task)
    assert player.lag == 10
    assert mf.evaluate(player, task, n_sequences=32) == {"accuracy": 1.0, "exact_match": 1.0}
    assert best_lag_in_copy(9, 0, 16) == 1


@pytest.mark.parametrize(("n_symbols", "n_blanks", "n_kinds"), [(9, 1, 16), (6, 3, 4), (12, 7, 16)])
def test_best_lag_finds_one_symbol_in_as_many_as_there_are_gaps(n_symbols, n_blanks, n_kinds):
    """The heuristic that the paper names in B.2: a fixed offset. With OOD numbers of blanks it fails."""
    task = mf.build_task("selective-copy", n_symbols=n_symbols, n_blanks=n_blanks, n_kinds=n_kinds)
    player = mf.players.build("best-lag", task)
    assert n_symbols + 1 <= player.lag <= n_symbols + n_blanks + 1
    assert_scores(player, task, "iid", best_lag_in_copy(n_symbols, n_blanks, n_kinds), n_sequences=4096)


def test_best_lag_is_no_better_than_chance_at_the_papers_size():
    """Of 129 gaps: a lag into the prompt is right with 1/129 + (1/2 − 1/129)/16 < 1/16, its own answers with 1/16.

    With lag ℓ the first ℓ − 1 answers repeat a token of the prompt, which is a symbol with probability
    n/(n + blanks), and the ℓ-th answer repeats the separator.
    """
    task = mf.build_task("selective-copy")
    assert best_lag_in_copy(128, 128, 16) < 1 / 16
    player = mf.players.build("best-lag", task)
    for split in task.splits:  # whatever it repeats, even nothing at all, is right by chance alone
        score = mf.evaluate(player, task, split, n_sequences=128)["accuracy"]
        assert score < 1 / 16 + 4 * (1 / 16 / score.count) ** 0.5


def test_names_are_those_of_the_task_and_those_everywhere():
    everywhere = {"commonest", "last-value", "best-lag", "random"}
    for name in TASKS:
        assert set(mf.players.names(mf.build_task(name))) >= {"perfect", *everywhere}


def test_a_player_says_whether_it_keeps_a_map():
    everywhere = {"commonest", "last-value", "best-lag", "random"}
    assert set(mf.players.without_map("navigation")) == everywhere
    assert set(mf.players.without_map("dyck")) == {"last-bracket", "counting", *everywhere}
    assert set(mf.players.without_map("family-tree")) == everywhere


def test_an_unknown_player_is_refused_with_the_nearest_name():
    with pytest.raises(mf.UserError, match="no player of task 'navigation' named 'perfekt'; did you mean 'perfect'"):
        mf.players.build("perfekt", mf.build_task("navigation"))


@pytest.mark.parametrize("player", ["perfect", "commonest", "last-value", "best-lag", "random"])
@pytest.mark.parametrize("name", TASKS)
def test_players_are_certain_and_repeatable(name, player):
    """One answer has all the probability. A second call, or a new player, gives the same."""
    small = {"steps": 16, "grid": 4} if name == "navigation" else {"n_symbols": 8, "n_blanks": 8}
    task = mf.build_task(name, **small)
    tokens = task.sample("iid", 4, generator(7, "evaluate")).tokens
    first, second = mf.players.build(player, task), mf.players.build(player, task)
    logits = first(tokens)
    assert logits.shape == (*tokens.shape, task.vocab_size)
    assert math.isclose(float(logits.softmax(dim=-1).amax(dim=-1).min()), 1.0)
    assert torch.equal(logits, first(tokens)) and torch.equal(logits, second(tokens))


@pytest.mark.parametrize(
    "settings",
    [{"steps": 384}, {"steps": 16, "n_objects": 10_000}, {"dims": 3}, {"dims": 5}, {"steps": 32}],
    ids=["recall by length", "recall by vocabulary", "3D", "5D", "SSM"],
)
def test_the_other_navigations_of_the_paper_can_be_solved(settings):
    """Recall scaling (C.3), 3D and 5D (D.1), and the setting of the state-space models (A.6)."""
    task = mf.build_task("navigation", **settings)
    for split in task.splits:
        scores = mf.evaluate(mf.players.build("perfect", task, split), task, split, n_sequences=16)
        assert scores["accuracy"] == 1.0 and scores["accuracy"].count > 0
