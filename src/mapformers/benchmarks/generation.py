"""Tokens a second when one token is read at a time, as a ratio to Llama of `transformers` with its own cache."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from mapformers.benchmarks.measure import interleaved, speed_ratio
from mapformers.benchmarks.peers import PEERS
from mapformers.benchmarks.size import Size
from mapformers.lm.generation import generate
from mapformers.model import Decoder, build_model
from mapformers.modes import in_eval_mode

ROWS = ("rope", "mapwm", "mapem", "mapwm-nc", "mamba")
SIZE = Size("generation", 4, 256, 4, 1, 1000, vocab_size=257, repeats=5)
SMOKE_SIZE = Size("generation", 1, 32, 1, 1, 4, vocab_size=257, repeats=1)


@dataclass(frozen=True)
class Streamed:
    """Median seconds for all tokens, and the speed over that of Llama in a bare loop, where it was timed beside it."""

    row: str
    seconds: float
    tokens_per_second: float
    ratio_to_llama: float | None


def generation(size: Size = SIZE, rows: Sequence[str] = ROWS, repeats: int | None = None) -> list[Streamed]:
    """Every row turn by turn, each from a prompt of one token to ``size.length`` likeliest tokens."""
    peers = list(LOOPS) if PEERS["Llama"].is_there() else []
    seconds = interleaved({row: token_by_token(row, size) for row in [*peers, *rows]}, repeats or size.repeats)
    llama = seconds.get("Llama")
    return [
        Streamed(row, took := median(rounds), size.length / took, None if llama is None else speed_ratio(rounds, llama))
        for row, rounds in seconds.items()
    ]


def token_by_token(row: str, size: Size) -> Callable[[], object]:
    """A function that generates ``size.length`` tokens."""
    torch.manual_seed(0)
    if row in LOOPS:
        return LOOPS[row](PEERS["Llama"].build(size), size)
    sizes: dict[str, Any] = {"d_model": size.d_model, "n_heads": size.n_heads, "n_layers": size.n_layers}
    model: Decoder = build_model(row, vocab_size=size.vocab_size, **sizes)
    return lambda: generate(model, [[0]], size.length)


def _bare_loop(model: Any, size: Size) -> Callable[[], object]:
    """Nothing but their model and their cache."""

    @torch.no_grad()
    def run() -> list[int]:
        from transformers import DynamicCache

        token, cache, found = torch.zeros(1, 1, dtype=torch.long), DynamicCache(), []
        with in_eval_mode(model):
            for _ in range(size.length):
                logits = model(token, past_key_values=cache, use_cache=True).logits
                token = logits[:, -1:].argmax(dim=-1)
                found.append(int(token))
        return found

    return run


def _their_generate(model: Any, size: Size) -> Callable[[], object]:
    """What their users call, as ours call `generate`."""
    prompt = torch.zeros(1, 1, dtype=torch.long)
    settings = {"min_new_tokens": size.length, "max_new_tokens": size.length, "do_sample": False, "use_cache": True}

    def run() -> Any:
        with in_eval_mode(model):
            return model.generate(prompt, attention_mask=torch.ones_like(prompt), pad_token_id=0, **settings)

    return run


LOOPS = {"Llama": _bare_loop, "Llama, its generate": _their_generate}
