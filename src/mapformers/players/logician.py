"""The logician: what can be known of a walk among relatives from its tokens alone, and the best guess at the rest.

A relation leads for *certain* to someone met before when the axioms of kinship say so (:mod:`.kinship`), whatever the
names. Otherwise it is a guess: whoever goes up to a mother and down to her oldest child is either back or with an older
sibling. Then the logician keeps a few beliefs, each a family in which everyone met is someone or other for good,
weighs them by how likely they are and drops those that names contradict; together they vote. A belief is not asked
how likely somebody new is, since meetings with new people are not scored.

Its accuracy is the ceiling printed beside results on ``trees="fresh"``.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mapformers.errors import UserError, require
from mapformers.players.beliefs import Belief
from mapformers.players.family import Locator
from mapformers.players.kinship import UNKNOWN, Contradiction, Kinship
from mapformers.players.player import Player, register_player
from mapformers.players.simple import BestLag
from mapformers.seeding import generator
from mapformers.tasks.family import RELATIONS
from mapformers.tasks.family_tree import FamilySettings
from mapformers.tasks.task import Batch, Metric, Task, build_task

BELIEFS = 8  # 32 are no better


@dataclass(frozen=True)
class Certainty:
    """What the logician knows of the scored targets, and how often it is right."""

    certain: Metric  # share of scored targets that follow for certain
    right_if_certain: Metric
    right_if_guessed: Metric
    accuracy: Metric


class Logician(Player):
    """Sees only tokens. What is not asked of it (the next relation) it answers with token 0.

    Answers are right or wrong as they come; :meth:`certainty` says how many of them were certain.
    """

    settings: FamilySettings

    def __call__(self, tokens: Tensor) -> Tensor:
        return self.certain(self.play(tokens)[0])

    def play(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The answers and which of them are certain, (B, L) each."""
        answers, certain = torch.zeros_like(tokens), torch.zeros_like(tokens, dtype=torch.bool)
        for row, sequence in enumerate(tokens.tolist()):
            require(
                all((token < len(RELATIONS)) == (place % 2 == 0) for place, token in enumerate(sequence)),
                "The logician reads a relation, a name, a relation, a name …; these tokens are something else.",
            )
            try:
                for step, (answer, known) in enumerate(self._follow(sequence)):
                    answers[row, 2 * step], certain[row, 2 * step] = answer, known
            except Contradiction:
                raise UserError("No family has such a walk: somebody would have two names.") from None
        return answers, certain

    def certainty(self, batch: Batch) -> Certainty:
        answers, certain = self.play(batch.tokens)
        right, scored = answers == batch.targets, batch.score_mask
        return Certainty(
            certain=Metric.share(certain, scored),
            right_if_certain=Metric.share(right, scored & certain),
            right_if_guessed=Metric.share(right, scored & ~certain),
            accuracy=Metric.share(right, scored),
        )

    def _follow(self, sequence: list[int]) -> Iterator[tuple[int, bool]]:
        """For every relation the name it should lead to, and whether that is certain."""
        logic, here = Kinship(), 0
        beliefs = [Belief(self.settings.max_children)]
        for place in range(0, len(sequence), 2):
            here = logic.follow(here, sequence[place])
            votes: defaultdict[int, float] = defaultdict(float)
            ways: list[Belief] = []
            strangers: list[Belief] = []
            for belief in [belief for belief in beliefs if belief.leads(sequence[place])]:
                again, new = ([belief], None) if belief.name[belief.here] != UNKNOWN else belief.continuations()
                for way in again:
                    votes[way.name[way.here]] += way.weight
                ways += again
                strangers += [new] if new else []
            known = logic.name[here]
            guess = max(votes, key=votes.__getitem__, default=len(RELATIONS))
            yield (guess, False) if known == UNKNOWN else (known, True)
            if place + 1 < len(sequence):
                seen = sequence[place + 1]
                if known not in (UNKNOWN, seen):
                    raise Contradiction
                logic.name[here] = seen
                beliefs = self._weigh(ways, strangers, seen) or [Belief.of(logic, here, self.settings.max_children)]

    def _weigh(self, ways: list[Belief], strangers: list[Belief], seen: int) -> list[Belief]:
        """The likeliest beliefs, once the name is seen: anyone new has it with 1/n_names."""
        kept = [belief for belief in ways if belief.name[belief.here] == seen]
        for belief in strangers:
            belief.name[belief.here] = seen
            belief.weight /= self.settings.n_names
            kept.append(belief)
        kept = sorted(kept, key=lambda belief: -belief.weight)[:BELIEFS]
        total = sum(belief.weight for belief in kept)
        for belief in kept:
            belief.weight /= total
        return kept


def certainty(
    task: Task[Any], split: str | Mapping[str, Any] = "iid", *, n_sequences: int = 512, seed: int = 0
) -> Certainty:
    """The logician's figures on the sequences that ``mf.evaluate`` takes with the same seed."""
    batch = task.sample(split, n_sequences, generator(seed, "evaluate"))
    return Logician(task, task.split_settings(split)).certainty(batch)


def certainty_table(n_sequences: int = 512, most_people: float = 1e5) -> str:
    """The figures of :func:`certainty` in Markdown, beside those of the players without and with more knowledge.

    python -c "from mapformers.players.logician import certainty_table; print(certainty_table())"
    """
    lines = [
        "| trees | max_children | split | certain | if certain | if guessed | logician | locator | best-lag |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for trees, max_children in itertools.product(("fresh", "fixed"), (3, 4, 10)):
        task = build_task("family-tree", trees=trees, max_children=max_children)
        for split in task.splits:
            if task.split_settings(split).rules().expected_people() <= most_people:
                lines.append(certainty_row(task, split, n_sequences))
    return "\n".join(lines)


def certainty_row(task: Task[Any], split: str, n_sequences: int = 512) -> str:
    """One line of that table."""
    settings = task.split_settings(split)
    found = certainty(task, split, n_sequences=n_sequences)
    batch = task.sample(split, n_sequences, generator(0, "evaluate"))
    others = [task.score(player(task, settings).answer(batch), batch)["accuracy"] for player in (Locator, BestLag)]
    figures = (found.certain, found.right_if_certain, found.right_if_guessed, found.accuracy, *others)
    cells = (settings.trees, settings.max_children, split, *(f"{figure:.3f}" for figure in figures))
    return f"| {' | '.join(map(str, cells))} |"


register_player("logician", "family-tree", Logician)
