"""so(n) in its canonical generators S_k = E_ji − E_ij, one for each plane i < j: K = n(n−1)/2 of them."""

import functools

import torch
from torch import Tensor


def n_generators(n: int) -> int:
    """n(n−1)/2: the planes to rotate in."""
    return n * (n - 1) // 2


def skew(theta: Tensor, n: int, out: Tensor | None = None) -> Tensor:
    """Σ_k θ_k S_k, (K, …) -> (n, n, …); block 2 is [[0, −θ], [θ, 0]]."""
    numbers = torch.cat((theta, -theta, torch.zeros_like(theta[:1])))
    index, _ = _entries(n, theta.device)
    if out is None:
        return numbers.index_select(0, index).unflatten(0, (n, n))
    torch.index_select(numbers, 0, index, out=out.flatten(0, 1))
    return out


def coefficients(matrix: Tensor) -> Tensor:
    """The inverse of `skew`: (n, n, …) -> (K, …)."""
    _, below = _entries(matrix.shape[0], matrix.device)
    return matrix.flatten(0, 1).index_select(0, below)


@functools.cache
def _entries(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Which of (θ, −θ, 0) each entry of a skew matrix is, row by row, and where in it each θ_k is."""
    k = n_generators(n)
    with torch.inference_mode(False):  # whoever asks first, all can differentiate
        which = torch.full((n, n), 2 * k)
        i, j = torch.triu_indices(n, n, offset=1)
        which[j, i], which[i, j] = torch.arange(k), torch.arange(k, 2 * k)
        return which.flatten().to(device), (j * n + i).to(device)


def wedge(dx: Tensor, x: Tensor) -> Tensor:
    """Σ_V ⟨dx, S_k x⟩ = Σ_V dx_j x_i − dx_i x_j of vectors (n, V, …), x broadcast to dx: (K, …).

    How the loss grows as every x is turned a little in plane k.
    """
    n, n_vectors = dx.shape[:2]
    out = dx.new_empty(n_generators(n), *dx.shape[2:])
    first = 0
    for i in range(n - 1):
        mine = out[first : first + n - 1 - i]
        for v in range(n_vectors):
            if v == 0:
                torch.mul(dx[i + 1 :, v], x[i, v], out=mine)
            else:
                mine.addcmul_(dx[i + 1 :, v], x[i, v])
            mine.addcmul_(dx[i, v], x[i + 1 :, v], value=-1)
        first += n - 1 - i
    return out
