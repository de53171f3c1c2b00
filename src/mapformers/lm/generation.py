"""Text goes on: tokens one at a time after prompts of any length, from any model that keeps a state.

prompts → left-padded batch → logits of the last token → the likeliest token, or one drawn → the next step.

Each step reads one token and the state, whose memory grows in place (`modules/memory.py`). Shorter prompts are padded
at their left end, and padding is neither attended to nor moved by, so a prompt goes on in a batch as it does alone.
"""

import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mapformers.config import from_dict
from mapformers.errors import Diverged, UserError, describe, require
from mapformers.model import Decoder
from mapformers.modes import in_eval_mode

PIECE = 512  # tokens of a prompt that are read at once, so that logits of a whole prompt are never in memory
LARGEST_SEED = 2**62


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen: the likeliest one, unless any of these is given."""

    temperature: float | None = None
    """Divides the logits before a token is drawn: below 1, likely tokens become likelier (1 beside top_k or top_p)."""
    top_k: int | None = None
    """Draw from this many of the likeliest tokens."""
    top_p: float | None = None
    """Draw from the fewest of the likeliest tokens that together have this probability."""
    seed: int = 0
    """Row i of a batch is drawn with seed + i, so that it can be drawn again alone."""

    def __post_init__(self) -> None:
        t, k, p = self.temperature, self.top_k, self.top_p
        greedy = "leave it out for the likeliest token"
        require(t is None or 0 < t < float("inf"), f"temperature must be above 0, not {t}; {greedy}.")
        require(k is None or k >= 1, f"top_k must be at least 1, not {k}.")
        require(p is None or 0 < p <= 1, f"top_p must be above 0 and at most 1, not {p}.")
        require(0 <= self.seed <= LARGEST_SEED, f"seed must be between 0 and 2⁶², not {self.seed}.")

    @property
    def is_greedy(self) -> bool:
        return self.temperature is None and self.top_k is None and self.top_p is None

    def choose(self, logits: Tensor, number: Tensor) -> Tensor:
        """The next token of each row, (B,), from logits (B, V) and a number between 0 and 1 for each row, (B,)."""
        if self.is_greedy:
            return logits.argmax(dim=-1)
        chances, tokens = self.chances(logits)
        reached = chances.cumsum(dim=-1)
        drawn = (number.unsqueeze(-1) * reached[:, -1:] >= reached).sum(dim=-1, keepdim=True)
        possible = (chances > 0).sum(dim=-1, keepdim=True)  # rounding never leads beyond them
        return tokens.gather(-1, torch.minimum(drawn, possible - 1)).squeeze(-1)

    def chances(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities from the likeliest token down, 0 where nothing is drawn, and which tokens they are of.

        First the temperature, then the k likeliest, then the share p of what these have together.
        """
        below_best = logits.double() - logits.amax(dim=-1, keepdim=True)  # at most 0, so that no quotient is +∞
        scaled = below_best / (1.0 if self.temperature is None else self.temperature)
        ordered, tokens = scaled.sort(dim=-1, descending=True, stable=True)
        if self.top_k is not None:
            ordered, tokens = ordered[:, : self.top_k], tokens[:, : self.top_k]
        chances = ordered.softmax(dim=-1)
        if self.top_p is not None:
            likelier = chances.cumsum(dim=-1) - chances  # what all tokens before this one have
            chances = chances.masked_fill(likelier >= self.top_p, 0.0)
        return chances / chances.sum(dim=-1, keepdim=True), tokens


def generate(
    model: Decoder,
    prompts: Sequence[Sequence[int] | Tensor],
    n_tokens: int,
    *,
    stop: int | None = None,
    **sampling: Any,
) -> list[list[int]]:
    """``n_tokens`` new tokens after each prompt, or fewer where ``stop`` was one of them, which is then the last.

    ``prompts`` are token ids; ``sampling`` are the fields of `Sampling`.

    Examples:
        >>> generate(model, [[3, 1, 2], [4]], 10, temperature=0.8, top_k=50, seed=1)  # doctest: +SKIP
    """
    rows: list[list[int]] = [[] for _ in prompts]
    for step in stream(model, prompts, n_tokens, stop=stop, **sampling):
        for row, token in step.items():
            rows[row].append(token)
    return rows


def stream(
    model: Decoder,
    prompts: Sequence[Sequence[int] | Tensor],
    n_tokens: int,
    *,
    stop: int | None = None,
    **sampling: Any,
) -> Iterator[dict[int, int]]:
    """The same as it comes: for each step, the new token of every prompt that is not finished, by its number."""
    require(
        getattr(model, "streams", False), "Only a model of `build_model` can generate text, because it keeps a state."
    )
    whole = isinstance(n_tokens, int) and not isinstance(n_tokens, bool)
    require(whole, f"n_tokens must be a whole number, not {n_tokens!r}.")
    require(n_tokens >= 1, f"n_tokens must be at least 1, not {n_tokens}.")
    require(len(prompts) >= 1, "Give at least one prompt.")
    ids = [ids_of(prompt) for prompt in prompts]
    # A token takes a fifth less time in inference mode, in which FSDP2 cannot gather its shards for the first time.
    is_sharded = any(hasattr(parameter, "device_mesh") for parameter in model.parameters())
    without_gradients = torch.no_grad() if is_sharded else torch.inference_mode()
    chosen = from_dict(Sampling, sampling)
    steps: Iterator[dict[int, int]] = without_gradients(_stream)(model, ids, n_tokens, stop, chosen)
    return steps


def ids_of(prompt: Any) -> Tensor:
    """The tokens of one prompt, (L,)."""
    try:
        ids = torch.as_tensor(prompt)
    except (TypeError, ValueError, RuntimeError):  # torch makes tensors of numbers alone, and of rows of one length
        ids = None
    require(ids is None or ids.numel() > 0, "A prompt must have at least one token.")
    if ids is None or ids.dim() != 1 or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        given = describe(prompt) if isinstance(prompt, Tensor) else reprlib.repr(prompt)
        raise UserError(f"Every prompt must be a list of token ids, or a tensor of one dimension, not {given}.")
    return ids.long()


def _stream(
    model: Decoder, prompts: list[Tensor], n_tokens: int, stop: int | None, sampling: Sampling
) -> Iterator[dict[int, int]]:
    device = model.embedding.weight.device
    numbers = _numbers(sampling, len(prompts), n_tokens).to(device)
    rows = torch.arange(len(prompts))  # the number of the prompt in each row that is left
    with in_eval_mode(model):
        logits, state = _read(model, prompts, device)
        require_finite_logits(logits)
        for step in range(n_tokens):
            chosen = sampling.choose(logits, numbers[step])
            tokens = chosen.tolist()
            yield dict(zip(rows.tolist(), tokens))
            left = [row for row, token in enumerate(tokens) if token != stop]
            if not left or step == n_tokens - 1:
                return
            if len(left) < len(tokens):
                rows, numbers, chosen, state = rows[left], numbers[:, left], chosen[left], state.rows(left)
            logits, state = model(chosen.unsqueeze(1), state=state, return_state=True)
            logits = logits[:, -1]


def require_finite_logits(logits: Tensor) -> None:
    """Refuse the answer of a model that has diverged."""
    if not logits.isfinite().all():
        raise Diverged(
            "The model's logits are not finite, so its training has failed; train it anew, with a lower --lr."
        )


def _numbers(sampling: Sampling, n_rows: int, n_tokens: int) -> Tensor:
    """(steps, rows) numbers between 0 and 1; each row has a generator of its own. Greedy decoding uses none."""
    if sampling.is_greedy:
        return torch.zeros(n_tokens, n_rows)
    generators = [torch.Generator().manual_seed(sampling.seed + row) for row in range(n_rows)]
    return torch.stack([torch.rand(n_tokens, generator=g, dtype=torch.float64) for g in generators], dim=1)


def _read(model: Decoder, prompts: list[Tensor], device: torch.device) -> tuple[Tensor, Any]:
    """Logits (B, V) after the last token of every prompt, and the state there."""
    lengths = [len(prompt) for prompt in prompts]
    longest = max(lengths)
    tokens = torch.zeros(len(prompts), longest, dtype=torch.long)
    real = torch.zeros(len(prompts), longest, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        tokens[row, longest - len(prompt) :] = prompt
        real[row, longest - len(prompt) :] = True
    tokens, real = tokens.to(device), real.to(device)
    padded = min(lengths) < longest
    state: Any = None
    for start in range(0, longest, PIECE):
        here = slice(start, start + PIECE)
        flags = {"padding_mask": real[:, here]} if padded and start < longest - min(lengths) else {}
        logits, state = model(tokens[:, here], state=state, return_state=True, **flags)
    return logits[:, -1], state
