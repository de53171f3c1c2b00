"""`selective-copy`: say again what was read, in order, without the blanks (paper, sec. 4 and B.2).

A sequence is the symbols with blanks strewn among them, a separator, and the symbols once more:
``C · F · · E A | C F E A``. Learned and scored is the part after the separator, the copy. How far back a symbol lies
depends on how many blanks are in between, so that a fixed offset does not carry over to other numbers of blanks;
a count that moves with symbols and rests on blanks does.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mapformers.errors import require
from mapformers.tasks.task import Batch, Metric, Task, register_task, require_names
from mapformers.tasks.walk import choice, object_names
from mapformers.training.config import TrainConfig

BLANK, SEPARATOR = "·", "|"
PER_LINE = 32  # tokens in a line of `show`


@dataclass(frozen=True)
class SelectiveCopySettings:
    """The distribution one split is drawn from."""

    n_symbols: int = 128
    """Symbols to be copied."""
    n_blanks: int = 128
    """Blanks among them."""
    n_kinds: int = 16
    """Kinds of symbols."""

    def __post_init__(self) -> None:
        for name, least in (("n_symbols", 1), ("n_blanks", 0), ("n_kinds", 1)):
            require(getattr(self, name) >= least, f"{name} must be at least {least}, not {getattr(self, name)}.")
        require_names("n_kinds", self.n_kinds)

    @property
    def prompt(self) -> int:
        """Tokens before the separator."""
        return self.n_symbols + self.n_blanks


class SelectiveCopy(Task[SelectiveCopySettings]):
    """Tokens: the kinds of symbols, then the blank, then the separator.

    ``action_ids`` is empty: a symbol is both what moves the count and what is to be said, and no token acts only.
    The OOD splits differ in the number of blanks alone, half and twice as many.
    """

    uniform_dtype = torch.float64  # where the symbols stand is a ranking: two equal numbers would bias it

    def __init__(self, settings: SelectiveCopySettings):
        super().__init__(settings)
        self.token_names = [*object_names(settings.n_kinds), BLANK, SEPARATOR]
        self.action_ids = []
        self.blank_id, self.separator_id = settings.n_kinds, settings.n_kinds + 1
        blanks = settings.n_blanks
        self.splits = {"iid": {}, "ood-dense": {"n_blanks": blanks // 2}, "ood-sparse": {"n_blanks": 2 * blanks}}

    def split_settings(self, split: str | Mapping[str, Any]) -> SelectiveCopySettings:
        settings = super().split_settings(split)
        same = settings.n_kinds == self.settings.n_kinds
        require(same, "A split must keep n_kinds, or its tokens would be others; build another task for that.")
        return settings

    def numbers_per_sequence(self, settings: SelectiveCopySettings) -> int:
        """One for each place before the separator, and one for each symbol."""
        return settings.prompt + settings.n_symbols

    def draw(self, uniform: Tensor, settings: SelectiveCopySettings) -> Batch:
        """The symbols stand at the places of the n_symbols smallest numbers.

        Every set of places is equally likely, except where two of the numbers are equal: about once in 10¹¹
        sequences of the paper's size, and then the earlier place is taken.
        """
        places, n = settings.prompt, settings.n_symbols
        smallest = uniform[:, :places].argsort(dim=1, stable=True)[:, :n]
        positions = smallest.sort(dim=1).values  # (B, n)
        symbols = choice(uniform[:, places:], settings.n_kinds)  # (B, n)
        sequence = torch.full((len(uniform), places + 1 + n), self.blank_id)
        sequence.scatter_(1, positions, symbols)
        sequence[:, places] = self.separator_id
        sequence[:, places + 1 :] = symbols
        answers = torch.zeros(len(uniform), places + n, dtype=torch.bool)
        answers[:, places:] = True  # the first answer is the target at the separator
        source = torch.full_like(sequence[:, 1:], -1)
        source[:, places:] = positions
        return Batch(
            tokens=sequence[:, :-1],
            targets=sequence[:, 1:],
            loss_mask=answers,
            score_mask=answers.clone(),
            info={"symbol_positions": positions, "source": source},
        )

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Metric]:
        """``accuracy`` of each answer after the right ones before it, and ``exact_match`` of whole copies."""
        right = logits.argmax(dim=-1) == batch.targets
        whole = (right | ~batch.score_mask).all(dim=1)
        return {
            "accuracy": Metric.share(right, batch.score_mask),
            "exact_match": Metric.share(whole, torch.ones_like(whole)),
        }

    @torch.no_grad()
    def score_freely(self, model: Callable[..., Any], batch: Batch) -> dict[str, Metric]:
        """``free_accuracy``: each answer follows the model's own answers, fed back through its streaming state.

        Up to its first mistake a model reads the same tokens either way, so a copy without mistakes needs no run of
        its own: only the other sequences are answered token by token.
        """
        n = int(batch.score_mask[0].sum())
        said = model(batch.tokens).argmax(dim=-1)[:, -n:]
        answers = batch.targets[:, -n:]
        astray = (said != answers).any(dim=1)
        if bool(astray.any()):
            said[astray] = free_run(model, batch.tokens[astray, : batch.tokens.shape[1] - (n - 1)], n)
        right = said == answers
        return {"free_accuracy": Metric.share(right, torch.ones_like(right))}

    def model_defaults(self) -> dict[str, Any]:
        """The paper's sizes and its temperature of 0.90, read as that of attention; a circle of 512 at its lengths.

        CoPE counts one position for each symbol between an answer and its source, n_symbols of them, so it needs more
        than its usual 64.
        """
        return {
            "n_layers": 2,
            "n_heads": 2,
            "d_model": 128,
            "head_dim": 64,
            "rank": 2,
            "base": float(max(2, 2 * self.settings.prompt)),
            "npos": 2 * self.settings.n_symbols,
            "attn_temperature": 0.9,
        }

    def training(self, scale: str) -> TrainConfig:
        """# paper: 100 k sequences, lr 2e-4, no schedule or warm-up named; here at `cpu`: fewer at a higher rate"""
        return {
            "smoke": TrainConfig(
                sequences=64,
                batch_size=8,
                warmup_steps=2,
                eval_every=8,
                eval_sequences=4,
                final_sequences=4,
            ),
            "cpu": TrainConfig(sequences=32_000, batch_size=32, lr=1e-3, eval_every=200, eval_sequences=64),
            "paper": TrainConfig(sequences=100_000, batch_size=64, lr=2e-4, warmup_steps=0, eval_sequences=64),
        }[scale]

    def show(self, split: str | Mapping[str, Any], generator: torch.Generator) -> str:
        """What is read, and beneath it what must be said."""
        batch = self.sample(split, 1, generator)
        names = [self.token_names[token] for token in [*batch.tokens[0].tolist(), int(batch.targets[0, -1])]]
        n = batch.info["symbol_positions"].shape[1]
        read, said = names[:-n], names[-n:]
        lines = [*_lines("read", read), "", *_lines("copy", said), ""]
        return "\n".join(
            [*lines, f"{BLANK} a blank, to be passed over; {SEPARATOR} asks for the copy, which is scored"]
        )


def free_run(model: Callable[..., Any], prompt: Tensor, n: int) -> Tensor:
    """The n tokens a model says after a prompt (B, P), each the likeliest one after those it has said: (B, n)."""
    logits, state = model(prompt, return_state=True)
    said = [logits[:, -1:].argmax(dim=-1)]
    while len(said) < n:
        logits, state = model(said[-1], state=state, return_state=True)
        said.append(logits.argmax(dim=-1))
    return torch.cat(said, dim=1)


def _lines(title: str, names: list[str]) -> list[str]:
    rows = [" ".join(names[i : i + PER_LINE]) for i in range(0, len(names), PER_LINE)]
    return [f"{title if index == 0 else '':<6}{row}" for index, row in enumerate(rows)]


register_task(
    "selective-copy",
    summary="Copy a sequence in order and leave out the blanks among it, however many there are.",
    settings=SelectiveCopySettings,
    build=SelectiveCopy,
)
