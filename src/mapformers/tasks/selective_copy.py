"""`selective-copy`: copy the symbols of a sequence in order and skip the blanks between them (sec. 4, B.2).

A sequence is symbols with blanks between them, a separator, and the symbols again: ``C · F · · E A | C F E A``. The
model learns from the copy after the separator and is scored on it. The distance from a symbol to its copy depends on
the number of blanks between them, so a fixed offset fails when that number changes. A count of the symbols does not.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mapformers.errors import require
from mapformers.tasks.task import Batch, Metric, Task, register_task, require_names
from mapformers.tasks.walk import choice, object_names

BLANK, SEPARATOR = "·", "|"
TOKENS_PER_LINE = 32  # in the text of `show`


@dataclass(frozen=True)
class SelectiveCopySettings:
    """The distribution of one split."""

    n_symbols: int = 128
    """Number of symbols to copy."""
    n_blanks: int = 128
    """Number of blanks between the symbols."""
    n_kinds: int = 16
    """Number of different symbols."""

    def __post_init__(self) -> None:
        for name, least in (("n_symbols", 1), ("n_blanks", 0), ("n_kinds", 1)):
            require(getattr(self, name) >= least, f"{name} must be at least {least}, not {getattr(self, name)}.")
        require_names("n_kinds", self.n_kinds)

    @property
    def prompt(self) -> int:
        """The number of tokens before the separator."""
        return self.n_symbols + self.n_blanks


class SelectiveCopy(Task[SelectiveCopySettings]):
    """Tokens: the symbols, then the blank, then the separator.

    ``action_ids`` is empty: a symbol both advances the count and is an answer, so no token is an action only. The OOD
    splits have half and twice as many blanks, and differ in nothing else.
    """

    uniform_dtype = torch.float64  # positions are drawn by ranking: two equal numbers would bias it

    def __init__(self, settings: SelectiveCopySettings):
        super().__init__(settings)
        self.token_names = [*object_names(settings.n_kinds), BLANK, SEPARATOR]
        self.action_ids = []
        self.blank_id, self.separator_id = settings.n_kinds, settings.n_kinds + 1
        blanks = settings.n_blanks
        self.splits = {"iid": {}, "ood-dense": {"n_blanks": blanks // 2}, "ood-sparse": {"n_blanks": 2 * blanks}}

    def split_settings(self, split: str | Mapping[str, Any] | SelectiveCopySettings) -> SelectiveCopySettings:
        settings = super().split_settings(split)
        same = settings.n_kinds == self.settings.n_kinds
        require(same, "A split must keep n_kinds, which decides the tokens; build another task to change it.")
        return settings

    def numbers_per_sequence(self, settings: SelectiveCopySettings) -> int:
        """One for each position before the separator, and one for each symbol."""
        return settings.prompt + settings.n_symbols

    def draw(self, uniform: Tensor, settings: SelectiveCopySettings) -> Batch:
        """The symbols take the positions of the n_symbols smallest random numbers.

        Every set of positions is equally likely. The one exception is two equal numbers, which occur about once in 10¹¹
        sequences of the paper's size; then the earlier position is taken.
        """
        prompt, n = settings.prompt, settings.n_symbols
        smallest = uniform[:, :prompt].argsort(dim=1, stable=True)[:, :n]
        positions = smallest.sort(dim=1).values  # (B, n)
        symbols = choice(uniform[:, prompt:], settings.n_kinds)  # (B, n)
        sequence = torch.full((len(uniform), prompt + 1 + n), self.blank_id)
        sequence.scatter_(1, positions, symbols)
        sequence[:, prompt] = self.separator_id
        sequence[:, prompt + 1 :] = symbols
        answers = torch.zeros(len(uniform), prompt + n, dtype=torch.bool)
        answers[:, prompt:] = True  # the first answer is the target at the separator
        source = torch.full_like(sequence[:, 1:], -1)
        source[:, prompt:] = positions
        return Batch(
            tokens=sequence[:, :-1],
            targets=sequence[:, 1:],
            loss_mask=answers,
            score_mask=answers.clone(),
            info={"symbol_positions": positions, "source": source},
        )

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Metric]:
        """``accuracy`` of single answers, each given the right ones before it, and ``exact_match`` of whole copies."""
        right = logits.argmax(dim=-1) == batch.targets
        whole = (right | ~batch.score_mask).all(dim=1)
        return {
            "accuracy": Metric.fraction(right, batch.score_mask),
            "exact_match": Metric.fraction(whole, torch.ones_like(whole)),
        }

    @torch.no_grad()
    def score_freely(self, model: Callable[..., Any], batch: Batch) -> dict[str, Metric]:
        """``free_accuracy``: the model reads its own answers, which are fed back through its streaming state.

        Until its first mistake the model reads the same tokens in a free run as it reads here. So sequences without a
        mistake need no free run, and only the others are answered token by token.
        """
        n = int(batch.score_mask[0].sum())
        answers = model(batch.tokens).argmax(dim=-1)[:, -n:]
        targets = batch.targets[:, -n:]
        mistaken = (answers != targets).any(dim=1)
        if bool(mistaken.any()):
            answers[mistaken] = free_run(model, batch.tokens[mistaken, : batch.tokens.shape[1] - (n - 1)], n)
        right = answers == targets
        return {"free_accuracy": Metric.fraction(right, torch.ones_like(right))}

    def model_defaults(self) -> dict[str, Any]:
        """The paper's sizes, and its temperature of 0.90, which we read as that of attention.

        To count symbols takes one dimension, and what is copied is not at the query's own place: so ``rank`` is 1, and
        MapEM's origins start independently (`ranks-table1` compares both with the usual ones).
        ``base`` is 512 at the paper's lengths, and ``omega_max`` 1, as in navigation (docs/fidelity.md). ``npos`` is
        for CoPE, which counts up to n_symbols positions between an answer and its source and so needs more than its
        usual 64.
        """
        return {
            "n_layers": 2,
            "n_heads": 2,
            "d_model": 128,
            "head_dim": 64,
            "rank": 1,
            "origins": "independent",
            "omega_max": 1.0,
            "base": float(max(7, 2 * self.settings.prompt)),  # 2π at the least
            "npos": 2 * self.settings.n_symbols,
            "attn_temperature": 0.9,
        }

    def training(self, scale: str) -> dict[str, Any]:
        """# paper: 100 k sequences, lr 2e-4, no schedule or warm-up named; here at `cpu`: fewer at a higher rate"""
        scales: dict[str, dict[str, Any]] = {
            "smoke": {
                "sequences": 64,
                "batch_size": 8,
                "warmup_steps": 2,
                "eval_every": 8,
                "eval_sequences": 4,
                "final_sequences": 4,
            },
            "cpu": {"sequences": 32_000, "batch_size": 16, "lr": 1e-3, "eval_every": 200, "eval_sequences": 64},
            "paper": {"sequences": 100_000, "batch_size": 64, "lr": 2e-4, "warmup_steps": 0, "eval_sequences": 64},
        }
        return scales[scale]

    def show(self, split: str | Mapping[str, Any], generator: torch.Generator) -> str:
        """What the model reads, and below it the copy that it must give."""
        batch = self.sample(split, 1, generator)
        names = [self.token_names[token] for token in [*batch.tokens[0].tolist(), int(batch.targets[0, -1])]]
        n = batch.info["symbol_positions"].shape[1]
        legend = f"{BLANK} a blank, to be skipped; {SEPARATOR} asks for the copy, which is scored"
        return "\n".join([*_lines("read", names[:-n]), "", *_lines("copy", names[-n:]), "", legend])


def free_run(model: Callable[..., Any], prompt: Tensor, n: int) -> Tensor:
    """The n most likely tokens after a prompt (B, P), one after another, each fed back to the model: (B, n)."""
    logits, state = model(prompt, return_state=True)
    answers = [logits[:, -1:].argmax(dim=-1)]
    while len(answers) < n:
        logits, state = model(answers[-1], state=state, return_state=True)
        answers.append(logits.argmax(dim=-1))
    return torch.cat(answers, dim=1)


def _lines(title: str, names: list[str]) -> list[str]:
    rows = [" ".join(names[i : i + TOKENS_PER_LINE]) for i in range(0, len(names), TOKENS_PER_LINE)]
    return [f"{title if index == 0 else '':<6}{row}" for index, row in enumerate(rows)]


register_task(
    "selective-copy",
    settings=SelectiveCopySettings,
    build=SelectiveCopy,
)
