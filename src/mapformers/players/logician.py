"""The logician: a player of `family-tree` that sees only tokens. It proves what it can, and guesses the rest.

A meeting is *certain* if the axioms of kinship (`.kinship`) prove that the person was met before, without the help
of names. Otherwise the logician guesses. For example, the oldest child of a person's mother is either that person or an
older sibling. So the logician keeps a few beliefs. Each belief is a family in which it is decided who everyone met is.
Beliefs have weights, names rule some of them out, and the rest vote. Beliefs in somebody new do not vote, because
meetings with new people are not scored.

Its accuracy is printed with every result on ``trees="fresh"``.
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

MAX_BELIEFS = 8  # 32 are no better


@dataclass(frozen=True)
class Certainty:
    """How many scored targets are certain to the logician, and how often it is right."""

    certain: Metric  # fraction of the scored targets that are certain
    right_if_certain: Metric
    right_if_guessed: Metric
    accuracy: Metric


class Logician(Player):
    """Sees only tokens. It answers token 0 where a relation follows, since that is not scored.

    The logits do not show which answers are certain; `certainty` does.
    """

    settings: FamilySettings

    def __call__(self, tokens: Tensor) -> Tensor:
        return self.certain_logits(self.play(tokens)[0])

    def play(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The answers, and whether each of them is certain: (B, L) each."""
        answers, certain = torch.zeros_like(tokens), torch.zeros_like(tokens, dtype=torch.bool)
        for row, sequence in enumerate(tokens.tolist()):
            require(
                all((token < len(RELATIONS)) == (index % 2 == 0) for index, token in enumerate(sequence)),
                "The logician reads a relation, a name, a relation, a name …; these tokens are something else.",
            )
            try:
                for step, (answer, known) in enumerate(self._follow(sequence)):
                    answers[row, 2 * step], certain[row, 2 * step] = answer, known
            except Contradiction:
                raise UserError("No family has such a walk: somebody would have two names.") from None
        return answers, certain

    def certainty(self, batch: Batch) -> Certainty:
        """How many scored targets of a batch are certain, and how often the answers are right."""
        answers, certain = self.play(batch.tokens)
        right, scored = answers == batch.targets, batch.score_mask
        return Certainty(
            certain=Metric.fraction(certain, scored),
            right_if_certain=Metric.fraction(right, scored & certain),
            right_if_guessed=Metric.fraction(right, scored & ~certain),
            accuracy=Metric.fraction(right, scored),
        )

    def _follow(self, sequence: list[int]) -> Iterator[tuple[int, bool]]:
        """For every relation, the name to which it should lead, and whether that is certain."""
        proved, here = Kinship(), 0
        beliefs = [Belief(self.settings.max_children)]
        for index in range(0, len(sequence), 2):
            here = proved.follow(here, sequence[index])
            votes: defaultdict[int, float] = defaultdict(float)
            met_before: list[Belief] = []
            somebody_new: list[Belief] = []
            for belief in [belief for belief in beliefs if belief.can_follow(sequence[index])]:
                again, new = ([belief], None) if belief.name[belief.here] != UNKNOWN else belief.continuations()
                for way in again:
                    votes[way.name[way.here]] += way.weight
                met_before += again
                somebody_new += [new] if new else []
            known = proved.name[here]
            guess = max(votes, key=votes.__getitem__, default=len(RELATIONS))
            yield (guess, False) if known == UNKNOWN else (known, True)
            if index + 1 < len(sequence):
                seen = sequence[index + 1]
                if known not in (UNKNOWN, seen):
                    raise Contradiction
                proved.name[here] = seen
                beliefs = self._weigh(met_before, somebody_new, seen)
                beliefs = beliefs or [Belief.of(proved, here, self.settings.max_children)]

    def _weigh(self, met_before: list[Belief], somebody_new: list[Belief], seen: int) -> list[Belief]:
        """The most likely beliefs, given the name that was seen. Somebody new has it with probability 1/n_names."""
        kept = [belief for belief in met_before if belief.name[belief.here] == seen]
        for belief in somebody_new:
            belief.name[belief.here] = seen
            belief.weight /= self.settings.n_names
            kept.append(belief)
        return self._most_likely(kept)

    def _most_likely(self, beliefs: list[Belief]) -> list[Belief]:
        """The beliefs that are kept, their weights adding up to 1."""
        kept = sorted(beliefs, key=lambda belief: -belief.weight)[:MAX_BELIEFS]
        total = sum(belief.weight for belief in kept)
        for belief in kept:
            belief.weight /= total
        return kept


def certainty(
    task: Task[Any], split: str | Mapping[str, Any] = "iid", *, n_sequences: int = 512, seed: int = 0
) -> Certainty:
    """The logician's figures on the sequences that ``mf.evaluate`` draws with the same seed."""
    batch = task.sample(split, n_sequences, generator(seed, "evaluate"))
    return Logician(task, task.split_settings(split)).certainty(batch)


def certainty_table(n_sequences: int = 512, max_people: float = 1e5) -> str:
    """The figures of `certainty` as a Markdown table, with those of `locator` (knows more) and `best-lag` (less).

    python -c "from mapformers.players.logician import certainty_table; print(certainty_table())"
    """
    lines = [
        "| trees | max_children | split | certain | if certain | if guessed | logician | locator | best-lag |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for trees, max_children in itertools.product(("fresh", "fixed"), (3, 4, 10)):
        task = build_task("family-tree", trees=trees, max_children=max_children)
        for split in task.splits:
            if task.split_settings(split).rules().expected_people() <= max_people:
                lines.append(certainty_row(task, split, n_sequences))
    return "\n".join(lines)


def certainty_row(task: Task[Any], split: str, n_sequences: int = 512) -> str:
    """One line of `certainty_table`."""
    settings = task.split_settings(split)
    found = certainty(task, split, n_sequences=n_sequences)
    batch = task.sample(split, n_sequences, generator(0, "evaluate"))
    others = [task.score(player(task, settings).answer(batch), batch)["accuracy"] for player in (Locator, BestLag)]
    figures = (found.certain, found.right_if_certain, found.right_if_guessed, found.accuracy, *others)
    cells = (settings.trees, settings.max_children, split, *(f"{figure:.3f}" for figure in figures))
    return f"| {' | '.join(map(str, cells))} |"


register_player("logician", "family-tree", Logician)
