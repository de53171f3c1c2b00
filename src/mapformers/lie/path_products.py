"""Products of rotations along a path as one operator that autograd and compilers know (paper, D.2)."""

from types import ModuleType

import torch
from torch import Tensor

from mapformers.lie import orthogonal, quaternions

NUMBERS = 2**20  # of all the matrices worked on at a time on a CPU: fewer calls count for more than the cache


@torch.library.custom_op("mapformers::rotation_products", mutates_args=())
def rotation_products(theta: Tensor, n: int) -> Tensor:
    """P_t = W_t … W_1 with W_t = exp(Σ_k θ_{t,k} S_k): (K, L, M) -> (n, n, L, M).

    By quaternions for n = 3 and 4, by matrices otherwise.
    """
    products = theta.new_empty(n, n, *theta.shape[1:])
    for part in _parts(theta, n):
        products[..., part] = _by(n).rotation_products(theta[..., part], n)
    return products


@torch.library.custom_op("mapformers::rotation_products_backward", mutates_args=())
def _rotation_products_backward(grad: Tensor, theta: Tensor, products: Tensor) -> Tensor:
    n = products.shape[0]
    d_theta = torch.empty_like(theta, memory_format=torch.contiguous_format)
    for part in _parts(theta, n):
        d_theta[..., part] = _by(n).rotation_products_backward(theta[..., part], products[..., part], grad[..., part])
    return d_theta


def _by(n: int) -> ModuleType:
    return quaternions if n in (3, 4) else orthogonal


def _parts(theta: Tensor, n: int) -> list[slice]:
    """Some paths at a time on a CPU, all of them elsewhere."""
    length, m = theta.shape[1:]
    together = max(1, NUMBERS // (n * n * length)) if theta.device.type == "cpu" else max(1, m)
    return [slice(first, first + together) for first in range(0, m, together)]


@rotation_products.register_fake
def _(theta: Tensor, n: int) -> Tensor:
    return theta.new_empty(n, n, *theta.shape[1:])


@_rotation_products_backward.register_fake
def _(grad: Tensor, theta: Tensor, products: Tensor) -> Tensor:
    return torch.empty_like(theta, memory_format=torch.contiguous_format)


def _save(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(inputs[0], output)


def _backward(ctx, grad):  # type: ignore[no-untyped-def]
    theta, products = ctx.saved_tensors
    return _rotation_products_backward(grad, theta, products), None


rotation_products.register_autograd(_backward, setup_context=_save)
