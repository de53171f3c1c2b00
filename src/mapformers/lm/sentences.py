"""The log-probability of sentences: many short texts in few batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.nn.functional import cross_entropy

from mapformers.errors import require
from mapformers.lm.generation import require_finite_logits
from mapformers.model import Decoder
from mapformers.modes import in_eval_mode
from mapformers.stages import doing

LOGITS_AT_ONCE = 2**23
IGNORED = -100


@dataclass(frozen=True)
class Sentence:
    """``ids`` are scored; ``before`` them the model reads at least one token."""

    before: list[int]
    ids: list[int]

    def __len__(self) -> int:
        return len(self.before) + len(self.ids)


class Answer(NamedTuple):
    """``log_probability``: of all tokens of a sentence; ``is_likeliest``: whether each of them was the likeliest."""

    log_probability: float
    is_likeliest: bool


@torch.no_grad()
def log_probabilities(model: Decoder, sentences: Sequence[Sentence]) -> list[Answer]:
    """Of each sentence; those of about the same length go through the model together."""
    require(all(sentence.before and sentence.ids for sentence in sentences), "A sentence needs a token and one before.")
    longest_first = sorted(range(len(sentences)), key=lambda i: -len(sentences[i]))
    answers: dict[int, Answer] = {}
    with in_eval_mode(model), doing("sentences", len(sentences)) as stage:
        while longest_first:
            rows = max(1, LOGITS_AT_ONCE // (len(sentences[longest_first[0]]) * model.config.vocab_size))
            chosen, longest_first = longest_first[:rows], longest_first[rows:]
            answers |= zip(chosen, _score(model, [sentences[i] for i in chosen]))
            stage.advance(len(chosen))
    return [answers[i] for i in range(len(sentences))]


def _score(model: Decoder, sentences: Sequence[Sentence]) -> list[Answer]:
    """Padded at their right end, which no token before it sees."""
    length = max(map(len, sentences)) - 1
    tokens = torch.zeros(len(sentences), length, dtype=torch.long)
    targets = torch.full((len(sentences), length), IGNORED)
    for row, sentence in enumerate(sentences):
        before, ids = sentence.before, sentence.ids
        end = len(before) + len(ids) - 1
        tokens[row, :end] = torch.tensor([*before, *ids[:-1]])
        targets[row, len(before) - 1 : end] = torch.tensor(ids)
    device = model.embedding.weight.device
    logits, targets = model(tokens.to(device)).float(), targets.to(device)
    require_finite_logits(logits)
    costs = cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none", ignore_index=IGNORED)
    sums = costs.view(targets.shape).double().sum(dim=1)
    likeliest = ((logits.argmax(dim=-1) == targets) | (targets == IGNORED)).all(dim=1)
    return [Answer(*answer) for answer in zip((-sums).tolist(), likeliest.tolist())]
