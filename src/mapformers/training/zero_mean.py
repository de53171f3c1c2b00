"""Holding the mean movement at zero in the first steps, so that a map is learned before a clock (docs/fidelity.md).

The quickest use of a movement is as a clock: every token moves the same way, so recent tokens are near. A clock that
comes first takes up a dimension which the map then lacks. So for the first few hundred steps the mean movement of each
batch is taken out. The trainer does it for ``TrainConfig.zero_mean_steps`` steps; a loop of one's own does it so:

Examples:
    >>> import mapformers as mf
    >>> model = mf.build_model("mapwm", vocab_size=21)
    >>> for step in range(1000):
    ...     mf.training.zero_mean_movement(model, step < 250)
    ...     pass  # forward, backward, optimizer.step()
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from mapformers.modules.context import Context
from mapformers.modules.movement import Adjust, Movement, find_movements

FOLLOW = 0.1  # how far the kept mean follows that of each batch


def zero_mean_movement(model: nn.Module, on: bool) -> None:
    """Switch it on or off for every movement of a model. It acts in training mode only.

    Models without movements (`rope`, a module of one's own) are left as they are.
    """
    adjust = _adjustment(_is_one_of_several()) if on else None
    for movement in find_movements(model):
        movement.adjust = adjust


def subtract_mean(movement: Movement, delta_in: Tensor, context: Context, total: Callable[[Tensor], Tensor]) -> Tensor:
    """Δ_in less its mean over the real tokens of the whole batch; ``total``: the sum over all processes.

    ``movement.mean`` follows, so that nothing jumps when this ends.
    """
    weight = context.real_here().to(delta_in.dtype)[:, :, None, None]
    moved, counted = total((delta_in * weight).sum(dim=(0, 1))), total(weight.sum())
    mean = moved / counted.clamp(min=1)
    with torch.no_grad():
        movement.mean += FOLLOW * mean
    return delta_in - mean


def _is_one_of_several() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


@cache
def _adjustment(of_several: bool) -> Adjust:
    """The same function for every step, or a compiler would begin anew."""
    return partial(subtract_mean, total=_sum_over_processes() if of_several else _as_it_is)


def _as_it_is(x: Tensor) -> Tensor:
    return x


def _sum_over_processes() -> Callable[[Tensor], Tensor]:
    """Σ over all processes, differentiable, outside of compiled graphs.

    Made where it is needed: `torch.compiler.disable` imports the compiler, which takes seconds.
    """
    outside: Callable[[Tensor], Tensor] = torch.compiler.disable(_Sum.apply)
    return outside


class _Sum(torch.autograd.Function):
    """Every process's loss depends on the sum, so the gradient of a term is the sum of their gradients.

    torch has the same in `torch.distributed._functional_collectives`, private and only since 2.10.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        summed: Tensor = _Sum.apply(grad)  # itself, so that it can be differentiated again
        return summed
