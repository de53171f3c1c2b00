"""`evaluate` measures anything that answers tokens with logits: players whose score is known beforehand."""

import math
import threading
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import mapformers as mf
from helpers import any_task
from mapformers.evaluation import player_scores
from mapformers.evaluation.aggregate import summarise
from mapformers.seeding import generator


def one_hot(answers, vocab_size):
    return nn.functional.one_hot(answers, vocab_size).float()


def perfect_player(task, grid):
    """Path integration with a dict: it sees tokens only, and answers "empty" where it has not been."""

    def play(tokens):
        answers = torch.full_like(tokens, task.empty_id)
        for row, sequence in enumerate(tokens.tolist()):
            here, seen = [0] * task.settings.dims, {}
            for place, token in enumerate(sequence):
                if token in task.action_ids:
                    axis, backwards = divmod(token, 2)
                    here[axis] = (here[axis] + (-1 if backwards else 1)) % grid
                    answers[row, place] = seen.get(tuple(here), task.empty_id)
                else:
                    seen[tuple(here)] = token
        return one_hot(answers, task.vocab_size)

    return play


def constant_player(task, token):
    return lambda tokens: one_hot(torch.full_like(tokens, token), task.vocab_size)


@pytest.mark.parametrize("dims", [1, 2, 3, 4, 5])
def test_a_perfect_player_scores_one_on_every_split(dims):
    task = mf.build_task("navigation", dims=dims)
    for split in task.splits:
        player = perfect_player(task, task.split_settings(split).grid)
        scores = mf.evaluate(player, task, split, n_sequences=24)
        assert scores == {"accuracy": 1.0, "accuracy_objects": 1.0, "accuracy_all_revisits": 1.0}, split
        assert 0 < scores["accuracy"].count < scores["accuracy_all_revisits"].count


def test_a_perfect_player_on_the_wrong_torus_does_not_score_one():
    task = mf.build_task("navigation", dims=1, grid=5, steps=40, edges="torus")
    assert mf.evaluate(perfect_player(task, grid=6), task, n_sequences=16)["accuracy"] < 0.9


def test_a_constant_player_scores_the_share_of_its_answer():
    task = mf.build_task("navigation", dims=2, steps=32, grid=4, n_objects=3)
    batch = task.sample("iid", 40, generator(5, "evaluate"))
    scored = Counter(batch.targets[batch.score_mask].tolist())
    revisited = Counter(batch.targets[batch.info["revisit"]].tolist())
    for token in range(task.empty_id, task.vocab_size):
        scores = mf.evaluate(constant_player(task, token), task, n_sequences=40, seed=5)
        assert scores["accuracy"] == scored[token] / scored.total()
        assert scores["accuracy"].count == scored.total()
        assert scores["accuracy_all_revisits"] == pytest.approx(revisited[token] / revisited.total(), rel=1e-12)
        assert scores["accuracy_all_revisits"].count == revisited.total()


def test_the_only_object_there_is_scores_one_and_empty_scores_zero():
    task = mf.build_task("navigation", n_objects=1)
    assert mf.evaluate(constant_player(task, task.empty_id + 1), task, n_sequences=8)["accuracy"] == 1
    assert mf.evaluate(constant_player(task, task.empty_id), task, n_sequences=8)["accuracy"] == 0


def test_nothing_to_score_is_nan_with_count_zero():
    task = mf.build_task("navigation", steps=8, p_empty=1.0)
    scores = mf.evaluate(constant_player(task, task.empty_id), task, n_sequences=8)
    assert math.isnan(scores["accuracy"]) and scores["accuracy"].count == 0
    assert scores["accuracy_all_revisits"] == 1


class Player(nn.Module):
    """A module that notes in which mode it was called and whether gradients were on."""

    def __init__(self, vocab_size):
        super().__init__()
        self.head = nn.Embedding(vocab_size, vocab_size)
        self.calls = []

    def forward(self, tokens):
        self.calls.append((self.training, torch.is_grad_enabled()))
        return SimpleNamespace(logits=self.head(tokens), hidden=None)


@pytest.fixture
def task():
    return mf.build_task("navigation", steps=16, grid=4)


def test_an_object_with_logits_is_understood(task):
    player = Player(task.vocab_size)
    assert mf.evaluate(player, task, n_sequences=8) == mf.evaluate(lambda t: player(t).logits, task, n_sequences=8)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_the_mode_of_a_module_is_restored(task, training):
    player = Player(task.vocab_size).train(training)
    mf.evaluate(player, task, n_sequences=4)
    assert player.training is training
    assert set(player.calls) == {(False, False)}


def test_the_mode_is_restored_after_an_error_too(task):
    player = Player(task.vocab_size + 1).train()
    player.head = nn.Embedding(task.vocab_size, 3)
    with pytest.raises(mf.UserError):
        mf.evaluate(player, task, n_sequences=4)
    assert player.training


class Waiting(Player):
    """Every call waits until its turn: the calls in flight are in the hands of the test."""

    def __init__(self, vocab_size):
        super().__init__(vocab_size)
        self.entered, self.turns = threading.Semaphore(0), [threading.Event(), threading.Event()]

    def forward(self, tokens):
        turn = self.turns[len(self.calls)]
        answer = super().forward(tokens)
        self.entered.release()
        assert turn.wait(timeout=60)
        return answer


def test_two_threads_leave_the_mode_as_it_was(task):
    """The second comes while the first is at work, finds eval mode, and leaves after it."""
    player, threads = Waiting(task.vocab_size).train(), []
    player.head.eval()  # a part that was frozen stays so
    for _ in range(2):
        threads.append(threading.Thread(target=mf.evaluate, args=(player, task), kwargs={"n_sequences": 4}))
        threads[-1].start()
        assert player.entered.acquire(timeout=60)
    for turn, thread in zip(player.turns, threads):
        turn.set()
        thread.join()
    assert player.training and not player.head.training
    assert player.calls == [(False, False)] * 2


def test_looking_inside_restores_the_mode_of_every_part():
    model = mf.build_model("rope", vocab_size=5, d_model=8).train()
    model.head.eval()
    model.observe(torch.zeros(1, 3, dtype=torch.long))
    assert model.training and not model.head.training


def test_result_does_not_depend_on_batch_size(task):
    torch.manual_seed(0)
    model = mf.build_model("mapwm", vocab_size=task.vocab_size, d_model=16)
    torch.nn.init.normal_(model.head.weight)
    results = [mf.evaluate(model, task, n_sequences=50, batch_size=size) for size in (None, 50, 1, 7, 64)]
    for result in results[1:]:
        assert {k: v.count for k, v in result.items()} == {k: v.count for k, v in results[0].items()}
        assert result == pytest.approx(results[0], rel=1e-12)
    assert 0 < results[0]["accuracy_all_revisits"] < 1


def test_sequences_depend_on_the_seed_alone(task):
    player = constant_player(task, task.empty_id + 1)
    first, again, other = (mf.evaluate(player, task, n_sequences=20, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_figures_are_floats_with_a_count(task):
    for metric in mf.evaluate(constant_player(task, 5), task, n_sequences=4).values():
        assert isinstance(metric, float)
        assert isinstance(metric.count, int) and metric.count > 0


def test_metrics_join_as_if_measured_at_once():
    parts = [mf.Metric(0.5, 4), mf.Metric(float("nan"), 0), mf.Metric(1.0, 12)]
    joined = mf.Metric.join(parts)
    assert (joined, joined.count) == (0.875, 16)
    assert math.isnan(mf.Metric.join(parts[1:2]))


def test_a_split_may_be_a_dict(task):
    scores = mf.evaluate(constant_player(task, task.empty_id), task, {"p_empty": 0.0}, n_sequences=4)
    assert scores["accuracy_all_revisits"] == 0


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (lambda tokens: torch.zeros(*tokens.shape, 3), r"\(2, 31, 3\)"),
        (lambda tokens: torch.zeros(1, tokens.shape[1], 21), r"\(1, 31, 21\)"),
        (lambda tokens: torch.zeros(tokens.shape[0], tokens.shape[1] - 1, 21), r"\(2, 30, 21\)"),
        (lambda tokens: torch.zeros(21), r"\(21,\)"),
        (lambda tokens: tokens.tolist(), "list"),
        (lambda tokens: None, "NoneType"),
    ],
    ids=["vocabulary", "batch", "length", "flat", "list", "nothing"],
)
def test_wrong_shapes_are_refused_in_one_sentence(task, answer, found):
    with pytest.raises(mf.UserError, match=rf"tokens \(2, 31\) with logits \(2, 31, 21\), not {found}"):
        mf.evaluate(answer, task, n_sequences=2)


def test_unknown_split_is_refused_with_the_nearest_name(task):
    with pytest.raises(
        mf.UserError, match="no split of task 'navigation' named 'ood-spares'; did you mean 'ood-sparse'"
    ):
        mf.evaluate(constant_player(task, 0), task, "ood-spares")


def test_n_sequences_below_one_is_refused(task):
    with pytest.raises(mf.UserError, match="n_sequences must be at least 1, not 0"):
        mf.evaluate(constant_player(task, 0), task, n_sequences=0)


@pytest.mark.parametrize("split", [3, None, ["iid"]], ids=["number", "nothing", "list"])
def test_a_split_of_another_kind_is_refused_in_one_sentence(task, split):
    with pytest.raises(mf.UserError, match="A split is a name or a dict of settings, not "):
        mf.evaluate(constant_player(task, 0), task, split)


def test_parts_of_a_sequence_are_refused_in_one_sentence(task):
    for wrong in ({"n_sequences": 1.5}, {"batch_size": 2.5}, {"n_sequences": "8"}):
        with pytest.raises(mf.UserError, match="must be a whole number, not "):
            mf.evaluate(constant_player(task, 0), task, **wrong)
    with pytest.raises(mf.UserError, match="Of 2 parts there are 0 to 1, but no part 2"):
        task.sample("iid", 4, generator(0, "x"), part=(2, 2))


@pytest.mark.parametrize("name", [name for name in mf.list_tasks() if "perfect" in mf.players.names(any_task(name))])
def test_nan_scores_nothing_and_keeps_its_count(name):
    """One NaN in one batch: to argmax it is the largest, so such a model would score like one that works."""
    task = mf.build_task(name)
    perfect = mf.players.build("perfect", task)
    sound = mf.evaluate(perfect, task, n_sequences=6, batch_size=2)
    parts = [task.sample("iid", 6, generator(0, "evaluate"), part=(i, 3)) for i in range(3)]
    batches, spoilt = iter(parts), parts[1]

    def model(tokens):
        batch = next(batches)
        assert torch.equal(tokens, batch.tokens)
        answers = perfect.answer(batch)
        if batch is spoilt:
            answers[0, -1, 0] = math.nan
        return answers

    scores = mf.evaluate(model, task, n_sequences=6, batch_size=2)
    assert scores.keys() == sound.keys()
    for metric, value in scores.items():
        assert math.isnan(value) and value.count == sound[metric].count > 0


def test_batches_shrink_with_the_vocabulary_and_stay_as_they_are_up_to_64():
    sizes = {}
    for n_objects in (16, 59, 1019, 10_000):
        task, seen = mf.build_task("navigation", steps=32, n_objects=n_objects), []

        def player(tokens, task=task, seen=seen):
            seen.append(len(tokens))
            return torch.zeros(*tokens.shape, task.vocab_size)

        mf.evaluate(player, task, n_sequences=512)
        sizes[task.vocab_size] = seen[0]
    assert sizes == {21: 16_384 // 63, 64: 16_384 // 63, 1024: 1024 // 63, 10_005: 1}


def test_players_are_measured_with_every_result():
    players_of = {name: any_task(name).reference_players for name in mf.list_tasks()}
    assert players_of["family-tree"] == ("logician",) and players_of["dyck"] == ("counting",)
    assert mf.build_task("family-tree", trees="fixed").reference_players == ("locator",)
    assert mf.build_task("dyck", loss="next-token").reference_players == ("counting", "bayes")
    assert mf.build_task("graph", start="random").reference_players == ("perfect", "best-lag")
    for name, players in players_of.items():
        task = any_task(name)
        found = player_scores(task, ["iid"], n_sequences=3, seed=5)
        assert tuple(found) == players
        for player, splits in found.items():
            scores = mf.evaluate(mf.players.build(player, task), task, n_sequences=3, seed=5)
            assert splits == {"iid": {key: {"value": metric, "count": metric.count} for key, metric in scores.items()}}


def test_what_a_player_scores_is_null_where_nothing_is_scored():
    task = mf.build_task("navigation", steps=4, p_empty=1.0)
    assert player_scores(task, ["iid"], n_sequences=4)["best-lag"]["iid"]["accuracy"] == {"value": None, "count": 0}


def test_summary_over_seeds():
    summary = summarise([0.25, 0.75, 0.5])
    assert (summary.mean, summary.std, summary.low, summary.high, summary.n) == (0.5, 0.25, 0.25, 0.75, 3)
    assert summarise([0.5]).std == 0
