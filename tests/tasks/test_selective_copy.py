"""`selective-copy` against a copyist in plain Python, its sets of positions counted, and free runs."""

import itertools
import math
import zlib
from collections import Counter
from dataclasses import asdict, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mapformers as mf
from helpers import examples
from mapformers.model import Decoder, model_config, suggested_settings
from mapformers.players import selective_copy as _players  # noqa: F401 (registers)
from mapformers.tasks.selective_copy import BLANK, SEPARATOR, free_run


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def sequence_of(batch, row):
    return [*batch.tokens[row].tolist(), int(batch.targets[row, -1])]


def one_hot(answers, vocab_size):
    return torch.nn.functional.one_hot(answers, vocab_size).float()


worlds = st.fixed_dictionaries(
    {"n_symbols": st.integers(1, 12), "n_blanks": st.integers(0, 12), "n_kinds": st.integers(1, 30)}
)


@settings(max_examples=examples(700))
@given(world=worlds, seed=st.integers(0, 2**31))
def test_batch_agrees_with_a_replay_from_tokens_alone(world, seed):
    task = mf.build_task("selective-copy", **world)
    batch = task.sample("iid", 3, generator(seed))
    n, places = world["n_symbols"], world["n_symbols"] + world["n_blanks"]
    assert batch.tokens.shape == (3, places + n)
    for row in range(3):
        sequence = sequence_of(batch, row)
        assert sequence.count(task.separator_id) == 1
        asked = sequence.index(task.separator_id)
        read, said = sequence[:asked], sequence[asked + 1 :]
        kept = [(place, token) for place, token in enumerate(read) if token != task.blank_id]
        assert said == [token for _, token in kept] and len(said) == n and len(read) == places
        assert all(0 <= token < world["n_kinds"] for token in said)
        answered = [False] * asked + [True] * n  # the separator's target is the first answer
        assert batch.targets[row].tolist() == sequence[1:]
        assert batch.loss_mask[row].tolist() == batch.score_mask[row].tolist() == answered
        assert batch.info["symbol_positions"][row].tolist() == [place for place, _ in kept]
        source = batch.info["source"][row].tolist()
        assert source == [-1] * asked + [place for place, _ in kept]
        assert all(sequence[at] == target for at, target in zip(source, sequence[1:]) if at >= 0)


def copies(task, batch):
    """The logits of a model that is always right; tests then change some of them."""
    return torch.where(batch.score_mask, batch.targets, task.blank_id)


@settings(max_examples=examples(300))
@given(world=worlds, seed=st.integers(0, 2**31), spoilt=st.integers(0, 5))
def test_metrics_agree_with_counting(world, seed, spoilt):
    """Random answers with a few mistakes: single answers and whole copies, counted one by one."""
    task = mf.build_task("selective-copy", **world)
    batch, n = task.sample("iid", 4, generator(seed)), world["n_symbols"]
    answers, g = copies(task, batch), generator(seed + 1)
    for _ in range(spoilt):
        row, place = int(torch.randint(4, (), generator=g)), int(torch.randint(answers.shape[1], (), generator=g))
        answers[row, place] = torch.randint(task.vocab_size, (), generator=g)
    scores = task.score(one_hot(answers, task.vocab_size), batch)
    pairs = [zip(answers[row, -n:].tolist(), sequence_of(batch, row)[-n:]) for row in range(4)]
    right = [[said == meant for said, meant in row] for row in pairs]
    assert scores["accuracy"] == pytest.approx(sum(map(sum, right)) / (4 * n), rel=1e-12)
    assert scores["exact_match"] == sum(map(all, right)) / 4
    assert (scores["accuracy"].count, scores["exact_match"].count) == (4 * n, 4)


def test_every_set_of_places_comes_from_equally_many_orders():
    """Over all 6! orders of six numbers, each of the 20 sets of three positions is taken exactly 36 times."""
    task = mf.build_task("selective-copy", n_symbols=3, n_blanks=3)
    orders = torch.tensor(list(itertools.permutations(range(6))), dtype=torch.float64) / 6
    batch = task.draw(torch.cat((orders, torch.zeros(720, 3, dtype=torch.float64)), dim=1), task.settings)
    sets = Counter(map(tuple, batch.info["symbol_positions"].tolist()))
    assert sets == dict.fromkeys(itertools.combinations(range(6), 3), 36)


def assert_uniform(counts, cases):
    """Pearson's chi-square is at most four standard deviations above its mean."""
    assert set(counts) <= set(cases)
    expected = sum(counts.values()) / len(cases)
    statistic = sum((counts[case] - expected) ** 2 / expected for case in cases)
    freedom = len(cases) - 1
    assert expected >= 20, "too few cases to tell"
    assert statistic < freedom + 4 * math.sqrt(2 * freedom), f"chi-square {statistic:.1f} at {freedom} degrees"


@pytest.mark.parametrize(("n_symbols", "n_blanks"), [(1, 4), (2, 3), (4, 4), (5, 1)])
def test_sets_of_places_are_uniform(n_symbols, n_blanks):
    task = mf.build_task("selective-copy", n_symbols=n_symbols, n_blanks=n_blanks)
    positions = task.sample("iid", 20_000, generator()).info["symbol_positions"]
    cases = list(itertools.combinations(range(n_symbols + n_blanks), n_symbols))
    assert_uniform(Counter(map(tuple, positions.tolist())), cases)


def test_symbols_are_uniform_and_independent_of_each_other_and_of_their_places():
    task = mf.build_task("selective-copy", n_symbols=2, n_blanks=1, n_kinds=5)
    batch = task.sample("iid", 20_000, generator())
    seen = Counter(zip(map(tuple, batch.info["symbol_positions"].tolist()), map(tuple, batch.targets[:, -2:].tolist())))
    kinds = list(itertools.product(range(5), repeat=2))
    assert_uniform(seen, list(itertools.product(itertools.combinations(range(3), 2), kinds)))


def test_equal_numbers_still_give_whole_sequences():
    task = mf.build_task("selective-copy", n_symbols=4, n_blanks=5)
    batch = task.draw(torch.full((2, 13), 0.5, dtype=torch.float64), task.settings)
    assert batch.info["symbol_positions"].tolist() == [[0, 1, 2, 3]] * 2
    assert int((batch.tokens == task.blank_id).sum()) == 10


def test_splits_are_those_of_the_paper_and_differ_in_blanks_alone():
    task = mf.build_task("selective-copy")
    assert {split: asdict(task.split_settings(split)) for split in task.splits} == {
        "iid": {"n_symbols": 128, "n_blanks": 128, "n_kinds": 16},
        "ood-dense": {"n_symbols": 128, "n_blanks": 64, "n_kinds": 16},
        "ood-sparse": {"n_symbols": 128, "n_blanks": 256, "n_kinds": 16},
    }
    lengths = [task.sample(split, 1, generator()).tokens.shape[1] for split in task.splits]
    assert lengths == [384, 320, 512]
    small = mf.build_task("selective-copy", n_symbols=3, n_blanks=5)
    assert [small.split_settings(split).n_blanks for split in small.splits] == [5, 2, 10]


@pytest.mark.parametrize(
    ("n_kinds", "names"),
    [(1, ["A", BLANK, SEPARATOR]), (3, ["A", "B", "C", BLANK, SEPARATOR])],
)
def test_vocabulary(n_kinds, names):
    task = mf.build_task("selective-copy", n_kinds=n_kinds)
    assert task.token_names == names
    assert (task.token_names[task.blank_id], task.token_names[task.separator_id]) == (BLANK, SEPARATOR)
    assert task.action_ids == []
    many = mf.build_task("selective-copy", n_kinds=40)
    assert len(set(many.token_names)) == many.vocab_size == 42


def test_show_is_a_sample_as_a_person_reads_it():
    task = mf.build_task("selective-copy", n_symbols=3, n_blanks=2, n_kinds=4)
    batch = task.sample("iid", 1, generator(0))
    names = [task.token_names[token] for token in sequence_of(batch, 0)]
    lines = task.show("iid", generator(0)).splitlines()
    assert lines[0] == f"read  {' '.join(names[:6])}" and lines[0].endswith(SEPARATOR)
    assert lines[2] == f"copy  {' '.join(names[6:])}"
    assert [name for name in names[:5] if name != BLANK] == names[6:]
    long = mf.build_task("selective-copy").show("iid", generator(0))
    assert max(map(len, long.splitlines())) < 80


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"n_symbols": 0}, "n_symbols must be at least 1, not 0"),
        ({"n_blanks": -1}, "n_blanks must be at least 0, not -1"),
        ({"n_kinds": 0}, "n_kinds must be at least 1, not 0"),
        ({"n_blanks": 1.5}, "n_blanks must be a whole number"),
        ({"n_blank": 4}, "did you mean 'n_blanks'"),
    ],
    ids=lambda value: "-".join(map(str, *value.items())) if isinstance(value, dict) else "",
)
def test_wrong_settings_are_refused_in_one_sentence(wrong, sentence):
    with pytest.raises(mf.UserError, match=sentence):
        mf.build_task("selective-copy", **wrong)
    task = mf.build_task("selective-copy")
    with pytest.raises(mf.UserError, match=sentence):
        task.sample(wrong, 1, generator())


def test_a_split_with_other_tokens_is_refused():
    with pytest.raises(mf.UserError, match="must keep n_kinds"):
        mf.build_task("selective-copy").sample({"n_kinds": 8}, 1, generator())


def checksum(batch):
    return zlib.crc32(batch.tokens.contiguous().numpy().astype("<i8").tobytes())


PINNED = {"iid": 969978692, "ood-dense": 3281202005, "ood-sparse": 1217235619}


@pytest.mark.parametrize("split", PINNED)
def test_sampling_is_pinned_whole_in_parts_and_with_any_number_of_threads(split):
    """A change of the sampling changes every figure ever measured, so it must not happen unnoticed."""
    task, threads = mf.build_task("selective-copy"), torch.get_num_threads()
    try:
        for n in (1, 2):
            torch.set_num_threads(n)
            whole = task.sample(split, 8, generator())
            assert checksum(whole) == PINNED[split]
            stream = generator()
            halves = [task.sample(split, 4, stream) for _ in range(2)]
            parts = [task.sample(split, 8, generator(), part=(index, 2)) for index in range(2)]
            for two in (halves, parts):
                assert torch.equal(torch.cat([half.tokens for half in two]), whole.tokens)
                assert torch.equal(torch.cat([half.info["source"] for half in two]), whole.info["source"])
    finally:
        torch.set_num_threads(threads)


class Streaming:
    """A rule-based model that streams as ours do: ``rule`` gives the next token after any list of tokens."""

    def __init__(self, rule, vocab_size):
        self.rule, self.vocab_size, self.steps = rule, vocab_size, 0

    def __call__(self, tokens, state=None, return_state=False):
        past = [[] for _ in tokens] if state is None else state
        self.steps += state is not None
        answers = torch.zeros_like(tokens)
        read = [before + row for before, row in zip(past, tokens.tolist())]
        for row, sequence in enumerate(read):
            for place in range(tokens.shape[1]):
                answers[row, place] = self.rule(sequence[: len(past[row]) + place + 1])
        logits = one_hot(answers, self.vocab_size)
        return (logits, read) if return_state else logits


def counting_copy(task):
    """Answers the k-th symbol at the k-th token from the separator on, whatever it answered before."""

    def rule(read):
        if task.separator_id not in read:
            return task.blank_id
        asked = read.index(task.separator_id)
        kept = [token for token in read[:asked] if token != task.blank_id]
        return kept[len(read) - asked - 1]

    return rule


def by_hand(symbols, n_kinds=6):
    """A batch of one sequence without blanks."""
    task = mf.build_task("selective-copy", n_symbols=len(symbols), n_blanks=0, n_kinds=n_kinds)
    batch = task.sample("iid", 1, generator())
    sequence = torch.tensor([[*symbols, task.separator_id, *symbols]])
    return task, replace(batch, tokens=sequence[:, :-1], targets=sequence[:, 1:])


@pytest.mark.parametrize("split", ["iid", "ood-dense", "ood-sparse"])
def test_a_model_that_is_always_right_is_as_right_freely_and_needs_no_run(split):
    task = mf.build_task("selective-copy", n_symbols=6, n_blanks=6)
    batch = task.sample(split, 5, generator())
    model = Streaming(counting_copy(task), task.vocab_size)
    free = task.score_freely(model, batch)["free_accuracy"]
    assert (free, free.count) == (1.0, 30)
    assert model.steps == 0
    asked = batch.tokens.shape[1] - 5
    assert torch.equal(free_run(model, batch.tokens[:, :asked], 6), batch.targets[:, -6:])  # and a run says the same
    assert model.steps == 5


def test_one_mistake_propagates_when_the_model_reads_its_own_answers():
    """A B C D: the model first answers B, and then whatever follows in the prompt after the symbol it has just read."""
    task, batch = by_hand([0, 1, 2, 3])

    def follows(read):
        if read[-1] == task.separator_id:
            return 1
        asked = read.index(task.separator_id) if task.separator_id in read else len(read)
        at = read[:asked].index(read[-1]) + 1
        return read[at] if at < asked else task.blank_id

    model = Streaming(follows, task.vocab_size)
    forced = task.score(model(batch.tokens), batch)
    assert forced == {"accuracy": 3 / 4, "exact_match": 0}  # said B B C D
    assert free_run(model, batch.tokens[:, :5], 4).tolist() == [[1, 2, 3, task.blank_id]]
    free = task.score_freely(model, batch)["free_accuracy"]
    assert (free, free.count) == (0.0, 4)


def test_a_mistake_stays_alone_when_the_model_counts():
    task, batch = by_hand([0, 1, 2, 3])
    copy = counting_copy(task)
    model = Streaming(lambda read: 5 if len(read) == 6 else copy(read), task.vocab_size)  # wrong at the second answer
    assert task.score(model(batch.tokens), batch)["accuracy"] == 3 / 4
    assert task.score_freely(model, batch)["free_accuracy"] == 3 / 4


def test_a_single_symbol_is_answered_by_the_prompt_alone():
    task, batch = by_hand([2])
    model = Streaming(lambda read: 0, task.vocab_size)
    assert task.score_freely(model, batch) == {"free_accuracy": 0.0}
    assert model.steps == 0


@pytest.mark.parametrize("name", ["mapwm", "mapem", "rope", "mamba"])
def test_free_running_through_the_state_is_reading_all_again_each_time(name):
    """A model with random weights, in float64, against one that keeps no state."""
    task = mf.build_task("selective-copy", n_symbols=7, n_blanks=4, n_kinds=20)
    model = mf.build_model(name, vocab_size=task.vocab_size, d_model=16, n_layers=2).double()
    for index, parameter in enumerate(model.parameters()):
        torch.nn.init.normal_(parameter, generator=generator(index))
    batch = task.sample("iid", 16, generator())
    read = batch.tokens[:, :12]
    with torch.no_grad():
        for _ in range(7):
            read = torch.cat((read, model(read)[:, -1:].argmax(dim=-1)), dim=1)
    said = read[:, 12:]
    assert len({tuple(row) for row in said.tolist()}) > 8, "it should not say the same always"
    with torch.no_grad():
        assert torch.equal(free_run(model, batch.tokens[:, :12], 7), said)
    free = mf.evaluate(model, task, n_sequences=16)["free_accuracy"]
    assert free.count == 16 * 7
    assert task.score_freely(model, batch)["free_accuracy"] == int((said == batch.targets[:, -7:]).sum()) / 112


class AlwaysRight(Decoder):
    """A rule-based model that `evaluate` takes for one of ours, so it also measures a free run."""

    def __init__(self, task):
        super().__init__(model_config("nope", vocab_size=task.vocab_size, d_model=8))
        self.by_rule = Streaming(counting_copy(task), task.vocab_size)

    def forward(self, tokens, **state):
        return self.by_rule(tokens, **state)


def test_evaluation_asks_our_models_alone_to_run_freely():
    task = mf.build_task("selective-copy", n_symbols=5, n_blanks=5)
    scores = mf.evaluate(AlwaysRight(task), task, n_sequences=9, batch_size=4)
    assert scores == {"accuracy": 1.0, "exact_match": 1.0, "free_accuracy": 1.0}
    assert {name: metric.count for name, metric in scores.items()} == {
        "accuracy": 45,
        "exact_match": 9,
        "free_accuracy": 45,
    }
    foreign = mf.evaluate(mf.players.build("perfect", task), task, n_sequences=9)
    assert foreign == {"accuracy": 1.0, "exact_match": 1.0}


def test_suggestions_are_the_papers_and_fit_every_model_that_has_them():
    task = mf.build_task("selective-copy")
    suggested = task.model_defaults()
    sizes = {"n_layers": 2, "n_heads": 2, "d_model": 128, "head_dim": 64}
    assert suggested.items() >= {**sizes, "base": 512.0, "attn_temperature": 0.9}.items()
    paper = mf.training.TrainConfig(**task.training("paper"))
    assert (paper.sequences, paper.batch_size, paper.lr, paper.weight_decay) == (100_000, 64, 2e-4, 0.05)
    for name in ("mapwm", "mapem", "rope", "nope", "cope", "path", "tape", "mamba"):
        mf.build_model(name, vocab_size=task.vocab_size, **suggested_settings(name, suggested))
    tiny = mf.build_task("selective-copy", n_symbols=1, n_blanks=0)
    for name in ("mapwm", "cope"):
        mf.build_model(name, vocab_size=tiny.vocab_size, **suggested_settings(name, tiny.model_defaults()))
