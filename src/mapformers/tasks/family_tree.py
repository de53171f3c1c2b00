"""`family-tree`: random walks from relative to relative; predict the name of a person met before (D.3).

A sequence is a₁ o₁ a₂ o₂ …: a relation, then the name of the person to whom it leads. The walk starts at one person of
the family, uniformly at random, who is not named. Each step follows one of the relations that the current person has,
uniformly at random. At the first meeting a person gets one of ``n_names`` names, uniformly at random. Every sequence
has a family of its own, or all sequences have the same family (``trees="fixed"``).
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
from mapformers.tasks.family_pool import POOL_SIZE, has_pool, pool_of, tables_of
from mapformers.tasks.task import Batch, register_task, require_names
from mapformers.tasks.walk import WalkTask, choice

NAMES = (
    *("Alex", "Robin", "Kim", "Sam", "Jo", "Lee", "Max", "Pat", "Toni", "Chris"),
    *("Jamie", "Noa", "Sasha", "Charlie", "Eden", "Ari", "Mika", "Dana", "Ray", "Nicky"),
)
PEOPLE_GROWN_TOGETHER = 2_000_000  # a larger batch is grown in parts, so that memory stays bounded
MAX_COUPLES_SHOWN = 40  # of a larger family, only couples with a named member are shown

# Tables by the set of relations that a person has, as six bits.
_POSSIBLE = np.array([[bits >> relation & 1 for relation in range(6)] for bits in range(64)], dtype=bool)
N_POSSIBLE = _POSSIBLE.sum(axis=1)  # (64,)
NTH_POSSIBLE = np.argsort(~_POSSIBLE, axis=1, kind="stable")  # (64, 6): the possible relations first


@dataclass(frozen=True)
class FamilySettings:
    """The distribution of one split."""

    steps: int = 32
    """Steps of a walk. A step is a relation and a name, so 32 steps are 64 tokens."""
    generations: int = 5
    """Number of generations after the founders."""
    couples: int = 3
    """Number of founding couples."""
    max_children: int = 4
    """A couple has 1 to this many children, uniformly at random."""
    p_out: float = 0.3
    """Probability that a child marries somebody from outside the family, who has no parents."""
    n_names: int = 10
    """Number of different names; each person has one of them, uniformly at random."""
    trees: Literal["fresh", "fixed"] = "fresh"
    """fresh: every sequence has a family of its own; fixed: all sequences have the same family, with new names."""
    tree_seed: int = 0
    """The number of the family with trees=fixed."""

    def __post_init__(self) -> None:
        for name in ("steps", "n_names"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}.")
        require_names("n_names", self.n_names)
        require(self.trees in ("fresh", "fixed"), f"trees must be fresh or fixed, not {self.trees!r}.")
        require(0 <= self.tree_seed < 2**53, f"tree_seed must lie between 0 and 2^53, not be {self.tree_seed}.")
        self.rules()

    def rules(self) -> FamilyRules:
        """The part of the settings that families depend on."""
        return FamilyRules(self.generations, self.couples, self.max_children, self.p_out)


class FamilyTree(WalkTask[FamilySettings]):
    """Tokens: the six relations, then the names. Every meeting with a person met before is scored.

    ``batch.info`` has, besides ``first_visit`` and ``revisit``:

    ``tree``        (B,) the number of the family; ``family.grow(tree, rules)`` grows it.
    ``start``       (B,) the person at whom the walk starts.
    ``person``      (B, T) the person met at each step; ``female`` and ``generation`` (B, T) describe that person.
    ``relatives``   (B, T, 6) the person to whom each relation would lead from there; -1 if to nobody.
    """

    uniform_dtype = torch.float64  # one number chooses among all families without a pool: 2^24 values are too few

    def __init__(self, settings: FamilySettings):
        super().__init__(settings)
        self.token_names = [*RELATIONS, *person_names(settings.n_names)]
        self.action_ids = list(range(len(RELATIONS)))
        self.reference_players = ("logician",) if settings.trees == "fresh" else ("locator",)
        twice = {"steps": 2 * settings.steps}
        self.splits = {
            "iid": {},
            "ood-sparse": twice,
            "ood-deep": {**twice, "generations": 2 * settings.generations},
        }

    def split_settings(self, split: str | Mapping[str, Any] | FamilySettings) -> FamilySettings:
        settings = super().split_settings(split)
        same = settings.n_names == self.settings.n_names
        require(same, "A split must keep n_names, which decides the tokens; build another task to change it.")
        return settings

    def numbers_per_sequence(self, settings: FamilySettings) -> int:
        """The family, the first person, the relation at each step, and the name of each person."""
        return 2 + 2 * settings.steps

    def draw(self, uniform: Tensor, settings: FamilySettings) -> Batch:
        rows = max(1, int(PEOPLE_GROWN_TOGETHER / settings.rules().expected_people()))
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
        """The walk as text, and the family with the names of the people who were met."""
        batch = self.sample(split, 1, generator)
        steps = _steps_as_text(batch, 0, self.token_names)
        lines = [", ".join(steps[i : i + 6]) for i in range(0, len(steps), 6)]
        forest = family_of(batch, 0, self.split_settings(split))
        legend = "[ ] met again: scored; ♀ ♂ with a number, = the spouse, + from outside; children by age"
        return "\n".join([*lines, "", *describe(forest, self.names_of(batch, 0)), "", legend])

    def names_of(self, batch: Batch, row: int, everyone: int = 0) -> dict[int, str]:
        """The number and the name of everyone met in one sequence.

        ``everyone`` is the size of the family if people who were not met shall have a name too.
        """
        tokens = [*batch.tokens[row].tolist(), int(batch.targets[row, -1])][1::2]
        others = generator(0, "names", int(batch.info["tree"][row]) % 2**32)
        drawn = torch.randint(len(RELATIONS), self.vocab_size, (everyone,), generator=others)
        name_of = {**dict(enumerate(drawn.tolist())), **dict(zip(batch.info["person"][row].tolist(), tokens))}
        return {person: self.token_names[token] for person, token in name_of.items()}


def family_of(batch: Batch, row: int, settings: FamilySettings) -> Forest:
    """The family of one sequence of a batch."""
    return grow_one(int(batch.info["tree"][row]), settings.rules())


def person_names(n: int) -> list[str]:
    """n names that women and men have in common."""
    return [NAMES[i % len(NAMES)] + (str(1 + i // len(NAMES)) if i >= len(NAMES) else "") for i in range(n)]


def _walk(uniform: np.ndarray, settings: FamilySettings) -> dict[str, np.ndarray]:
    """Draw a family for each sequence, and walk in all of them at once."""
    rules = settings.rules()
    if settings.trees == "fixed":
        tree = np.full(len(uniform), settings.tree_seed)
        one = tables_of(grow_one(settings.tree_seed, rules))
        tables = replace(one, first=np.zeros_like(tree), people=np.full_like(tree, one.people[0]))
    elif has_pool(rules):
        tree = (uniform[:, 0] * POOL_SIZE).astype(np.int64)
        tables = pool_of(rules).families(tree)
    else:
        tree = (uniform[:, 0] * 2**53).astype(np.int64)
        tables = tables_of(grow(tree, rules))
    first = tables.first
    start = here = _choice(uniform[:, 1], tables.people)
    visits, actions = [], []
    for draw in uniform[:, 2 : 2 + settings.steps].T:
        possible = tables.possible[first + here]
        action = NTH_POSSIBLE[possible, _choice(draw, N_POSSIBLE[possible])]
        here = tables.relatives[first + here, action].astype(np.int64)
        actions.append(action)
        visits.append(here)
    person = np.stack(visits, axis=1)
    rows = first[:, None] + person
    return {
        "action": np.stack(actions, axis=1),
        "tree": tree,
        "start": start,
        "person": person,
        "relatives": tables.relatives[rows].astype(np.int32),
        "female": tables.female[rows],
        "generation": tables.generation[rows].astype(np.int32),
    }


def _choice(uniform: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Whole numbers from 0 to n − 1, uniformly at random, from uniform random numbers in [0, 1)."""
    return np.minimum((uniform * n).astype(np.int64), n - 1)


def _steps_as_text(batch: Batch, row: int, token_names: Sequence[str]) -> list[str]:
    """Steps such as "her mother Kim", or "her mother [Kim]" if Kim was met before."""
    sequence = [*batch.tokens[row].tolist(), int(batch.targets[row, -1])]
    first, female = batch.info["first_visit"][row].tolist(), batch.info["female"][row].tolist()
    steps = []
    for step, (action, name) in enumerate(zip(sequence[0::2], sequence[1::2])):
        whose = "someone's" if step == 0 else ("her" if female[step - 1] else "his")
        found = token_names[name]
        steps.append(f"{whose} {token_names[action]} {f'[{found}]' if first[step] < step else found}")
    return steps


def describe(forest: Forest, names: Mapping[int, str]) -> list[str]:
    """One family as text, one line for each couple with children. Large families are cut to the named people."""
    relatives = forest.relatives

    def person(number: int) -> str:
        return f"{number}{'♀' if forest.female[number] else '♂'} {names.get(number, '·')}"

    def child(number: int) -> str:
        spouse = int(relatives[number, SPOUSE])
        if spouse < 0:
            return person(number)
        return f"{person(number)} = {person(spouse)}{'+' if relatives[spouse, MOTHER] < 0 else ''}"

    children_of: dict[tuple[int, int], list[int]] = {}
    for number, (mother, father) in enumerate(relatives[:, [MOTHER, FATHER]].tolist()):
        if mother >= 0:
            children_of.setdefault((mother, father), []).append(number)
    named = {couple for couple, children in children_of.items() if names.keys() & {*couple, *children}}
    lines, generation = [], -1
    for couple, children in children_of.items():
        if len(children_of) <= MAX_COUPLES_SHOWN or couple in named:
            if generation < (generation := int(forest.generation[children[0]])):
                lines.append(f"generation {generation}")
            lines.append(f"  {person(couple[0])} and {person(couple[1])}: {', '.join(map(child, children))}")
    if len(children_of) > MAX_COUPLES_SHOWN:
        lines.append(f"and {len(children_of) - len(named)} more couples, of whom nobody was met")
    return lines


register_task(
    "family-tree",
    settings=FamilySettings,
    build=FamilyTree,
)
