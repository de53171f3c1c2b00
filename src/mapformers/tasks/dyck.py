"""`dyck`: nested brackets of several types; predict which brackets may come next (sec. 3.3, 4.3, B.4, C.2).

A sequence has exactly ``length`` brackets, closes all of them, and has exactly ``depth`` as its greatest depth. It is
drawn uniformly at random among all such sequences. After every bracket the model predicts what may follow: any opener,
and the closer of the innermost open bracket. The first bracket is not predicted, because no token comes before it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, pad

from mapformers.errors import require
from mapformers.tasks.dyck_sampler import draw_depths, occupancy, opening_chances
from mapformers.tasks.task import Batch, Metric, Task, register_task, require_names
from mapformers.tasks.walk import choice

Loss = Literal["valid-set", "next-token"]

BRACKETS = ["()", "[]", "{}", "<>"]
MAX_COUNTING_WORK = 2**36  # length² · depth: the work to count all nestings, since their number has about length bits
BRACKETS_PER_LINE = 64  # in the text of `show`


@dataclass(frozen=True)
class DyckSettings:
    """The distribution of one split, and the loss."""

    length: int = 32
    """Number of brackets in a sequence, which must be even."""
    depth: int = 4
    """Greatest depth of every sequence; at most half the length."""
    types: int = 2
    """Number of bracket types."""
    loss: Loss = "valid-set"
    """What the model predicts. valid-set: all tokens that may follow; next-token: the one that follows."""

    def __post_init__(self) -> None:
        for name, least in (("length", 2), ("depth", 1), ("types", 1)):
            require(getattr(self, name) >= least, f"{name} must be at least {least}, not {getattr(self, name)}.")
        require_names("types", self.types)
        require(self.length % 2 == 0, f"length must be even, as every bracket is closed, not {self.length}.")
        require(
            2 * self.depth <= self.length,
            f"A depth of {self.depth} needs a length of at least {2 * self.depth}, not {self.length}.",
        )
        require(
            self.length**2 * self.depth <= MAX_COUNTING_WORK,
            f"Sequences of length {self.length} and depth {self.depth} take too long to count: choose a length of "
            f"at most {math.isqrt(MAX_COUNTING_WORK // self.depth)} or a smaller depth.",
        )
        require(self.loss in get_args(Loss), f"loss must be one of {', '.join(get_args(Loss))}, not {self.loss!r}.")


class Dyck(Task[DyckSettings]):
    """Tokens: the openers, then the closers in the same order. All of them are actions on the stack."""

    main_metric = "f1"
    uniform_dtype = torch.float64

    def __init__(self, settings: DyckSettings):
        super().__init__(settings)
        types = settings.types
        pairs = [(pair[0], pair[1]) for pair in BRACKETS[:types]]
        pairs += [(f"({i}", f"{i})") for i in range(len(BRACKETS) + 1, types + 1)]
        self.token_names = [opener for opener, _ in pairs] + [closer for _, closer in pairs]
        self.action_ids = list(range(2 * types))
        self.splits = _splits(settings.length, settings.depth)
        self.reference_players = ("counting", "bayes") if settings.loss == "next-token" else ("counting",)

    def split_settings(self, split: str | Mapping[str, Any] | DyckSettings) -> DyckSettings:
        asked = super().split_settings(split)
        require(asked.types == self.settings.types, "A split must keep types, which decides the tokens.")
        require(asked.loss == self.settings.loss, "A split must keep the loss; build another task for the other one.")
        return asked

    def numbers_per_sequence(self, settings: DyckSettings) -> int:
        """Whether each bracket opens or closes, and the type of each opener."""
        return 2 * settings.length

    def draw(self, uniform: Tensor, settings: DyckSettings) -> Batch:
        length, types = settings.length, settings.types
        depths = draw_depths(uniform[:, :length], settings.depth)
        opens = depths > pad(depths[:, :-1], (1, 0))
        openers = _openers(opens, depths)
        kinds = choice(uniform[:, length:], types)
        closed = kinds.gather(1, pad(openers[:, :-1], (1, 0)))  # a closer closes the innermost bracket open before it
        sequence = torch.where(opens, kinds, types + closed)

        kinds, openers, depths = kinds[:, :-1], openers[:, :-1], depths[:, :-1]  # after each token the model reads
        top = torch.where(depths > 0, kinds.gather(1, openers), -1)
        closers = top.unsqueeze(2) == torch.arange(types)
        everywhere = torch.ones_like(depths, dtype=torch.bool)
        return Batch(
            tokens=sequence[:, :-1],
            targets=sequence[:, 1:],
            loss_mask=everywhere,
            score_mask=everywhere,
            info={
                "depth": depths,
                "top": top,
                "stack": _stacks(kinds, openers, depths, settings.depth),
                "valid": torch.cat((torch.ones_like(closers), closers), dim=2),
            },
        )

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """With ``valid-set`` the mean binary cross-entropy of "this token may follow", over all tokens.

        Then a token is predicted as valid if its logit is above 0, as in C.2: Val_θ(s) is f_θ(s) > 0. With
        ``next-token`` the loss is the cross-entropy of the token that follows.
        """
        if self.settings.loss == "next-token":
            return super().loss(logits, batch)
        counted = batch.loss_mask
        valid = _valid(logits, batch).to(logits)
        return binary_cross_entropy_with_logits(logits[counted], valid[counted])

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Metric]:
        """``f1`` of valid continuations, its ``precision`` and ``recall`` (means over positions), ``closer_accuracy``.

        Probabilities are the softmax of the logits, whatever the loss. A model trained on the valid set, with logits of
        ±c, leaves about e^(−2c) to invalid tokens. F1 is high even without a stack (see the players).
        So ``closer_accuracy`` asks what only a stack can tell. It counts the positions after a closer at which some
        bracket is still open: is the right closer the most likely of all closers?
        """
        logits, counted = logits.detach().cpu(), batch.score_mask.cpu()
        precision, recall, f1 = continuation_f1(logits[counted], _valid(logits, batch)[counted])
        scores = {
            name: Metric(float(values.mean()), len(values))
            for name, values in (("f1", f1), ("precision", precision), ("recall", recall))
        }
        types = self.settings.types
        closers, valid = logits[..., types : 2 * types], batch.info["valid"][..., types:]
        right = closers.masked_fill(~valid, -torch.inf).amax(2) > closers.masked_fill(valid, -torch.inf).amax(2)
        needs_stack = (batch.tokens.cpu() >= types) & (batch.info["depth"] > 0)
        return {**scores, "closer_accuracy": Metric.fraction(right, counted & needs_stack)}

    def best_f1(self, split: str | Mapping[str, Any] = "iid") -> float:
        """The expected F1 of the predictor with the smallest loss. It is 1 with ``valid-set``.

        The best next-token predictor knows when length and depth allow no more openers or closers, and gives them
        probability 0. F1 counts these tokens as missed, so a predictor with a worse loss can have a higher F1.
        """
        asked = self.split_settings(split)
        if asked.loss == "valid-set":
            return 1.0
        types, places = asked.types, torch.arange(2 * asked.depth + 1)
        inside = (places % (2 * asked.depth) > 0).double()
        opening = opening_chances(asked.length, asked.depth)[1:]  # (L − 1, places)
        others = torch.zeros(*opening.shape, types - 1, dtype=torch.float64)
        openers = (opening / types).unsqueeze(2).expand(-1, -1, types)
        closer = (1 - opening).unsqueeze(2)
        logits = torch.cat((openers, closer, others), dim=2).log()
        valid = torch.cat((torch.ones_like(openers), inside.view(-1, 1).expand_as(closer), others), dim=2).bool()
        return float((occupancy(asked.length, asked.depth)[1:-1] * continuation_f1(logits, valid)[2]).sum(1).mean())

    def model_defaults(self) -> dict[str, Any]:
        """One map dimension per type of bracket (at least two); the paper's one layer and one head of 64."""
        return {"n_layers": 1, "n_heads": 1, "d_model": 64, "rank": max(2, self.settings.types), "base": 64.0}

    def training(self, scale: str) -> dict[str, Any]:
        """# paper: 560 k sequences, lr 1e-4, batch and warm-up not named; here: batch 128, 200 steps of warm-up"""
        scales: dict[str, dict[str, Any]] = {
            "smoke": {
                "sequences": 320,
                "batch_size": 16,
                "warmup_steps": 5,
                "eval_every": 10,
                "eval_sequences": 16,
                "final_sequences": 16,
            },
            "cpu": {"sequences": 128_000, "batch_size": 256, "lr": 1e-3},
            "paper": {"sequences": 560_000, "batch_size": 128, "lr": 1e-4, "warmup_steps": 200},
        }
        return {**scales[scale], "schedule": "cosine", "weight_decay": 0.01}

    def show(self, split: str | Mapping[str, Any], generator: torch.Generator) -> str:
        """The brackets, the closer that may follow each of them, and a picture of the nesting, one line per depth."""
        batch = self.sample(split, 1, generator)
        sequence = [*batch.tokens[0].tolist(), int(batch.targets[0, -1])]
        tops, depths = [*batch.info["top"][0].tolist(), -1], [*batch.info["depth"][0].tolist(), 0]
        names = [self.token_names[token] for token in sequence]
        closers = [self.token_names[self.settings.types + top] if top >= 0 else "·" for top in tops]
        heights = [max(pair) for pair in zip([0, *depths], depths)]
        width = max(map(len, names))
        blocks = []
        for start in range(0, len(names), BRACKETS_PER_LINE):
            piece = slice(start, start + BRACKETS_PER_LINE)
            lines = [("brackets", names[piece]), ("may close", closers[piece])]
            for height in range(max(heights[piece]), 0, -1):
                row = [name if at == height else "" for name, at in zip(names[piece], heights[piece])]
                lines.append((f"depth {height}", row))
            blocks.append("\n".join(f"{what:9}  {_columns(row, width)}".rstrip() for what, row in lines))
        legend = "Any opener may follow. The only closer that may follow is below each bracket (· none)."
        return "\n\n".join([*blocks, legend])


def continuation_f1(logits: Tensor, valid: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Precision, recall and F1 of valid continuations, (…, V) -> (…) in float64 (B.4; Goodale et al. 2025).

    Precision P is the total probability of the valid tokens. Recall R is the fraction of valid tokens that are each
    more likely than all invalid tokens together. F1 is 2PR / (P + R), or 0 if both are 0.
    """
    chances = logits.double().softmax(dim=-1)
    invalid = chances.masked_fill(valid, 0).sum(dim=-1, keepdim=True)
    precision = 1 - invalid.squeeze(-1)  # exactly 1 if nothing is invalid; a sum of the valid ones may be rounded
    recall = ((chances > invalid) & valid).sum(dim=-1).double() / valid.sum(dim=-1)
    both = precision + recall
    return precision, recall, torch.where(both == 0, 0, 2 * precision * recall / both)


def _valid(logits: Tensor, batch: Batch) -> Tensor:
    """The valid sets (B, L, V) on the device of the logits. Tokens that only the model has are never valid."""
    valid = batch.info["valid"].to(logits.device)
    return pad(valid, (0, logits.shape[-1] - valid.shape[-1]))


def _openers(opens: Tensor, depths: Tensor) -> Tensor:
    """After each step, the step at which the innermost open bracket was opened: (B, L) -> (B, L); arbitrary at depth 0.

    Steps are sorted by depth. The first step at a depth is an opener, and each opener counts there until the next one.
    """
    order = depths.sort(dim=1, stable=True).indices
    latest = torch.where(opens.gather(1, order), torch.arange(depths.shape[1]), 0).cummax(dim=1).values
    return torch.empty_like(order).scatter_(1, order, order.gather(1, latest))


def _stacks(kinds: Tensor, openers: Tensor, depths: Tensor, deepest: int) -> Tensor:
    """The types of the open brackets after each step, the outermost first: (B, L) -> (B, L, D); -1 above the top."""
    levels, here = [], openers
    for level in range(deepest, 0, -1):
        inside = depths >= level
        levels.append(torch.where(inside, kinds.gather(1, here), -1))
        around = openers.gather(1, (here - 1).clamp(min=0))  # the bracket that was innermost when this one was opened
        here = torch.where(inside, around, here)
    return torch.stack(levels[::-1]).permute(1, 2, 0)


def _splits(length: int, depth: int) -> dict[str, dict[str, Any]]:
    """Sequences four times as long, and 8 or 12 deeper, or as deep as the length allows.

    A split that would be no deeper than iid is left out.
    """
    splits: dict[str, dict[str, Any]] = {"iid": {}, "ood-long": {"length": 4 * length}}
    deeper = [("ood-deep", length, 8), ("ood-long-deep", 4 * length, 8), ("ood-long-deeper", 4 * length, 12)]
    for name, long, more in deeper:
        deep = min(depth + more, long // 2)
        if deep > depth:
            splits[name] = {"length": long, "depth": deep}
    return splits


def _columns(words: list[str], width: int) -> str:
    return ("" if width == 1 else " ").join(f"{word:{width}}" for word in words)


register_task(
    "dyck",
    settings=DyckSettings,
    build=Dyck,
)
