"""Does each backward pass that is written by hand earn its place? A training step with it, and one in plain PyTorch."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from mapformers.benchmarks.measure import interleaved, peak_memory
from mapformers.benchmarks.size import Size
from mapformers.benchmarks.throughput import training_step
from mapformers.ops.conjunctive_attention import conjunctive_reference
from mapformers.ops.contextual_attention import contextual_reference
from mapformers.ops.rotation_products.reference import apply_in_order
from mapformers.ops.selective_scan import selective_loop
from mapformers.ops.stack_rnn import stack_loop
from mapformers.ops.visibility import Visibility

SMALL_SIZE = Size("small", 1, 64, 1, 32, 256)
LARGE_SIZE = Size("large", 4, 256, 4, 4, 256)
SMOKE_SIZE = Size("smoke", 1, 16, 1, 2, 16)


class PlainNorm:
    """RMSNorm as PyTorch has it, in the place of ours."""

    @staticmethod
    def apply(x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return rms_norm(x, (x.shape[-1],), gain, eps)


def plain_contextual(
    q: Tensor, k: Tensor, v: Tensor, z: Tensor, scale: float, sharpness: float, visibility: Visibility
) -> Tensor:
    content, position, allowed = contextual_reference(q, k, z, scale, visibility)
    return ((content + position) * sharpness).masked_fill(~allowed, -torch.inf).softmax(dim=-1) @ v


# The plain form makes its products where they are applied, and the last of them, kept for streaming, is not asked for.
PLAIN_PRODUCTS: dict[str, Any] = {
    "mapformers.ops.rotation_products:accumulate": lambda theta, n: theta.new_empty(0),
    "mapformers.ops.rotation_products:apply": lambda theta, p, x, n, back: apply_in_order(theta, x, n, back),
    "mapformers.ops.rotation_products:rotation_at": lambda theta, p, n, t: theta.new_zeros(
        n, n, theta.shape[1], theta.shape[-1]
    ),
}


@dataclass(frozen=True)
class Piece:
    """Something written by hand: which row uses it, where its name stands, and what plain PyTorch puts there."""

    name: str
    row: str
    plain: dict[str, Any]  # "module:attribute" -> the plain form

    @contextmanager
    def replaced(self) -> Iterator[None]:
        """Inside the ``with`` block, the plain form is used."""
        places = [(import_module(place.partition(":")[0]), place.partition(":")[2]) for place in self.plain]
        before = [getattr(module, name) for module, name in places]
        for (module, name), plain in zip(places, self.plain.values()):
            setattr(module, name, plain)
        try:
            yield
        finally:
            for (module, name), ours in zip(places, before):
                setattr(module, name, ours)


PIECES = {
    piece.name: piece
    for piece in (
        Piece("RMSNorm", "mapwm", {"mapformers.modules.layer:_RMSNorm": PlainNorm}),
        Piece(
            "conjunctive attention",
            "mapem",
            {"mapformers.modules.episodic_attention:conjunctive_attention": conjunctive_reference},
        ),
        Piece("contextual attention", "cope", {"mapformers.layers.cope:contextual_attention": plain_contextual}),
        Piece("selective scan", "mamba", {"mapformers.modules.ssm:selective_scan": selective_loop}),
        Piece("Stack-RNN", "stack-rnn", {"mapformers.layers.stack_rnn:stack_rnn": stack_loop}),
        Piece("products of SO(4)", "mapem-nc", PLAIN_PRODUCTS),
        Piece("products of SO(8)", "mapem-nc block=8", PLAIN_PRODUCTS),
    )
}


@dataclass(frozen=True)
class Comparison:
    """Median seconds and peak MiB of a step, with the hand-written backward pass and without."""

    piece: str
    row: str
    size: str
    seconds: float
    plain_seconds: float
    mib: float | None
    plain_mib: float | None


def plain_step(name: str, size: Size) -> Callable[[], float]:
    """A training step in which the plain form stands in."""
    piece = PIECES[name]
    step = training_step(piece.row, size)

    def run() -> float:
        with piece.replaced():
            return step()

    return run


def ops(sizes: Sequence[Size] = (SMALL_SIZE, LARGE_SIZE), repeats: int = 20, memory: bool = True) -> list[Comparison]:
    """Every piece at every size, the two forms turn by turn; memory in processes of their own, at the first size."""
    found = []
    for piece in PIECES.values():
        for size in sizes:
            steps = {"ours": training_step(piece.row, size), "plain": plain_step(piece.name, size)}
            took = {form: median(rounds) for form, rounds in interleaved(steps, repeats).items()}
            mib = plain_mib = None
            if memory and size is sizes[0]:
                mib = peak_memory(training_step, piece.row, size)
                plain_mib = peak_memory(plain_step, piece.name, size)
            found.append(Comparison(piece.name, piece.row, size.title, took["ours"], took["plain"], mib, plain_mib))
    return found
