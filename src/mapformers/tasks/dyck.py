"""`dyck`: nested brackets of several types; which tokens may come next? (paper, sec. 3.3, 4.3, B.4 and C.2)

A sequence has exactly ``length`` brackets, closes them all, and is exactly ``depth`` deep where it is deepest; all such
sequences are equally likely. After every bracket: what may follow? Any opener, and the closer of the bracket that was
opened last. There is no token before the first bracket, so the first one is never asked for.
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
from mapformers.training.config import TrainConfig

Loss = Literal["valid-set", "next-token"]

BRACKETS = ["()", "[]", "{}", "<>"]
MOST_COUNTED = 2**36  # length² · depth: what it takes to count all nestings, whose number has about length bits
COLUMNS = 64  # of a drawing


@dataclass(frozen=True)
class DyckSettings:
    """The distribution of sequences, and what is learned from them."""

    length: int = 32
    """Brackets in a sequence; an even number."""
    depth: int = 4
    """How deep a sequence is nested where it is deepest, exactly; at most half the length."""
    types: int = 2
    """Types of brackets."""
    loss: Loss = "valid-set"
    """valid-set: every token that may follow, each for itself; next-token: the one that does."""

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
            self.length**2 * self.depth <= MOST_COUNTED,
            f"Sequences of length {self.length} and depth {self.depth} take too long to count: choose a length of "
            f"at most {math.isqrt(MOST_COUNTED // self.depth)} or a smaller depth.",
        )
        require(self.loss in get_args(Loss), f"loss must be one of {', '.join(get_args(Loss))}, not {self.loss!r}.")


class Dyck(Task[DyckSettings]):
    """Tokens: the openers, then the closers in the same order. All of them move on the stack."""

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
        self.beside = ("counting", "bayes") if settings.loss == "next-token" else ("counting",)

    def split_settings(self, split: str | Mapping[str, Any]) -> DyckSettings:
        asked = super().split_settings(split)
        require(asked.types == self.settings.types, "A split must keep types, or its tokens would be others.")
        require(asked.loss == self.settings.loss, "A split must keep the loss; build another task for the other one.")
        return asked

    def numbers_per_sequence(self, settings: DyckSettings) -> int:
        """Whether each bracket opens or closes, and of what type it is if it opens."""
        return 2 * settings.length

    def draw(self, uniform: Tensor, settings: DyckSettings) -> Batch:
        length, types = settings.length, settings.types
        depths = draw_depths(uniform[:, :length], settings.depth)
        opens = depths > pad(depths[:, :-1], (1, 0))
        openers = _openers(opens, depths)
        kinds = choice(uniform[:, length:], types)
        closed = kinds.gather(1, pad(openers[:, :-1], (1, 0)))  # what is closed is what was open just before
        sequence = torch.where(opens, kinds, types + closed)

        kinds, openers, depths = kinds[:, :-1], openers[:, :-1], depths[:, :-1]  # after the tokens that are read
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
        """The mean over tokens of the binary cross-entropy between logit and "may follow", so that Val_θ(s) is
        f_θ(s) > 0 (sec. C.2); or the cross-entropy of the token that follows."""
        if self.settings.loss == "next-token":
            return super().loss(logits, batch)
        counted = batch.loss_mask
        valid = _valid(logits, batch).to(logits)
        return binary_cross_entropy_with_logits(logits[counted], valid[counted])

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Metric]:
        """``f1`` of valid continuations with its two parts, each the mean over positions, and ``closer_accuracy``.

        Probabilities are the softmax of the logits whatever the loss: logits of ±c by the valid set leave about e^(−2c)
        to the tokens that may not follow. F1 is high without any stack (see the players), so the last figure asks what
        only a stack can tell: after a closer, with something open, is the right closer the likeliest of the closers?
        """
        logits, counted = logits.detach().cpu(), batch.score_mask.cpu()
        precision, recall, f1 = continuation_f1(logits[counted], _valid(logits, batch)[counted])
        scores = {
            name: Metric(float(values.mean()), len(values))
            for name, values in (("f1", f1), ("precision", precision), ("recall", recall))
        }
        types = self.settings.types
        closers, right = logits[..., types : 2 * types], batch.info["valid"][..., types:]
        likeliest = closers.masked_fill(~right, -torch.inf).amax(2) > closers.masked_fill(right, -torch.inf).amax(2)
        hard = (batch.tokens.cpu() >= types) & (batch.info["depth"] > 0)
        return {**scores, "closer_accuracy": Metric.share(likeliest, counted & hard)}

    def best_f1(self, split: str | Mapping[str, Any] = "iid") -> float:
        """The expected F1 of the answers that make the loss smallest: 1 with the valid set.

        The best next-token predictor knows when nothing can be opened or closed any more and gives it no chance, which
        F1 counts as missed: a predictor that knows less can have a higher F1 and a worse loss.
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
        """One inner dimension per type of bracket (two at least), the paper's one layer and one head of 64."""
        return {"n_layers": 1, "n_heads": 1, "d_model": 64, "rank": max(2, self.settings.types), "base": 64.0}

    def training(self, scale: str) -> TrainConfig:
        """# paper: 560 k sequences, lr 1e-4, batch and warm-up not named; here: batch 128, 200 steps of warm-up"""
        common: dict[str, Any] = {"schedule": "cosine", "weight_decay": 0.01}
        return {
            "smoke": TrainConfig(
                sequences=320,
                batch_size=16,
                warmup_steps=5,
                eval_every=10,
                eval_sequences=16,
                final_sequences=16,
                **common,
            ),
            "cpu": TrainConfig(sequences=128_000, batch_size=256, lr=1e-3, **common),
            "paper": TrainConfig(sequences=560_000, batch_size=128, lr=1e-4, warmup_steps=200, **common),
        }[scale]

    def show(self, split: str | Mapping[str, Any], generator: torch.Generator) -> str:
        """The brackets, the closer that may follow each, and the nesting, every pair at its own height."""
        batch = self.sample(split, 1, generator)
        sequence = [*batch.tokens[0].tolist(), int(batch.targets[0, -1])]
        tops, depths = [*batch.info["top"][0].tolist(), -1], [*batch.info["depth"][0].tolist(), 0]
        names = [self.token_names[token] for token in sequence]
        closers = [self.token_names[self.settings.types + top] if top >= 0 else "·" for top in tops]
        heights = [max(pair) for pair in zip([0, *depths], depths)]
        width = max(map(len, names))
        blocks = []
        for start in range(0, len(names), COLUMNS):
            piece = slice(start, start + COLUMNS)
            lines = [("brackets", names[piece]), ("may close", closers[piece])]
            for height in range(max(heights[piece]), 0, -1):
                row = [name if at == height else "" for name, at in zip(names[piece], heights[piece])]
                lines.append((f"depth {height}", row))
            blocks.append("\n".join(f"{what:9}  {_columns(row, width)}".rstrip() for what, row in lines))
        return "\n\n".join([*blocks, "Any opener may follow; a closer only the one below each bracket (· none)."])


def continuation_f1(logits: Tensor, valid: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Precision, recall and F1 of valid continuations, (…, V) -> (…) in float64 (B.4; Goodale et al. 2025).

    Precision P is the probability of all valid tokens together; recall R the share of valid tokens that are each more
    likely than all invalid ones together; F1 = 2PR / (P + R), 0 where both are 0.
    """
    chances = logits.double().softmax(dim=-1)
    wrong = chances.masked_fill(valid, 0).sum(dim=-1, keepdim=True)
    precision = 1 - wrong.squeeze(-1)  # exactly 1 when nothing is wrong, which a sum of thirds is not
    recall = ((chances > wrong) & valid).sum(dim=-1).double() / valid.sum(dim=-1)
    both = precision + recall
    return precision, recall, torch.where(both == 0, 0, 2 * precision * recall / both)


def _valid(logits: Tensor, batch: Batch) -> Tensor:
    """The valid sets (B, L, V) where the logits are; a model may have more tokens than the task, which never follow."""
    valid = batch.info["valid"].to(logits.device)
    return pad(valid, (0, logits.shape[-1] - valid.shape[-1]))


def _openers(opens: Tensor, depths: Tensor) -> Tensor:
    """When the innermost of the brackets open after each time was opened, (B, L) -> (B, L); any time at depth 0.

    Times are sorted by depth: the first at a depth opens it, and each opener holds there until the next one.
    """
    order = depths.sort(dim=1, stable=True).indices
    latest = torch.where(opens.gather(1, order), torch.arange(depths.shape[1]), 0).cummax(dim=1).values
    return torch.empty_like(order).scatter_(1, order, order.gather(1, latest))


def _stacks(kinds: Tensor, openers: Tensor, depths: Tensor, deepest: int) -> Tensor:
    """The types that are open after each time, the outermost first, (B, L) -> (B, L, D); -1 above the top."""
    levels, here = [], openers
    for level in range(deepest, 0, -1):
        inside = depths >= level
        levels.append(torch.where(inside, kinds.gather(1, here), -1))
        around = openers.gather(1, (here - 1).clamp(min=0))  # the innermost one when this one was opened
        here = torch.where(inside, around, here)
    return torch.stack(levels[::-1]).permute(1, 2, 0)


def _splits(length: int, depth: int) -> dict[str, dict[str, Any]]:
    """Four times as long, 8 and 12 deeper, or as deep as the length allows; what would be no deeper is left out."""
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
    summary="Nested brackets: predict which may follow, on longer and deeper sequences than those learned from.",
    settings=DyckSettings,
    build=Dyck,
)
