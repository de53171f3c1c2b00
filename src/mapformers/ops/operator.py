"""What every operator with a backward pass of its own needs to be known to autograd and to compilers.

A loop over tiles or time would be unrolled by a compiler, so it is a `torch.library.custom_op`: tensors first, then
settings (numbers, words, switches). Its backward pass is a second operator of ``(grad, output, *inputs)``.

Autograd cannot differentiate a hand-written backward pass. `torch.autograd.function.once_differentiable` does not
always raise then: if the same weights are also reached through other operations, autograd silently returns the part
from those alone. So second derivatives always go through the plain form (`gradients_of`), and so do forward-mode
derivatives (`in_forward_mode`).
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad


def in_forward_mode() -> bool:
    """Whether derivatives are carried along with the values (`torch.func.jvp`): an operator would drop them unseen."""
    return forward_ad._current_level >= 0


def is_readable() -> bool:
    """Whether numbers in tensors may decide what is computed next: not while a compiler or `torch.func` looks on."""
    followed = torch.compiler.is_compiling() or in_forward_mode()
    return not followed and torch._C._functorch.peek_interpreter_stack() is None


def is_plain_step(length: int) -> bool:
    """Whether a single token is read and nothing follows the computation: neither autograd nor a compiler.

    Then plain torch code is right, and calling an operator would take longer than its work.
    """
    followed = torch.is_grad_enabled() or torch.compiler.is_compiling() or in_forward_mode()
    return length == 1 and not followed


def gradients_of(
    plain: Callable[..., Any], inputs: Sequence[Any], needed: Sequence[bool], grads: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """The gradients of the ``needed`` inputs of plain torch code that can themselves be differentiated.

    For a backward pass in which `torch.is_grad_enabled()`: it is one with ``create_graph=True``. ``plain`` returns a
    tensor or several, and ``grads`` has the gradient of each.
    """
    # Views, because one input may be computed from another: what flows through it is not to be counted twice.
    own = [t.view_as(t) if isinstance(t, Tensor) else t for t in inputs]
    found = plain(*own)
    outputs = (found,) if isinstance(found, Tensor) else found
    pairs = [(output, grad) for output, grad in zip(outputs, grads, strict=True) if output.requires_grad]
    wanted = [t for t, is_needed in zip(own, needed, strict=True) if is_needed]
    ends, starts = zip(*pairs)
    gradients = iter(torch.autograd.grad(ends, wanted, starts, create_graph=True, allow_unused=True))
    return tuple(next(gradients) if is_needed else None for is_needed in needed)


def register_gradient(op: Any, backward: Any, plain: Callable[..., Tensor], n_tensors: int, n_gradients: int) -> None:
    """Let ``backward`` make the gradients of the first ``n_gradients`` of the ``n_tensors`` tensors ``op`` takes.

    ``plain`` takes what ``op`` takes and equals it; second derivatives are its.
    """

    def save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.settings = inputs[n_tensors:]
        ctx.save_for_backward(output, *inputs[:n_tensors])

    def run(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        output, *tensors = ctx.saved_tensors
        if torch.is_grad_enabled():
            return gradients_of(plain, (*tensors, *ctx.settings), ctx.needs_input_grad, (grad,))
        gradients = backward(grad, output, *tensors, *ctx.settings)
        return *gradients, *(None,) * (n_tensors + len(ctx.settings) - n_gradients)

    def shapes(grad: Tensor, output: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
        return tuple(empty_like(t) for t in inputs[:n_gradients])

    op.register_autograd(run, setup_context=save)
    backward.register_fake(shapes)


def empty_like(x: Tensor) -> Tensor:
    """Contiguous whatever ``x`` is, as the operators' own results are."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)
