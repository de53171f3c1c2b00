"""What every operator with a backward pass of its own needs to be known to autograd and to compilers.

A loop over tiles or time would be unrolled by a compiler, so it is a `torch.library.custom_op`: tensors first, then
settings (numbers, words, switches). Its backward pass is a second operator of ``(grad, output, *inputs)``.
"""

from typing import Any

import torch
from torch import Tensor


def register_gradient(op: Any, backward: Any, n_tensors: int, n_gradients: int) -> None:
    """Let ``backward`` make the gradients of the first ``n_gradients`` of the ``n_tensors`` tensors ``op`` takes."""

    def save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.settings = inputs[n_tensors:]
        ctx.save_for_backward(output, *inputs[:n_tensors])

    def run(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gradients = backward(grad, *ctx.saved_tensors, *ctx.settings)
        return *gradients, *(None,) * (n_tensors + len(ctx.settings) - n_gradients)

    def shapes(grad: Tensor, output: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
        return tuple(empty_like(t) for t in inputs[:n_gradients])

    op.register_autograd(run, setup_context=save)
    backward.register_fake(shapes)


def empty_like(x: Tensor) -> Tensor:
    """Contiguous whatever ``x`` is, as the operators' own results are."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)
