"""Vectors rotated along a path of rotations that do not commute, as operators that autograd and compilers know.

P_t = W_t … W_1 with W_t = exp(Σ_k θ_{t,k} S_k), by quaternions for n = 3 and 4, by matrices otherwise. Angles are
(K, G, S, T, B): K generators of G = heads × blocks in B sequences, with time cut as in time_blocks.py.

The gradient needs neither a scan nor the gradient of any matrix. Were a little rotation put right after step t,
y_s = P_s x_s would change for all s ≥ t. With dx_s = P_sᵀ dy_s, its gradient as seen from the origin is
Σ_{s≥t} dx_s ∧ x_s, K numbers; as seen at t it is P_t (Σ_{s≥t} dx_s ∧ x_s) P_tᵀ, and the Jacobian of exp makes dL/dθ_t
of it. Autograd through the products (reference.py) takes three to eight times as long and five times the memory or more
(`mapformers bench ops`, docs/results/bench-ops.md).
"""

from collections.abc import Iterator
from functools import partial
from types import ModuleType

import torch
from torch import Tensor

from mapformers.ops.operator import gradients_of, in_forward_mode
from mapformers.ops.rotation_products import matrices, quaternions, time_blocks
from mapformers.ops.rotation_products.reference import apply_in_order, rotations_in_order

CPU_NUMBERS = 2**21  # of matrices n×n worked on at a time on a CPU: few enough to stay in the cache


def _by(n: int) -> ModuleType:
    return quaternions if n in (3, 4) else matrices


def _parts(theta: Tensor, n: int) -> Iterator[slice]:
    """Some of the G at a time on a CPU, all of them elsewhere."""
    groups, each = theta.shape[1], theta[0, 0].numel()
    together = max(1, CPU_NUMBERS // max(1, n * n * each)) if theta.device.type == "cpu" else groups
    for first in range(0, groups, together):
        yield slice(first, first + together)


@torch.library.custom_op("mapformers::accumulate_rotations", mutates_args=())
def accumulate(theta: Tensor, n: int) -> Tensor:
    """P along the path, as quaternions (4, 1 or 2, G, S, T, B) or matrices (n, n, G, S, T, B); without gradient."""
    p = theta.new_empty(_shape(n) + theta.shape[1:])
    for part in _parts(theta, n):
        p[:, :, part] = _by(n).accumulate(theta[:, part])
    return p


def _shape(n: int) -> tuple[int, int]:
    return (4, n - 2) if n in (3, 4) else (n, n)


@accumulate.register_fake
def _(theta: Tensor, n: int) -> Tensor:
    return theta.new_empty(_shape(n) + theta.shape[1:])


@torch.library.custom_op("mapformers::apply_rotations", mutates_args=())
def apply(theta: Tensor, p: Tensor, x: Tensor, n: int, back: bool) -> Tensor:
    """P_t x_t, or P_tᵀ x_t (``back``), of vectors x (n, V, G, S, T, B), or of x (n, V, G, 1, 1, 1) that stay the same.

    ``p`` is what `accumulate` made of theta: the gradient for both is theta's.
    """
    y = x.new_empty(x.shape[:3] + theta.shape[2:])
    for part in _parts(theta, n):
        y[:, :, part] = _by(n).rotate(p[:, :, part], x[:, :, part], back)
    return y


@torch.library.custom_op("mapformers::apply_rotations_backward", mutates_args=())
def _apply_backward(dy: Tensor, theta: Tensor, p: Tensor, x: Tensor, n: int, back: bool) -> tuple[Tensor, Tensor]:
    d_theta = torch.empty_like(theta)
    dx = torch.empty_like(x)
    way = _by(n)
    # It comes as a matrix transposed, which PyTorch copies in blocks as long as it is a matrix.
    dy = dy.flatten(3).flatten(0, 2).contiguous().reshape(dy.shape)
    for part in _parts(theta, n):
        path, here, there = p[:, :, part], x[:, :, part], dy[:, :, part]
        pulled = way.rotate(path, there, not back)
        dx[:, :, part] = pulled.sum_to_size(here.shape)
        # y = Pᵀ x turns the other way round, and the origin is where y is.
        pair = (way.rotate(path, here, back), there) if back else (pulled, here)
        d_theta[:, part] = way.exponential_gradient(theta[:, part], way.gathered_gradient(path, *pair))
    return d_theta, dx


@apply.register_fake
def _(theta: Tensor, p: Tensor, x: Tensor, n: int, back: bool) -> Tensor:
    return x.new_empty(x.shape[:3] + theta.shape[2:])


@_apply_backward.register_fake
def _(dy: Tensor, theta: Tensor, p: Tensor, x: Tensor, n: int, back: bool) -> tuple[Tensor, Tensor]:
    return torch.empty_like(theta), torch.empty_like(x)


def _save(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    *tensors, ctx.n, ctx.back = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx, dy):  # type: ignore[no-untyped-def]
    if torch.is_grad_enabled():
        theta, _, x = ctx.saved_tensors
        in_order = partial(apply_in_order, n=ctx.n, back=ctx.back)
        d_theta, dx = gradients_of(in_order, (theta, x), (ctx.needs_input_grad[0], ctx.needs_input_grad[2]), (dy,))
    else:
        d_theta, dx = _apply_backward(dy, *ctx.saved_tensors, ctx.n, ctx.back)
    return d_theta, None, dx, None, None


apply.register_autograd(_backward, setup_context=_save)


def all_rotations(theta: Tensor, p: Tensor, n: int) -> Tensor:
    """P_t as matrices (n, n, G, S, T, B): the unit vectors rotated along."""
    if in_forward_mode():
        return rotations_in_order(theta, n)
    return apply(theta, p, _units(theta, n), n, False)


def _units(theta: Tensor, n: int) -> Tensor:
    eye = torch.eye(n, dtype=theta.dtype, device=theta.device)
    return eye.reshape(n, n, 1, 1, 1, 1).repeat(1, 1, theta.shape[1], 1, 1, 1)


@torch.library.custom_op("mapformers::rotation_at", mutates_args=())
def rotation_at(theta: Tensor, p: Tensor, n: int, t: int) -> Tensor:
    """P_t of a single time as matrices (n, n, G, B). Its gradient costs as much as that of all, if it is asked for."""
    return _by(n).as_matrices(time_blocks.at(p, t)).clone()


@rotation_at.register_fake
def _(theta: Tensor, p: Tensor, n: int, t: int) -> Tensor:
    return theta.new_empty(n, n, theta.shape[1], theta.shape[-1])


def _save_rotation_at(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    theta, p, ctx.n, ctx.t = inputs
    ctx.save_for_backward(theta, p)


def _rotation_at_backward(ctx, grad):  # type: ignore[no-untyped-def]
    theta, p = ctx.saved_tensors
    if torch.is_grad_enabled():
        return *gradients_of(partial(_at_in_order, n=ctx.n, t=ctx.t), (theta,), (True,), (grad,)), None, None, None
    dy = theta.new_zeros(ctx.n, ctx.n, *theta.shape[1:])
    time_blocks.at(dy, ctx.t).copy_(grad)
    return _apply_backward(dy, theta, p, _units(theta, ctx.n), ctx.n, False)[0], None, None, None


def _at_in_order(theta: Tensor, n: int, t: int) -> Tensor:
    return time_blocks.at(rotations_in_order(theta, n), t)


rotation_at.register_autograd(_rotation_at_backward, setup_context=_save_rotation_at)
