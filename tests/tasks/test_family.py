"""Families: against the rules, person by person, and against a slow sampler; and the pool that keeps them."""

import dataclasses
import math
import random
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mapformers as mf
from helpers import examples, thorough
from mapformers.tasks import family_pool
from mapformers.tasks.family import RELATIONS, FamilyRules, grow, people_table

MOTHER, FATHER, SPOUSE, OLDER, YOUNGER, OLDEST = range(6)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def assert_same_distribution(one, other):
    """Chi-square of two samples is at most four standard deviations above its mean; rare values are pooled."""
    n, m = one.total(), other.total()
    common = [key for key in one | other if one[key] + other[key] >= 20]
    counts = [(one[key], other[key]) for key in common]
    rest = (n - sum(a for a, _ in counts), m - sum(b for _, b in counts))
    counts += [rest] if sum(rest) >= 20 else []
    statistic = sum((a * math.sqrt(m / n) - b * math.sqrt(n / m)) ** 2 / (a + b) for a, b in counts)
    freedom = len(counts) - 1
    assert freedom == 0 or statistic < freedom + 4 * math.sqrt(2 * freedom), (
        f"chi-square {statistic:.1f} at {freedom} degrees"
    )


rules = st.builds(
    FamilyRules,
    generations=st.integers(1, 6),
    couples=st.integers(1, 5),
    max_children=st.integers(1, 5),
    p_out=st.sampled_from([0.0, 0.3, 0.8, 1.0]),
)


@settings(max_examples=examples(150), deadline=None, derandomize=True)
@given(rules=rules, number=st.integers(0, 2**53 - 1))
def test_a_family_is_one(rules, number):
    """Check every rule of D.3 and of kinship on the six relations, the sexes and the generations."""
    family = grow(np.array([number]), rules)
    people = range(len(family.female))
    relatives = family.relatives.tolist()
    female, generation = family.female.tolist(), family.generation.tolist()
    assert generation == sorted(generation) and generation.count(0) == 2 * rules.couples
    children_of = {}
    for person in people:
        mother, father, spouse, older, younger, oldest = relatives[person]
        assert (mother < 0) == (father < 0)
        if mother >= 0:
            children_of.setdefault((mother, father), []).append(person)
            assert female[mother] and not female[father] and relatives[mother][SPOUSE] == father
            assert generation[mother] == generation[father] == generation[person] - 1
        else:
            assert spouse >= 0, "founders and newcomers come with a spouse"
            assert older < 0 and younger < 0
            assert generation[person] == 0 or relatives[spouse][MOTHER] >= 0, "a newcomer marries a child of the family"
        if spouse >= 0:
            assert relatives[spouse][SPOUSE] == person and female[spouse] != female[person]
            assert generation[spouse] == generation[person]
            assert mother < 0 or relatives[spouse][MOTHER] != mother, "siblings do not marry"
            assert relatives[spouse][OLDEST] == oldest
        assert (oldest >= 0) == (spouse >= 0 and generation[person] < rules.generations)
        for there, back in ((older, YOUNGER), (younger, OLDER)):
            if there >= 0:
                assert relatives[there][back] == person
                assert relatives[there][:2] == [mother, father] and mother >= 0
        assert any(relative >= 0 for relative in relatives[person]), "nobody is stuck"
    for (mother, father), children in children_of.items():
        assert 1 <= len(children) <= rules.max_children
        assert relatives[mother][OLDEST] == relatives[father][OLDEST] == children[0]
        assert [relatives[child][YOUNGER] for child in children] == [*children[1:], -1]
        assert [relatives[child][OLDER] for child in children] == [-1, *children[:-1]]
    for when in range(1, rules.generations + 1):
        single = [p for p in people if generation[p] == when and relatives[p][SPOUSE] < 0]
        assert not any(
            female[one] and not female[other] and relatives[one][MOTHER] != relatives[other][MOTHER]
            for one in single
            for other in single
        ), "a man and a woman who might have married stayed single"


@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(rules=rules, numbers=st.lists(st.integers(0, 2**53 - 1), min_size=1, max_size=5))
def test_a_family_does_not_depend_on_those_grown_beside_it(rules, numbers):
    together = grow(np.array(numbers), rules)
    assert len(together) == len(numbers)
    for index, number in enumerate(numbers):
        one, other = together.family(index), grow(np.array([number]), rules)
        for field in dataclasses.fields(one):
            assert np.array_equal(getattr(one, field.name), getattr(other, field.name)), field.name


def test_a_deeper_family_begins_as_the_shallower_one():
    for number in range(20):
        shallow, deep = (grow(np.array([number]), FamilyRules(generations=n)) for n in (3, 6))
        n, inner = len(shallow.female), shallow.generation < 3
        assert np.array_equal(deep.female[:n], shallow.female)
        assert np.array_equal(deep.relatives[:n][inner], shallow.relatives[inner])


def test_p_out_0_brings_nobody_and_p_out_1_marries_everyone_out():
    for number in range(20):
        closed = grow(np.array([number]), FamilyRules(p_out=0.0, couples=4))
        assert not ((closed.relatives[:, MOTHER] < 0) & (closed.generation > 0)).any()
        open_ = grow(np.array([number]), FamilyRules(p_out=1.0, max_children=2))
        assert (open_.relatives[:, SPOUSE] >= 0).all()
        born = open_.relatives[:, MOTHER] >= 0
        assert (open_.relatives[open_.relatives[born, SPOUSE], MOTHER] < 0).all()


def test_a_single_founding_couple_whose_children_may_not_marry_is_a_small_family():
    family = grow(np.array([3]), FamilyRules(couples=1, p_out=0.0))
    assert family.generation.max() == 1 and 3 <= len(family.female) <= 6


class SlowFamily:
    """The rules again, one person at a time, without any code of the library."""

    def __init__(self, rules, chance):
        self.female, self.generation, self.links, self.children = [], [], [], []
        couples = [self.couple(self.person(True, 0), self.person(False, 0)) for _ in range(rules.couples)]
        self.sibships, self.out, self.born = [], 0, 0
        for generation in range(1, rules.generations + 1):
            crowd, married = [], []
            for wife, husband in couples:
                born = [
                    self.person(chance.random() < 0.5, generation) for _ in range(chance.randint(1, rules.max_children))
                ]
                self.sibships.append(len(born))
                for place, child in enumerate(born):
                    self.links[child].update({"mother": wife, "father": husband})
                    if place:
                        self.links[child]["older sibling"] = born[place - 1]
                        self.links[born[place - 1]]["younger sibling"] = child
                self.links[wife]["oldest child"] = self.links[husband]["oldest child"] = born[0]
                crowd += born
            self.born += len(crowd)
            looking = []
            for child in crowd:
                if chance.random() < rules.p_out:
                    newcomer = self.person(not self.female[child], generation)
                    married.append(self.couple(*sorted((child, newcomer), key=lambda p: not self.female[p])))
                    self.out += 1
                else:
                    looking.append(child)
            while True:
                women = [p for p in looking if self.female[p]]
                men = [p for p in looking if not self.female[p]]
                if not any(self.strangers(woman, man) for woman in women for man in men):
                    break
                chance.shuffle(women)
                chance.shuffle(men)
                for woman, man in zip(women, men):
                    if self.strangers(woman, man):
                        married.append(self.couple(woman, man))
                        looking = [p for p in looking if p not in (woman, man)]
            couples = married

    def person(self, female, generation):
        self.female.append(female)
        self.generation.append(generation)
        self.links.append({})
        return len(self.female) - 1

    def couple(self, wife, husband):
        self.links[wife]["spouse"], self.links[husband]["spouse"] = husband, wife
        return wife, husband

    def strangers(self, one, other):
        return self.links[one]["mother"] != self.links[other]["mother"]

    def walk(self, steps, chance):
        here, actions, visits = chance.randrange(len(self.links)), [], []
        for _ in range(steps):
            action = chance.choice(sorted(self.links[here]))
            here = self.links[here][action]
            actions.append(action)
            visits.append(here)
        return actions, visits


@pytest.mark.parametrize(
    "asked",
    [{}, {"max_children": 3, "p_out": 0.0, "couples": 4}, {"generations": 2, "max_children": 7, "p_out": 0.6}],
    ids=["default", "closed", "shallow"],
)
def test_families_and_walks_are_distributed_as_those_of_a_slow_sampler(asked):
    n, steps, chance = 1500, 8, random.Random(0)
    task = mf.build_task("family-tree", steps=steps, **asked)
    rules = task.settings.rules()
    batch = task.sample("iid", n, generator(1))
    forest = grow(batch.info["tree"].numpy(), rules)
    slow = [SlowFamily(rules, chance) for _ in range(n)]

    def fast_and_slow(measure_fast, measure_slow):
        assert_same_distribution(
            Counter(measure_fast(forest.family(i)) for i in range(n)), Counter(map(measure_slow, slow))
        )

    fast_and_slow(lambda family: len(family.female) // 8, lambda family: len(family.female) // 8)
    fast_and_slow(lambda family: family.generation[-1], lambda family: family.generation[-1])
    fast_and_slow(
        lambda family: int((family.relatives[:, SPOUSE] < 0).sum()),
        lambda family: sum("spouse" not in links for links in family.links),
    )
    fast_and_slow(
        lambda family: int(((family.relatives[:, MOTHER] < 0) & (family.generation > 0)).sum()),
        lambda family: family.out,
    )
    fast_and_slow(
        lambda family: int(family.female[family.generation == 1].sum()),
        lambda family: sum(sex for sex, when in zip(family.female, family.generation) if when == 1),
    )
    sizes = Counter()
    for i in range(n):
        mothers = forest.family(i).relatives[:, MOTHER]
        sizes.update(np.bincount(mothers[mothers >= 0])[:3].tolist())  # of the founders: independent of each other
    sizes = Counter({size: count for size, count in sizes.items() if size})
    assert_same_distribution(sizes, Counter(size for family in slow for size in family.sibships[:3]))

    actions = torch.cat((batch.tokens, batch.targets[:, -1:]), dim=1)[:, 0::2]
    walks = [family.walk(steps, chance) for family in slow]
    for step in (0, 1, 4, steps - 1):  # one step of each walk at a time: those are independent
        assert_same_distribution(
            Counter(RELATIONS[action] for action in actions[:, step].tolist()),
            Counter(taken[step] for taken, _ in walks),
        )
    pairs = Counter((RELATIONS[a], RELATIONS[b]) for a, b in actions[:, 2:4].tolist())
    assert_same_distribution(pairs, Counter((taken[2], taken[3]) for taken, _ in walks))
    met = Counter(len(set(row)) for row in batch.info["person"].tolist())
    assert_same_distribution(met, Counter(len(set(visits)) for _, visits in walks))


def test_children_and_those_who_marry_out_are_as_many_as_stated():
    rules = FamilyRules(generations=3)
    forest = grow(np.arange(2000), rules)
    born = forest.relatives[:, MOTHER] >= 0
    newcomers = (~born & (forest.generation > 0)).sum()
    n = int(born.sum())
    assert abs(newcomers - 0.3 * n) < 4 * math.sqrt(n * 0.3 * 0.7)
    assert abs(forest.female[born].sum() - n / 2) < 4 * math.sqrt(n / 4)
    first_born = (born & (forest.relatives[:, OLDER] < 0)).sum()
    assert abs(n / first_born - 2.5) < 4 * math.sqrt(1.25 / first_born)


SMALL_FAMILIES = FamilyRules(generations=2, couples=1)


def assert_kept(tables, numbers, rules):
    """The families of a pool equal the same families grown alone."""
    for index, number in enumerate(numbers):
        here = slice(tables.first[index], tables.first[index] + tables.people[index])
        grown = grow(np.array([number]), rules)
        assert np.array_equal(tables.relatives[here], grown.relatives)
        assert np.array_equal(tables.female[here], grown.female)
        assert np.array_equal(tables.generation[here], grown.generation)
        possible = [[bits >> relation & 1 for relation in range(6)] for bits in tables.possible[here]]
        assert np.array_equal(possible, grown.relatives >= 0)


def test_a_pool_keeps_what_would_be_grown(monkeypatch):
    """Families are asked for one by one, several at once, and again; then the rest is grown in groups."""
    monkeypatch.setattr(family_pool, "POOL_SIZE", 500)
    monkeypatch.setattr(family_pool, "GROWN_ON_DEMAND", 20)
    monkeypatch.setattr(family_pool, "GROWN_TOGETHER", 64)
    pool, chance = family_pool.Pool(SMALL_FAMILIES), np.random.default_rng(0)
    for n, kept in ((1, 1), (3, 4), (30, None), (30, 500), (200, 500)):
        numbers = chance.integers(0, 500, n)
        assert_kept(pool.families(numbers), numbers, SMALL_FAMILIES)
        assert kept is None or pool.n_families == kept
    assert pool.n_people == sum(len(grow(np.array([number]), SMALL_FAMILIES).female) for number in range(500))


def test_a_pool_without_room_grows_families_all_the_same(monkeypatch):
    monkeypatch.setattr(family_pool, "POOL_SIZE", 40)
    pool = family_pool.Pool(SMALL_FAMILIES)
    pool._female = pool._female[:50]
    for numbers in (np.arange(4), np.arange(40), np.array([3, 3, 39])):
        assert_kept(pool.families(numbers), numbers, SMALL_FAMILIES)
    assert pool.full


@pytest.mark.parametrize("p_out", [0.0, 0.3, 1.0])
def test_a_pool_has_room_for_all(p_out):
    rules = FamilyRules(generations=2, couples=1, max_children=2, p_out=p_out)
    pool = family_pool.Pool(rules)
    pool.families(np.arange(family_pool.GROWN_ON_DEMAND))
    pool.families(np.arange(family_pool.POOL_SIZE))
    assert pool.n_families == family_pool.POOL_SIZE and not pool.full


def test_the_pool_of_the_paper_s_families_stays_small_and_larger_families_have_none():
    assert family_pool.has_pool(FamilyRules()) and family_pool.has_pool(FamilyRules(max_children=3))
    assert not family_pool.has_pool(FamilyRules(generations=10)) and not family_pool.has_pool(
        FamilyRules(max_children=10)
    )
    forest = grow(np.arange(2000), FamilyRules())
    assert len(forest.female) / 2000 * family_pool.POOL_SIZE * 15 < 150e6  # bytes: six int16 and three of one byte each


def best_time(what, repeats):
    """Processor time in seconds, the best of a few runs, since the machine may be busy."""
    what()
    spent = []
    for _ in range(repeats):
        begin = time.process_time()
        what()
        spent.append(time.process_time() - begin)
    return min(spent)


@pytest.mark.thorough
@pytest.mark.parametrize("trees", ["fresh", "fixed"])
def test_sampling_from_a_grown_pool_is_twenty_times_as_fast_as_training(trees):
    """One thread, iid batches of 128, against a training step of the demo's model on the same batch."""
    task, threads = mf.build_task("family-tree", trees=trees), torch.get_num_threads()
    model = mf.build_model("mapwm", vocab_size=task.vocab_size, d_model=64)
    optimizer = torch.optim.AdamW(model.parameters())
    batch = task.sample("iid", 128, generator())
    if trees == "fresh":
        pool = family_pool.pool_of(task.settings.rules())
        pool.families(np.arange(family_pool.GROWN_ON_DEMAND))
        pool.families(np.arange(family_pool.POOL_SIZE))

    def step():
        optimizer.zero_grad()
        task.loss(model(batch.tokens), batch).backward()
        optimizer.step()

    torch.set_num_threads(1)
    try:
        stream = generator(1)
        sampling, training = best_time(lambda: task.sample("iid", 128, stream), 20), best_time(step, 5)
    finally:
        torch.set_num_threads(threads)
    assert training / sampling > 20, f"{training / sampling:.1f} times, {128 * 64 / sampling:.2e} tokens a second"


@pytest.mark.thorough
def test_a_fresh_family_of_its_own_is_still_grown_at_400_000_tokens_a_second():
    """The speed while the pool is still empty."""
    numbers, rules = np.arange(128) + 2**40, FamilyRules()
    assert 128 * 64 / best_time(lambda: grow(numbers, rules), 8) > 400_000


@pytest.mark.parametrize(("max_people", "rows"), [(110, 1), thorough(1000, 3)])
def test_the_table_of_people_in_the_docs_is_what_is_measured(max_people, rows):
    document = (Path(__file__).parents[2] / "docs" / "families.md").read_text()
    lines = people_table(max_people).splitlines()
    assert len(lines) == 2 + rows
    for line in lines:
        assert line in document, line
