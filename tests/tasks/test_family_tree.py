"""`family-tree`: walks against a replay in the family, players, scores, settings, text and picture."""

import math
import re
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mapformers as mf
from helpers import examples
from mapformers.players import family as players
from mapformers.reports.family_tree import FamilyPicture, draw_family
from mapformers.tasks.family import RELATIONS, grow_one
from mapformers.tasks.family_tree import FamilySettings, family_of, person_names

MOTHER, FATHER, SPOUSE, OLDER, YOUNGER, OLDEST = range(6)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


worlds = st.fixed_dictionaries(
    {
        "steps": st.integers(1, 20),
        "generations": st.integers(1, 4),
        "couples": st.integers(1, 4),
        "max_children": st.integers(1, 4),
        "p_out": st.sampled_from([0.0, 0.3, 1.0]),
        "n_names": st.sampled_from([1, 3, 10, 45]),
        "trees": st.sampled_from(["fresh", "fixed"]),
        "tree_seed": st.integers(0, 99),
    }
)


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(world=worlds, seed=st.integers(0, 2**31))
def test_batch_agrees_with_a_replay_in_the_family(world, seed):
    task = mf.build_task("family-tree", **world)
    batch = task.sample("iid", 8, generator(seed))
    steps = world["steps"]
    assert batch.tokens.shape == (8, 2 * steps - 1) and bool(batch.loss_mask.all())
    for row in range(8):
        sequence = [*batch.tokens[row].tolist(), int(batch.targets[row, -1])]
        relatives = family_of(batch, row, task.settings).relatives
        here, first, name_of = int(batch.info["start"][row]), {}, {}
        assert 0 <= here < len(relatives)
        for step in range(steps):
            action, name = sequence[2 * step : 2 * step + 2]
            assert action < len(RELATIONS) <= name < task.vocab_size
            here = int(relatives[here, action])
            assert here >= 0, "only what is possible is done"
            assert int(batch.info["person"][row, step]) == here
            assert batch.info["relatives"][row, step].tolist() == relatives[here].tolist()
            again = here in first
            assert int(batch.info["first_visit"][row, step]) == first.setdefault(here, step)
            assert name_of.setdefault(here, name) == name
            assert bool(batch.score_mask[row, 2 * step]) == bool(batch.info["revisit"][row, 2 * step]) == again
        assert not bool(batch.score_mask[row, 1::2].any())
        assert batch.targets[row].tolist() == sequence[1:]


def test_names_are_uniform_and_independent_of_the_person():
    task = mf.build_task("family-tree")
    batch = task.sample("iid", 400, generator())
    first = batch.info["first_visit"] == torch.arange(32)
    names = torch.cat((batch.tokens, batch.targets[:, -1:]), dim=1)[:, 1::2]
    for women in (True, False):
        seen = Counter((names[first & (batch.info["female"] == women)] - 6).tolist())
        n = seen.total()
        assert n > 2000
        statistic = sum((seen[i] - n / 10) ** 2 / (n / 10) for i in range(10))
        assert statistic < 9 + 4 * math.sqrt(18)


def test_the_first_person_is_uniformly_random():
    task = mf.build_task("family-tree", steps=1, trees="fixed", generations=2)
    people = len(grow_one(0, task.settings.rules()).female)
    starts = Counter(task.sample("iid", 200 * people, generator()).info["start"].tolist())
    statistic = sum((starts[person] - 200) ** 2 / 200 for person in range(people))
    assert statistic < people - 1 + 4 * math.sqrt(2 * (people - 1))


def test_fresh_trees_differ_and_fixed_ones_do_not():
    fresh = mf.build_task("family-tree").sample("iid", 256, generator())
    assert len(set(fresh.info["tree"].tolist())) > 250  # of 65 536, so two are the same now and then
    deep = mf.build_task("family-tree").sample("ood-deep", 256, generator())
    assert len(set(deep.info["tree"].tolist())) == 256  # of 2^53
    fixed = mf.build_task("family-tree", trees="fixed", tree_seed=7).sample("iid", 256, generator())
    assert set(fixed.info["tree"].tolist()) == {7}
    names = torch.cat((fixed.tokens, fixed.targets[:, -1:]), dim=1)[:, 1::2]
    person = int(fixed.info["person"].flatten().mode().values)
    assert len(set(names[fixed.info["person"] == person].tolist())) > 1, "names are new in every sequence"


def test_splits_are_those_of_the_paper_and_differ_in_nothing_else():
    task = mf.build_task("family-tree")
    table = {"iid": (32, 5), "ood-sparse": (64, 5), "ood-deep": (64, 10)}
    assert list(task.splits) == list(table)
    for split, (steps, generations) in table.items():
        expected = FamilySettings(steps, generations, couples=3, max_children=4, p_out=0.3, n_names=10)
        assert task.split_settings(split) == expected
        assert task.sample(split, 2, generator()).tokens.shape == (2, 2 * steps - 1)
    assert task.split_settings({"max_children": 2}).steps == 32
    assert task.vocab_size == 16 and task.token_names[:6] == list(RELATIONS) and task.action_ids == list(range(6))
    assert len(set(person_names(45))) == 45


@pytest.mark.parametrize("trees", ["fresh", "fixed"])
@pytest.mark.parametrize("split", ["iid", "ood-sparse", "ood-deep"])
def test_who_sees_the_tree_and_the_start_is_always_right(trees, split):
    task = mf.build_task("family-tree", trees=trees)
    perfect = mf.players.build("perfect", task, split)
    assert isinstance(perfect, players.TreeWalker)
    scores = mf.evaluate(perfect, task, split, n_sequences=128, seed=7)
    assert scores == {"accuracy": 1.0} and scores["accuracy"].count > 1000


def test_who_sees_the_tree_alone_finds_out_where_it_is():
    """The exact filter over start persons, against explicit sums over all of them in a small family."""
    task = mf.build_task("family-tree", trees="fixed", generations=2, steps=10, n_names=3)
    batch = task.sample("iid", 40, generator())
    said = mf.players.build("locator", task).answer(batch)[:, 0::2].argmax(dim=-1)
    relatives = grow_one(0, task.settings.rules()).relatives
    for row, sequence in enumerate(batch.tokens.tolist()):
        for step in range(10):
            votes = Counter()
            for here in range(len(relatives)):
                weight, called = 1.0, {}
                for action, name in zip(sequence[0 : 2 * step : 2], sequence[1::2]):
                    weight /= (relatives[here] >= 0).sum()
                    here = relatives[here, action]
                    weight *= 0 if here < 0 else 1 / 3 if here not in called else called[here] == name
                    called.setdefault(here, name)
                weight /= (relatives[here] >= 0).sum()
                here = relatives[here, sequence[2 * step]]
                if weight and here in called and here >= 0:
                    votes[called[here]] += weight
            best = max(votes.values(), default=0)
            assert not votes or votes[int(said[row, step])] == pytest.approx(best, rel=1e-9)


def test_players_that_must_see_the_tree_say_so():
    task = mf.build_task("family-tree")
    tokens = task.sample("iid", 2, generator()).tokens
    for name in ("perfect", "locator"):
        with pytest.raises(mf.UserError, match=r"must (see the tree|be seen)"):
            mf.players.build(name, task)(tokens)
    fixed = mf.build_task("family-tree", trees="fixed")
    batch = fixed.sample("iid", 4, generator())
    locator = mf.players.build("locator", fixed)
    assert torch.equal(locator(batch.tokens), locator.answer(batch))
    with pytest.raises(mf.UserError, match="ask the players"):
        task.trace([0], task.settings)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"couples": 0}, "A family needs a founding couple: couples must be at least 1, not 0"),
        ({"generations": 0}, "generations must be at least 1"),
        ({"max_children": 0}, "max_children must be at least 1"),
        ({"p_out": 1.1}, "between 0 and 1"),
        ({"p_out": float("nan")}, "between 0 and 1"),
        ({"n_names": 0}, "n_names must be at least 1"),
        ({"n_names": 10**9}, "n_names must be at most 1000000"),
        ({"generations": 10**8, "max_children": 1, "p_out": 1.0}, "generations must be at most 10000"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"trees": "old"}, "trees must be one of fresh, fixed"),
        ({"tree_seed": -1}, "tree_seed must lie between"),
        ({"max_children": 20, "generations": 12}, "lower generations, max_children or couples"),
        ({"tree": "fresh"}, "did you mean 'trees'"),
    ],
    ids=lambda value: "-".join(map(str, *value.items())) if isinstance(value, dict) and len(value) == 1 else "",
)
def test_wrong_settings_are_refused_in_one_sentence(wrong, sentence):
    with pytest.raises(mf.UserError, match=sentence):
        mf.build_task("family-tree", **wrong)


def test_a_split_must_keep_the_names():
    with pytest.raises(mf.UserError, match="must keep n_names"):
        mf.build_task("family-tree").sample({"n_names": 3}, 1, generator())


@pytest.mark.parametrize(
    ("asked", "split", "checksum"),
    [
        ({}, "iid", 2474110178),
        ({}, "ood-sparse", 3558047014),
        ({}, "ood-deep", 31534141),
        ({"trees": "fixed", "max_children": 3}, "ood-sparse", 100360700),
    ],
    ids=["fresh", "sparse", "deep", "fixed"],
)
def test_sampling_is_pinned(asked, split, checksum):
    """A change of the sampling changes every figure ever measured, so it must not happen unnoticed."""
    batch = mf.build_task("family-tree", **asked).sample(split, 16, generator())
    assert zlib.crc32(batch.tokens.contiguous().numpy().astype("<i8").tobytes()) == checksum


@pytest.mark.parametrize("trees", ["fresh", "fixed"])
@pytest.mark.parametrize("split", ["iid", "ood-deep"])
def test_halves_are_the_whole_whatever_is_grown_at_once(trees, split, monkeypatch):
    task = mf.build_task("family-tree", trees=trees)
    stream = generator()
    halves = [task.sample(split, 8, stream) for _ in range(2)]
    monkeypatch.setattr("mapformers.tasks.family_tree.PEOPLE_GROWN_TOGETHER", 5000)
    whole = task.sample(split, 16, generator())
    assert torch.equal(whole.tokens, torch.cat([half.tokens for half in halves]))
    for name, tensor in whole.info.items():
        assert torch.equal(tensor, torch.cat([half.info[name] for half in halves])), name


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(world=worlds, seed=st.integers(0, 2**31), spoilt=st.integers(0, 20))
def test_metric_agrees_with_counting(world, seed, spoilt):
    """Answers with some mistakes, counted one by one against the people who were met."""
    task = mf.build_task("family-tree", **world)
    batch, g = task.sample("iid", 8, generator(seed)), generator(seed + 1)
    answers = batch.targets.clone()
    for _ in range(spoilt):
        row, place = int(torch.randint(8, (), generator=g)), int(torch.randint(answers.shape[1], (), generator=g))
        answers[row, place] = torch.randint(task.vocab_size, (), generator=g)
    right = []
    for row in range(8):
        sequence = [*batch.tokens[row].tolist(), int(batch.targets[row, -1])]
        relatives, here, met = family_of(batch, row, task.settings).relatives, int(batch.info["start"][row]), set()
        for step in range(world["steps"]):
            here = int(relatives[here, sequence[2 * step]])
            right += [int(answers[row, 2 * step]) == sequence[2 * step + 1]] * (here in met)
            met.add(here)
    score = task.score(torch.nn.functional.one_hot(answers, task.vocab_size).float(), batch)["accuracy"]
    assert score.count == len(right)
    assert score == pytest.approx(sum(right) / len(right)) if right else math.isnan(score)


def test_show_tells_the_walk_and_the_family():
    task = mf.build_task("family-tree", steps=12, generations=2)
    text = task.show("iid", generator(4))
    assert text.startswith("someone's ") and "generation 2" in text and "[" in text
    deep = task.show({"generations": 9, "couples": 6}, generator(4))
    assert "more couples" in deep and len(deep.splitlines()) < 60


@pytest.mark.parametrize("everyone", [False, True])
def test_the_picture_is_written_and_nobody_stands_on_another(tmp_path, everyone):
    from mapformers.reports.family_tree import _places

    task = mf.build_task("family-tree")
    batch = task.sample("iid", 6, generator(2))
    for row in range(6):
        family = family_of(batch, row, task.settings)
        names = task.names_of(batch, row, len(family.female) if everyone else 0)
        assert len(names) == (len(family.female) if everyone else len(set(batch.info["person"][row].tolist())))
        walk = batch.info["person"][row].tolist()
        picture = FamilyPicture(family.relatives, family.female, family.generation, names, walk)
        x = _places(picture)
        for when in range(int(family.generation.max()) + 1):
            places = np.sort(x[family.generation == when])
            assert (np.diff(places) > 0.99).all()
        couples = family.relatives[:, SPOUSE] >= 0
        assert np.allclose(np.abs(x[couples] - x[family.relatives[couples, SPOUSE]]), 1)
    draw_family(picture, tmp_path / "family.png")
    assert (tmp_path / "family.png").stat().st_size > 5000


def test_the_python_of_the_docs_runs(tmp_path, monkeypatch, capsys):
    document = (Path(__file__).parents[2] / "docs" / "families.md").read_text()
    monkeypatch.chdir(tmp_path)
    exec("\n".join(re.findall(r"```python\n(.*?)```", document, flags=re.DOTALL)), {})
    assert (tmp_path / "family.png").exists() and "Certainty(certain=" in capsys.readouterr().out
