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

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from mapformers.modules.context import Context
from mapformers.modules.movement import Movement, find_movements

FOLLOW = 0.1  # how far the kept mean follows that of each batch


def zero_mean_movement(model: nn.Module, on: bool) -> None:
    """Switch it on or off for every movement of a model. It acts in training mode only.

    Models without movements (`rope`, a module of one's own) are left as they are.
    """
    for movement in find_movements(model):
        movement.adjust = subtract_mean if on else None


def subtract_mean(movement: Movement, delta_in: Tensor, context: Context) -> Tensor:
    """Δ_in less its mean over the real tokens of the whole batch, on all processes.

    ``movement.mean`` follows, so that nothing jumps when this ends.
    """
    weight = context.real_here().to(delta_in.dtype)[:, :, None, None]
    moved, counted = sum_over_processes((delta_in * weight).sum(dim=(0, 1))), sum_over_processes(weight.sum())
    mean = moved / counted.clamp(min=1)
    with torch.no_grad():
        movement.mean += FOLLOW * mean
    return delta_in - mean


@torch.compiler.disable  # type: ignore[untyped-decorator]
def sum_over_processes(x: Tensor) -> Tensor:
    """Σ of ``x`` over all processes, differentiable; ``x`` itself where there is one."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return x
    summed: Tensor = _Sum.apply(x)
    return summed


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
