"""Time cut into T blocks of S ≈ √L steps, so that products and sums along it take √L dependent calls.

Step j of block b is kept at [j, b], (…, S, T, B): the same step of all blocks of all B sequences is one contiguous row.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad


def root(n: int) -> int:
    """⌈√n⌉, by comparisons that a compiler can guard: it cannot trace `math.isqrt` of a length it keeps open."""
    r = 1
    while r * r < n:
        r += 1
    return r


def cut(x: Tensor) -> Tensor:
    """(B, L, …) -> (S, T, B, …); after the end come zeros."""
    length = x.shape[1]
    step = root(length)
    blocks = -(-length // step)
    if blocks * step > length:
        x = pad(x, (0, 0) * (x.dim() - 2) + (0, blocks * step - length))
    return x.unflatten(1, (blocks, step)).movedim((2, 1), (0, 1))


def joined(x: Tensor, length: int) -> Tensor:
    """The inverse of `cut`: (S, T, B, …) -> (B, L, …)."""
    return x.movedim((0, 1), (2, 1)).flatten(1, 2)[:, :length]


def at(x: Tensor, t: int) -> Tensor:
    """What (…, S, T, B) holds of time t: (…, B)."""
    step = x.shape[-3]
    return x[..., t % step, t // step, :]


def scan(w: Tensor, product: Callable[..., Tensor]) -> Tensor:
    """w_t … w_1 in place of w_t, for any product of (…, S, T, B): within all blocks, then block after block."""
    steps, blocks = w.shape[-3:-1]
    spare = torch.empty_like(w[..., 0, :, :])
    for j in range(1, steps):
        w[..., j, :, :] = product(w[..., j, :, :], w[..., j - 1, :, :], out=spare)
    if blocks == 1:
        return w
    ends = w[..., -1, :, :].clone()
    for b in range(1, blocks):
        ends[..., b, :] = product(ends[..., b, :], ends[..., b - 1, :])
    w[..., 1:, :] = product(w[..., 1:, :], ends[..., None, :-1, :])
    return w


def sum_of_later(x: Tensor) -> Tensor:
    """Σ_{s≥t} x_s in place of x_t of (…, S, T, B)."""
    steps, blocks = x.shape[-3:-1]
    for j in range(steps - 2, -1, -1):
        x[..., j, :, :] += x[..., j + 1, :, :]
    if blocks == 1:
        return x
    later = x[..., 0, 1:, :].flip(-2).cumsum(dim=-2).flip(-2)
    x[..., :-1, :] += later.unsqueeze(-3)
    return x
