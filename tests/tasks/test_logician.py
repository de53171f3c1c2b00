"""The logician: each axiom by an example, always right if certain, and certain wherever it can be."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import mapformers as mf
from helpers import thorough
from mapformers.players.kinship import Contradiction, Kinship
from mapformers.players.logician import Logician, certainty, certainty_row
from mapformers.players.relations_only import RelationsOnly
from mapformers.seeding import generator
from mapformers.tasks.family import FamilyRules, grow

M, F, S, OL, Y, C = range(6)  # mother, father, spouse, older, younger, oldest child
DOCS = Path(__file__).parents[2] / "docs"
WORLDS = [(3, "fresh"), (4, "fresh"), (10, "fresh"), (3, "fixed"), (4, "fixed")]


def path(kinship, relations, start=0):
    """The person to whom each relation leads, one after another."""
    people = [kinship.find(start)]
    for relation in relations:
        people.append(kinship.follow(people[-1], relation))
    return people


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([S, S], []),
        ([OL, Y], []),
        ([Y, OL], []),
        ([M, S], [F]),
        ([F, S], [M]),
        ([OL, M], [M]),
        ([Y, Y, F], [F]),
        ([S, C], [C]),
        ([M, C], [F, C]),
        ([OL, M, C], [F, C]),
        ([M, C, M], [M]),
        ([M, C, F], [F]),
        ([M, S, C, Y, OL, M, S], [F]),
        ([M, M, S, C, F], [M, F]),
        ([F, S, OL, M], [M, M]),
        ([C, Y, OL], [C]),
    ],
    ids=lambda relations: "".join("MFSOYC"[r] for r in relations) or "self",
)
def test_the_axioms(one, other):
    kinship = Kinship()
    first = path(kinship, one)[-1]
    assert kinship.find(first) == path(kinship, other)[-1]
    again = Kinship()  # in the other order
    second = path(again, other)[-1]
    assert again.find(second) == path(again, one)[-1]


@pytest.mark.parametrize(
    ("one", "other"),
    [([M, C], []), ([M, C, Y], []), ([C, M], []), ([C, M, S], []), ([OL], [Y]), ([S, M], [M]), ([M, M], [F, M])],
    ids=lambda relations: "".join("MFSOYC"[r] for r in relations) or "self",
)
def test_what_may_be_otherwise_is_not_concluded(one, other):
    kinship = Kinship()
    first = path(kinship, one)[-1]
    assert kinship.find(first) != path(kinship, other)[-1]


def test_the_sex_once_known_says_which_parent_one_is():
    """The mother of a person's child is that person or the spouse; it is that person if she is known to be a mother."""
    kinship = Kinship()
    person = path(kinship, [OL, M])[-1]  # a mother
    assert kinship.follow(kinship.follow(person, C), M) == person
    unknown = Kinship()
    child = unknown.follow(0, C)
    mother = unknown.follow(child, M)
    assert unknown.find(0) != mother
    unknown._set_sex(0, 1)
    unknown._merge_all()
    assert unknown.find(0) == unknown.find(mother)
    assert unknown.follow(0, S) == unknown.follow(child, F)


def test_a_person_cannot_have_two_names_nor_two_sexes():
    kinship = Kinship()
    mother, father = kinship.follow(0, M), kinship.follow(0, F)
    with pytest.raises(Contradiction):
        kinship.identify(mother, father)
    kinship = Kinship()
    one, other = path(kinship, [OL])[-1], path(kinship, [Y])[-1]
    kinship.name[one], kinship.name[other] = 6, 7
    with pytest.raises(Contradiction):
        kinship.identify(one, other)


@pytest.mark.parametrize(("max_children", "trees"), WORLDS)
def test_who_is_found_to_be_the_same_is_the_same(max_children, trees):
    """500 walks: people merged by the closure, at any later time, are one person of the tree. Names are not used."""
    task = mf.build_task("family-tree", max_children=max_children, trees=trees)
    n = 500 if max_children < 10 else 150
    batch = task.sample("ood-sparse", n, generator(11, "walks"))
    actions = torch.cat((batch.tokens, batch.targets[:, -1:]), dim=1)[:, 0::2].tolist()
    for taken, start, met in zip(actions, batch.info["start"].tolist(), batch.info["person"].tolist()):
        kinship = Kinship()
        nodes = path(kinship, taken)
        truth = {}
        for node, person in zip(nodes, [start, *met]):
            assert truth.setdefault(kinship.find(node), person) == person


def test_what_is_not_certain_can_be_otherwise():
    """Completeness on short walks: if two are the same person, but not provably, then they differ in another family.

    Families have up to ten children, so that their number proves nothing. Walks start at everyone of 60 families.
    """
    rules = FamilyRules(generations=4, max_children=10, p_out=0.3)
    others = grow(np.arange(60), rules)
    owner = np.repeat(np.arange(60), np.diff(others.first))
    task = mf.build_task("family-tree", steps=5, generations=4)
    batch = task.sample("iid", 600, generator(12, "walks"))
    actions = torch.cat((batch.tokens, batch.targets[:, -1:]), dim=1)[:, 0::2].tolist()
    doubted = 0
    for taken, start, met in zip(actions, batch.info["start"].tolist(), batch.info["person"].tolist()):
        kinship = Kinship()
        nodes = [kinship.find(node) for node in path(kinship, taken)]
        people = [start, *met]
        paths = [np.arange(len(owner))]
        for action in taken:
            here = paths[-1]
            there = others.relatives[here, action]
            paths = [before[there >= 0] for before in paths]
            paths.append((others.first[owner[here]] + there)[there >= 0])
        assert len(paths[-1]) > 0
        for one in range(6):
            for other in range(one):
                if nodes[one] == nodes[other]:
                    assert (paths[one] == paths[other]).all()
                elif people[one] == people[other]:
                    doubted += 1
                    assert (paths[one] != paths[other]).any(), (taken, one, other)
    assert doubted > 200


@pytest.mark.parametrize(
    ("max_children", "trees", "split"),
    [
        case if case[2] == "iid" or case[:2] == (4, "fresh") else thorough(*case)
        for case in [(*world, split) for world in WORLDS for split in ("iid", "ood-sparse", "ood-deep")]
        if case[0] < 10 or case[2] == "iid"
    ],
)
def test_never_wrong_where_certain_and_a_good_guess_otherwise(monkeypatch, max_children, trees, split):
    """Certain answers are always right, and there is none when somebody new is met."""
    task = mf.build_task("family-tree", max_children=max_children, trees=trees)
    batch = task.sample(split, 128 if split == "iid" else 48, generator(13, "walks"))
    logician = mf.players.build("logician", task, split)
    assert isinstance(logician, Logician)
    answers, certain = logician.play(batch.tokens)
    assert bool((answers == batch.targets)[certain].all())
    assert not bool((certain & ~batch.score_mask).any())
    monkeypatch.setattr(logician, "play", {batch.tokens: (answers, certain)}.__getitem__)  # what it has just played
    found = logician.certainty(batch)
    assert found.right_if_certain == 1
    assert 0.5 < found.certain < 0.8
    assert found.right_if_guessed > 0.9 and found.accuracy > 0.965
    assert found.certain.count == found.accuracy.count == int(batch.score_mask.sum())
    assert found.right_if_certain.count + found.right_if_guessed.count == found.accuracy.count


def best_answers(sequence, forest, base, choices, weight, n_names):
    """The best name at each step, by Bayes' rule over everyone in many families as the start of this walk.

    Of everyone in them: ``base``, where the family begins; ``choices``, how many relations there are to follow; and
    ``weight``, the chance to be the start.
    """
    here, paths, called, answers = np.arange(len(base)), [], [], []
    for step in range(0, len(sequence), 2):
        relative = forest.relatives[here, sequence[step]]
        there, weight = (base[here] + relative)[relative >= 0], (weight / choices[here])[relative >= 0]
        paths = [path[relative >= 0] for path in paths]
        name = np.full(len(there), -1)
        for path_, token in zip(paths, called):
            name = np.where(path_ == there, token, name)
        answers.append(int(np.bincount(name[name >= 0], weight[name >= 0], minlength=1).argmax()))
        if step + 1 < len(sequence):
            called.append(sequence[step + 1])
            weight = np.where(name >= 0, weight * (name == called[-1]), weight / n_names)
            here, paths = there[weight > 0], [path[weight > 0] for path in [*paths, there]]
            weight = weight[weight > 0]
    return answers


def test_its_guesses_are_nearly_the_best_there_are():
    """On short walks Bayes' rule can be carried out over thousands of families; it is hardly more often right."""
    task = mf.build_task("family-tree", steps=7, max_children=3)
    forest = grow(10**9 + np.arange(3000), task.settings.rules())
    batch = task.sample("iid", 200, generator(16, "walks"))
    answers, certain = mf.players.build("logician", task).play(batch.tokens)
    size, choices = np.diff(forest.first), (forest.relatives >= 0).sum(axis=1)
    base, start = np.repeat(forest.first[:-1], size), 1 / np.repeat(size, size)
    best = torch.tensor([best_answers(walk, forest, base, choices, start, 10) for walk in batch.tokens.tolist()])
    scored, targets, answers = batch.score_mask[:, 0::2], batch.targets[:, 0::2], answers[:, 0::2]
    assert int(scored.sum()) > 400
    assert bool((best == answers)[scored & certain[:, 0::2]].all())
    assert float((best == answers)[scored].float().mean()) > 0.97
    right, most = ((said == targets)[scored].float().mean() for said in (answers, best))
    assert 0.97 < right > most - 0.01


def test_evaluate_measures_it_like_any_model():
    task = mf.build_task("family-tree")
    for split in task.splits:
        logician = mf.players.build("logician", task, split)
        scores = mf.evaluate(logician, task, split, n_sequences=48, seed=3)
        assert scores["accuracy"] == certainty(task, split, n_sequences=48, seed=3).accuracy
        perfect = mf.evaluate(mf.players.build("perfect", task, split), task, split, n_sequences=48, seed=3)
        lag = mf.evaluate(mf.players.build("best-lag", task, split), task, split, n_sequences=48, seed=3)
        assert lag["accuracy"] < 0.6 < scores["accuracy"] < perfect["accuracy"] == 1


def test_it_sees_no_later_token():
    task = mf.build_task("family-tree")
    tokens = task.sample("iid", 6, generator(14, "walks")).tokens
    logician = mf.players.build("logician", task)
    whole = logician(tokens)
    for length in (1, 2, 17, 40):
        assert torch.equal(logician(tokens[:, :length]), whole[:, :length])


def test_renaming_everyone_renames_the_answers():
    """A permutation of the names changes no certain answer, and no guess except ties."""
    task = mf.build_task("family-tree")
    batch = task.sample("iid", 48, generator(15, "walks"))
    logician = mf.players.build("logician", task)
    shuffled = torch.cat((torch.arange(6), 6 + torch.randperm(10, generator=generator(0, "names"))))
    answers, certain = logician.play(batch.tokens)
    renamed, as_certain = logician.play(shuffled[batch.tokens])
    assert torch.equal(certain, as_certain)
    assert torch.equal(renamed[batch.score_mask], shuffled[answers][batch.score_mask])


def test_the_guess_of_the_issue():
    """The mother's oldest child is the person or an older sibling; if it was met before, it is the person."""
    task = mf.build_task("family-tree")
    name = dict(zip(task.token_names, range(task.vocab_size)))
    walk = ["spouse", "Kim", "spouse", "Sam", "mother", "Lee", "oldest child"]
    tokens = torch.tensor([[name[word] for word in walk]])
    answers, certain = mf.players.build("logician", task).play(tokens)
    assert task.token_names[int(answers[0, -1])] == "Sam" and not bool(certain[0, -1])
    later = torch.tensor([[name[word] for word in [*walk, "Sam", "spouse"]]])  # by the name it was: then Kim is next
    answers, certain = mf.players.build("logician", task).play(later)
    assert task.token_names[int(answers[0, -1])] == "Kim" and not bool(certain[0, -1])


@pytest.mark.parametrize("n_names", [1, 2])
@pytest.mark.parametrize("max_children", [1, 2])
def test_it_plays_in_the_smallest_worlds(n_names, max_children):
    task = mf.build_task("family-tree", n_names=n_names, max_children=max_children, couples=2, p_out=0.7, steps=24)
    found = certainty(task, n_sequences=64)
    assert found.right_if_certain == 1
    assert found.accuracy == 1 if n_names == 1 else found.accuracy > 0.8


@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        ([[6, 0, 7]], "these tokens are something else"),
        ([[S, 6, S, 7, S, 8]], None),
        ([[S, 6, S, 7, S, 8, S]], "two names"),
    ],
    ids=["order", "two names at the end", "two names"],
)
def test_what_is_no_walk_is_refused_in_one_sentence(tokens, sentence):
    logician = mf.players.build("logician", mf.build_task("family-tree"))
    with pytest.raises(mf.UserError, match=sentence or "two names"):
        logician(torch.tensor(tokens))


def test_a_row_of_the_table_has_a_cell_for_each_of_its_columns():
    task = mf.build_task("family-tree")
    cells = certainty_row(task, "iid", n_sequences=8).split(" | ")
    header = re.search(r"^\| trees \| max_children .*$", (DOCS / "families.md").read_text(), re.MULTILINE)
    assert len(cells) == len(header[0].split(" | ")) and cells[:3] == ["| fresh", "4", "iid"]
    found = certainty(task, "iid", n_sequences=8)
    figures = (found.certain, found.right_if_certain, found.right_if_guessed, found.accuracy)
    assert cells[3:7] == [f"{figure:.3f}" for figure in figures]


@pytest.mark.thorough
def test_the_table_of_the_docs_is_what_is_measured():
    document = (DOCS / "families.md").read_text()
    for trees in ("fresh", "fixed"):
        assert certainty_row(mf.build_task("family-tree", trees=trees), "iid") in document


def test_relations_only_does_not_learn_from_names_who_somebody_is():
    """A, the spouse B, their oldest child and its mother: her name tells which of the two she is, relations do not."""
    task = mf.build_task("family-tree")
    a, b, child = 6, 7, 8
    walks = [[OL, a, S, b, C, child, M, mother, C, child, F] for mother in (a, b)]
    logician, blind = (
        player(task, task.split_settings("iid")).play(torch.tensor(walks))[0][:, -1].tolist()
        for player in (Logician, RelationsOnly)
    )
    assert logician == [b, a] and blind[0] == blind[1]


def test_relations_only_proves_what_the_logician_proves_and_guesses_worse():
    task = mf.build_task("family-tree")
    batch = task.sample("iid", 24, generator(0, "evaluate"))
    both = [player(task, task.split_settings("iid")).certainty(batch) for player in (Logician, RelationsOnly)]
    assert both[1].right_if_certain == 1.0 and both[0].certain == both[1].certain
    assert both[1].right_if_guessed < both[0].right_if_guessed - 0.03
