"""SO(n)^n_b: rotations that do not commute, and the products of them along a path (paper, D.2).

Matrices are kept *entries first*, (n, n, …), so that the product of very many very small matrices is n passes over long
contiguous rows rather than a call per matrix. A path is (n, n, L, M): L steps of M matrices.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

CHUNK = 4096  # matrices worked on at a time on a CPU, so that they stay in the cache
# Norm up to which the series below are exact to rounding, and how many terms the one of the gradient then needs.
NEAR = {torch.float32: (0.5, 9), torch.float64: (0.3, 13)}


def n_generators(n: int) -> int:
    """n(n−1)/2: the planes to rotate in."""
    return n * (n - 1) // 2


def skew(theta: Tensor, n: int) -> Tensor:
    """Σ_k θ_k S_k, (K, …) -> (n, n, …), S_k = E_ji − E_ij for the k-th pair i < j; block 2 is [[0, −θ], [θ, 0]]."""
    i, j = torch.triu_indices(n, n, offset=1)
    matrix = theta.new_zeros(n, n, *theta.shape[1:])
    matrix[j, i], matrix[i, j] = theta, -theta
    return matrix


def unskew(matrix: Tensor) -> Tensor:
    """The transpose of :func:`skew`: (n, n, …) -> (K, …), Σ over entries of matrix ⊙ S_k."""
    i, j = torch.triu_indices(matrix.shape[0], matrix.shape[0], offset=1)
    return matrix[j, i] - matrix[i, j]


def multiply(a: Tensor, b: Tensor) -> Tensor:
    """The matrix products a b of (n, n, …) and (n, m, …)."""
    product = a[:, 0, None] * b[None, 0]
    for k in range(1, a.shape[1]):
        product = product.addcmul_(a[:, k, None], b[None, k])
    return product


def transpose(a: Tensor) -> Tensor:
    return a.transpose(0, 1)


def identity(like: Tensor) -> Tensor:
    """(n, n, 1, …) of as many dimensions as ``like``."""
    n = like.shape[0]
    return torch.eye(n, dtype=like.dtype, device=like.device).reshape(n, n, *(1,) * (like.dim() - 2))


def _halvings(a: Tensor) -> int:
    """How often a must be halved until the polynomial is exact: the largest row sum bounds the norm."""
    norm = float(a.abs().sum(dim=1).amax()) if a.numel() else 0.0
    near = NEAR[a.dtype][0]
    return max(0, math.ceil(math.log2(norm / near))) if norm > near else 0


def _powers(a: Tensor, halvings: int) -> list[Tensor]:
    """exp(a/2^m), …, exp(a/2), exp(a): a Taylor polynomial of order 12 by five products, then m squarings."""
    a = a / 2**halvings
    a2 = multiply(a, a)
    a3, a4 = multiply(a2, a), multiply(a2, a2)
    one = identity(a)
    polynomial = _four_terms(8, one, a, a2, a3) + a4 / math.factorial(12)
    for first in (4, 0):
        polynomial = _four_terms(first, one, a, a2, a3) + multiply(a4, polynomial)
    powers = [polynomial]
    for _ in range(halvings):
        powers.append(multiply(powers[-1], powers[-1]))
    return powers


def _four_terms(first: int, *powers: Tensor) -> Tensor:
    """Σ_i a^i/(first + i)! for i = 0 … 3."""
    return sum((p / math.factorial(first + i) for i, p in enumerate(powers)), start=torch.zeros_like(powers[1]))


def exponential(a: Tensor) -> Tensor:
    """exp of skew matrices (n, n, N): rotations."""
    halvings = _halvings(a)
    out = torch.empty_like(a)
    for part in _parts(a):
        out[part] = _powers(a[part], halvings)[-1]
    return out


def exponential_backward(a: Tensor, grad: Tensor) -> Tensor:
    """dL/da from dL/d exp(a), a skew.

    exp(a + ε) = exp(a) exp(φ) with φ = ∫₀¹ e^{−sa} ε e^{sa} ds, so the gradient is I(1),
    I(h) = ∫₀ʰ e^{sa} X e^{−sa} ds, with X the skew part of exp(a)ᵀ grad.
    For small h, I(h) = Σ_k ad_a^k(X) h^(k+1)/(k+1)!; then I(2h) = I(h) + e^{ha} I(h) e^{−ha}, by the powers that
    squaring has made anyway.
    """
    halvings = _halvings(a)
    out = torch.empty_like(a)
    for part in _parts(a):
        powers = _powers(a[part], halvings)
        x = multiply(transpose(powers[-1]), grad[part])
        term = (x - transpose(x)) / 2
        small = a[part] / 2**halvings
        integral = term.clone()
        for k in range(1, NEAR[a.dtype][1] + 1):
            product = multiply(small, term)
            term = (product - transpose(product)) / (k + 1)
            integral += term
        for turn in powers[:-1]:
            integral = (integral + multiply(multiply(turn, integral), transpose(turn))) / 2
        out[part] = integral
    return out


def _parts(a: Tensor) -> Iterator[tuple[slice, ...]]:
    """Index of a few thousand matrices at a time on a CPU, of all elsewhere."""
    n_matrices = a.shape[-1]
    step = CHUNK if a.device.type == "cpu" else max(1, n_matrices)
    for first in range(0, n_matrices, step):
        yield slice(None), slice(None), slice(first, first + step)


def prefix_products(w: Tensor) -> Tensor:
    """P_t = W_t … W_1 along dimension 2 of (n, n, L, M).

    In blocks of √L steps: within all blocks side by side, then over the ends of the blocks, then the blocks joined:
    2√L dependent steps, two products per matrix.
    """
    n, _, length, m = w.shape
    step = math.isqrt(max(0, length - 1)) + 1
    blocks = -(-length // step)
    spare = identity(w).expand(n, n, blocks * step - length, m)
    within = torch.cat((w, spare), dim=2).unflatten(2, (blocks, step)).contiguous()
    for j in range(1, step):
        within[:, :, :, j] = multiply(within[:, :, :, j], within[:, :, :, j - 1])
    for block in range(1, blocks):
        within[:, :, block] = multiply(within[:, :, block], within[:, :, block - 1, -1].unsqueeze(2))
    return within.flatten(2, 3)[:, :, :length].contiguous()


def prefix_products_backward(products: Tensor, grad: Tensor) -> Tensor:
    """dL/dW_t = P_t (Σ_{s≥t} P_sᵀ Ḡ_s) P_{t−1}ᵀ: because P is orthogonal a reversed sum stands in for the scan."""
    pulled = multiply(transpose(products), grad)
    later = pulled.flip(2).cumsum(dim=2).flip(2)
    before = torch.cat((identity(products).expand_as(products[:, :, :1]), products[:, :, :-1]), dim=2)
    return multiply(multiply(products, later), transpose(before))


def rotation_products(theta: Tensor, n: int) -> Tensor:
    """P_t = W_t … W_1 with W_t = exp(Σ_k θ_{t,k} S_k): (K, L, M) -> (n, n, L, M)."""
    return prefix_products(exponential(skew(theta, n).flatten(2)).unflatten(2, theta.shape[1:]))


def rotation_products_backward(theta: Tensor, products: Tensor, grad: Tensor) -> Tensor:
    """dL/dθ from dL/dP."""
    d_rotations = prefix_products_backward(products, grad)
    d_skew = exponential_backward(skew(theta, products.shape[0]).flatten(2), d_rotations.flatten(2))
    return unskew(d_skew).unflatten(1, theta.shape[1:])
