"""`family-tree`: walks among relatives; who is met on coming back? (paper, D.3)

A sequence is a₁ o₁ a₂ o₂ …: a relation, then the name of the person it leads to. It starts with anyone of a family, all
alike, who is not named; of the six relations one is taken among those the person has, all alike. Names are drawn from
``n_names`` when a person is first met. For every sequence a family is drawn, or all share one (``trees="fixed"``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from mapformers.errors import UserError, require
from mapformers.seeding import generator
from mapformers.tasks.family import FATHER, MOTHER, RELATIONS, SPOUSE, FamilyRules, Forest, grow, grow_one
from mapformers.tasks.family_pool import POOL, has_pool, homes_of, pool
from mapformers.tasks.task import Batch, register_task, require_names
from mapformers.tasks.walk import WalkTask, choice

NAMES = (
    *("Alex", "Robin", "Kim", "Sam", "Jo", "Lee", "Max", "Pat", "Toni", "Chris"),
    *("Jamie", "Noa", "Sasha", "Charlie", "Eden", "Ari", "Mika", "Dana", "Ray", "Nicky"),
)
PEOPLE_AT_ONCE = 2_000_000  # grown together, so that memory stays bounded whatever the batch

_POSSIBLE = np.array([[bits >> relation & 1 for relation in range(6)] for bits in range(64)], dtype=bool)
N_POSSIBLE = _POSSIBLE.sum(axis=1)  # by the set of relations a person has, as bits
NTH_POSSIBLE = np.argsort(~_POSSIBLE, axis=1, kind="stable")  # (64, 6): the possible ones first


@dataclass(frozen=True)
class FamilySettings:
    """The distribution one split is drawn from."""

    steps: int = 32
    """Steps of a walk: relation/name pairs, so 32 steps are 64 tokens."""
    generations: int = 5
    """Generations after the founders."""
    couples: int = 3
    """Founding couples."""
    max_children: int = 4
    """A couple has 1 to this many children, all alike."""
    p_out: float = 0.3
    """Probability that a child marries someone from outside, who has no parents."""
    n_names: int = 10
    """Names there are; each person's is drawn from them."""
    trees: Literal["fresh", "fixed"] = "fresh"
    """A family drawn for every sequence, or one family with new names for every sequence."""
    tree_seed: int = 0
    """Which family it is when they are fixed."""

    def __post_init__(self) -> None:
        for name in ("steps", "n_names"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}.")
        require_names("n_names", self.n_names)
        require(self.trees in ("fresh", "fixed"), f"trees must be fresh or fixed, not {self.trees!r}.")
        require(0 <= self.tree_seed < 2**53, f"tree_seed must lie between 0 and 2^53, not be {self.tree_seed}.")
        self.rules()

    def rules(self) -> FamilyRules:
        return FamilyRules(self.generations, self.couples, self.max_children, self.p_out)


class FamilyTree(WalkTask[FamilySettings]):
    """Tokens: the six relations, then the names. Scored are all meetings with someone met before.

    ``batch.info``: ``tree`` (B,) and ``start`` (B,) number the family and the person a walk begins with, so that
    ``family.grow(tree, rules)`` gives it; ``person`` (B, T) is who is met; ``relatives`` (B, T, 6) to whom each
    relation would lead from there, -1 if to nobody; ``female``, ``generation`` (B, T) of those met.
    """

    uniform_dtype = torch.float64  # large families have no pool, and are chosen by one number: 2^24 were too few

    def __init__(self, settings: FamilySettings):
        super().__init__(settings)
        self.token_names = [*RELATIONS, *person_names(settings.n_names)]
        self.action_ids = list(range(len(RELATIONS)))
        self.beside = ("logician",) if settings.trees == "fresh" else ("locator",)
        twice = {"steps": 2 * settings.steps}
        self.splits = {
            "iid": {},
            "ood-sparse": twice,
            "ood-deep": {**twice, "generations": 2 * settings.generations},
        }

    def split_settings(self, split: str | Mapping[str, Any]) -> FamilySettings:
        settings = super().split_settings(split)
        same = settings.n_names == self.settings.n_names
        require(same, "A split must keep n_names, or its tokens would be others; build another task for that.")
        return settings

    def numbers_per_sequence(self, settings: FamilySettings) -> int:
        """The family, who is first, which relation is followed at each step, and how each person is called."""
        return 2 + 2 * settings.steps

    def draw(self, uniform: Tensor, settings: FamilySettings) -> Batch:
        rows = max(1, int(PEOPLE_AT_ONCE / settings.rules().expected_people()))
        parts = [_walk(part.numpy(), settings) for part in uniform.split(rows)]
        info = {name: torch.from_numpy(np.concatenate([part[name] for part in parts])) for name in parts[0]}
        names = len(RELATIONS) + choice(uniform[:, 2 + settings.steps :], settings.n_names)
        return self.walk_batch(info.pop("action"), info["person"], names, **info)

    def trace(self, actions: Sequence[int], settings: FamilySettings) -> list[Any]:
        raise UserError("Relations alone do not say who is met; ask the players `perfect` or `logician` of this task.")

    def model_defaults(self) -> dict[str, Any]:
        """# paper: one layer, one head of 192; here: rank 2 and base 64 are our reading"""
        return {"d_model": 192, "n_heads": 1, "n_layers": 1, "rank": 2, "base": 64.0}

    def show(self, split: str | Mapping[str, Any], generator: torch.Generator) -> str:
        """The walk in words, and the family, with the names of those who were met."""
        batch = self.sample(split, 1, generator)
        said = _said(batch, 0, self.token_names)
        lines = [", ".join(said[i : i + 6]) for i in range(0, len(said), 6)]
        forest = family_of(batch, 0, self.split_settings(split))
        legend = "[ ] met again: scored; ♀ ♂ with a number, = the spouse, + from outside; children by age"
        return "\n".join([*lines, "", *describe(forest, self.names_of(batch, 0)), "", legend])

    def names_of(self, batch: Batch, row: int, everyone: int = 0) -> dict[int, str]:
        """The names of those met in one sequence, by their numbers; of ``everyone`` in a family of that many, as others
        would have been called."""
        tokens = [*batch.tokens[row].tolist(), int(batch.targets[row, -1])][1::2]
        others = generator(0, "names", int(batch.info["tree"][row]) % 2**32)
        drawn = torch.randint(len(RELATIONS), self.vocab_size, (everyone,), generator=others)
        called = {**dict(enumerate(drawn.tolist())), **dict(zip(batch.info["person"][row].tolist(), tokens))}
        return {person: self.token_names[token] for person, token in called.items()}


def family_of(batch: Batch, row: int, settings: FamilySettings) -> Forest:
    """The family a sequence was walked in."""
    return grow_one(int(batch.info["tree"][row]), settings.rules())


def person_names(n: int) -> list[str]:
    """Names that say nothing of the sex."""
    return [NAMES[i % len(NAMES)] + (str(1 + i // len(NAMES)) if i >= len(NAMES) else "") for i in range(n)]


def _walk(uniform: np.ndarray, settings: FamilySettings) -> dict[str, np.ndarray]:
    """Draw the families of some sequences and walk in all of them at once."""
    rules = settings.rules()
    if settings.trees == "fixed":
        tree = np.full(len(uniform), settings.tree_seed)
        one = homes_of(grow_one(settings.tree_seed, rules))
        homes = replace(one, first=np.zeros_like(tree), people=np.full_like(tree, one.people[0]))
    elif has_pool(rules):
        tree = (uniform[:, 0] * POOL).astype(np.int64)
        homes = pool(rules).homes(tree)
    else:
        tree = (uniform[:, 0] * 2**53).astype(np.int64)
        homes = homes_of(grow(tree, rules))
    first = homes.first
    start = here = _choice(uniform[:, 1], homes.people)
    visits, actions = [], []
    for draw in uniform[:, 2 : 2 + settings.steps].T:
        possible = homes.possible[first + here]
        action = NTH_POSSIBLE[possible, _choice(draw, N_POSSIBLE[possible])]
        here = homes.relatives[first + here, action].astype(np.int64)
        actions.append(action)
        visits.append(here)
    person = np.stack(visits, axis=1)
    flat = first[:, None] + person
    return {
        "action": np.stack(actions, axis=1),
        "tree": tree,
        "start": start,
        "person": person,
        "relatives": homes.relatives[flat].astype(np.int32),
        "female": homes.female[flat],
        "generation": homes.generation[flat].astype(np.int32),
    }


def _choice(uniform: np.ndarray, n: np.ndarray) -> np.ndarray:
    """A whole number below n from a uniform one in [0, 1)."""
    return np.minimum((uniform * n).astype(np.int64), n - 1)


def _said(batch: Batch, row: int, token_names: Sequence[str]) -> list[str]:
    """ "her mother Kim, …", with [Kim] where she was met before."""
    sequence = [*batch.tokens[row].tolist(), int(batch.targets[row, -1])]
    first, female = batch.info["first_visit"][row].tolist(), batch.info["female"][row].tolist()
    said = []
    for step, (action, name) in enumerate(zip(sequence[0::2], sequence[1::2])):
        whose = "someone's" if step == 0 else ("her" if female[step - 1] else "his")
        found = token_names[name]
        said.append(f"{whose} {token_names[action]} {f'[{found}]' if first[step] < step else found}")
    return said


def describe(forest: Forest, names: Mapping[int, str]) -> list[str]:
    """One family as text, a line for each couple with children; of a large one, only where somebody has a name."""
    relatives, most = forest.relatives, 40

    def person(number: int) -> str:
        return f"{number}{'♀' if forest.female[number] else '♂'} {names.get(number, '·')}"

    def child(number: int) -> str:
        spouse = int(relatives[number, SPOUSE])
        if spouse < 0:
            return person(number)
        return f"{person(number)} = {person(spouse)}{'+' if relatives[spouse, MOTHER] < 0 else ''}"

    homes: dict[tuple[int, int], list[int]] = {}
    for number, (mother, father) in enumerate(relatives[:, [MOTHER, FATHER]].tolist()):
        if mother >= 0:
            homes.setdefault((mother, father), []).append(number)
    named = {home for home, children in homes.items() if names.keys() & {*home, *children}}
    lines, generation = [], -1
    for home, children in homes.items():
        if len(homes) <= most or home in named:
            if generation < (generation := int(forest.generation[children[0]])):
                lines.append(f"generation {generation}")
            lines.append(f"  {person(home[0])} and {person(home[1])}: {', '.join(map(child, children))}")
    if len(homes) > most:
        lines.append(f"and {len(homes) - len(named)} more couples whose homes were not entered")
    return lines


register_task(
    "family-tree",
    summary="Walks among relatives in family trees: predict the name of a person on meeting them again.",
    settings=FamilySettings,
    build=FamilyTree,
)
