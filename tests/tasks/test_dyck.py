"""`dyck`: batches against a stack in plain Python, the metrics and the loss by their definitions, and settings."""

import math
import zlib
from dataclasses import asdict, replace

import pytest
import torch
from brackets import generator, sequence_of, stacks_of
from hypothesis import given, settings
from hypothesis import strategies as st

import mapformers as mf
from helpers import examples
from mapformers.tasks.dyck import DyckSettings, continuation_f1

asked = st.integers(1, 12).flatmap(
    lambda half: st.fixed_dictionaries(
        {"length": st.just(2 * half), "depth": st.integers(1, half), "types": st.integers(1, 6)}
    )
)


@settings(max_examples=examples(300))
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
    """The metric by its definition, in plain Python."""
    weights = [math.exp(logit) for logit in logits]
    chances = [weight / math.fsum(weights) for weight in weights]
    wrong = math.fsum(p for p, allowed in zip(chances, valid) if not allowed)
    precision = math.fsum(p for p, allowed in zip(chances, valid) if allowed)
    recall = sum(p > wrong for p, allowed in zip(chances, valid) if allowed) / sum(valid)
    both = precision + recall
    return precision, recall, 2 * precision * recall / both if both else 0.0


@settings(max_examples=examples(200))
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
    """A model with a padded vocabulary: probability on the extra tokens is wrong and raises the loss."""
    task = mf.build_task("dyck")
    batch = task.sample("iid", 2, generator())
    logits = torch.where(batch.info["valid"], 50.0, -50.0)
    spare = torch.nn.functional.pad(logits, (0, 3), value=-50.0)
    assert task.score(spare, batch) == {"f1": 1, "precision": 1, "recall": 1, "closer_accuracy": 1}
    assert float(task.loss(spare, batch)) == pytest.approx(0, abs=1e-15)
    spare[..., -1] = 50.0
    assert task.score(spare, batch)["recall"] == 0
    assert task.loss(spare, batch) > 1


@settings(max_examples=examples(50))
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
    wanted = {"sequences": 560_000, "lr": 1e-4, "schedule": "cosine", "weight_decay": 0.01}
    assert wanted.items() <= paper.items()
    assert paper["warmup_steps"] > 0


CHECKSUMS = {(32, 4): 1692446322, (128, 16): 3292764136}


@pytest.mark.parametrize("size", CHECKSUMS, ids=str)
def test_batches_are_pinned_whole_in_halves_and_by_threads(size):
    """A change of the sampling changes every figure ever measured, so it must not happen unnoticed."""
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
