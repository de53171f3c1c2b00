"""SO(n) by matrices: exponentials, products along a path, and the gradients of both (paper, D.2).

Matrices are kept *entries first*, (n, n, …), so that the product of very many very small matrices is n passes over long
contiguous rows rather than a call per matrix. Paths are (n, n, G, S, T, B), with time cut as in time_blocks.py.
"""

import itertools
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from mapformers.lie.generators import coefficients, skew, wedge
from mapformers.ops.rotation_products import time_blocks

CHUNK = 4096  # matrices exponentiated at a time on a CPU, so that they stay in the cache
# Norm up to which the polynomial of degree 8 is exact to rounding.
NEAR = {torch.float32: 0.58, torch.float64: 0.07}


def multiply(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The products a b of matrices (n, n, …) and (n, m, …); ``out`` must be neither of them."""
    columns, rows = _columns_and_rows(a, b)
    product = torch.mul(columns[0], rows[0], out=out)
    for column, row in zip(columns[1:], rows[1:]):
        product.addcmul_(column, row)
    return product


def add_product(c: Tensor, a: Tensor, b: Tensor, *, times: float = 1.0, out: Tensor) -> Tensor:
    """c + times · a b; ``out`` must be none of them."""
    columns, rows = _columns_and_rows(a, b)
    torch.addcmul(c, columns[0], rows[0], value=times, out=out)
    for column, row in zip(columns[1:], rows[1:]):
        out.addcmul_(column, row, value=times)
    return out


def _columns_and_rows(a: Tensor, b: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    return a.unsqueeze(2).unbind(1), b.unsqueeze(0).unbind(1)


def transpose(a: Tensor) -> Tensor:
    return a.transpose(0, 1)


def size_of(theta: Tensor) -> float:
    """The largest norm of all the matrices Σ_k θ_k S_k.

    Their eigenvalues come in pairs ±iλ, so 2 λ² ≤ ‖a‖² = 2 |θ|²: no eigenvalue is beyond |θ|.
    """
    return math.sqrt(float(theta.square().sum(dim=0).amax())) if theta.numel() else 0.0


def halvings(size: float, dtype: torch.dtype) -> int:
    """How often matrices of this norm must be halved until the polynomial is exact."""
    return max(0, math.ceil(math.log2(size / NEAR[dtype]))) if 0 < size < math.inf else 0


def series_terms(size: float, dtype: torch.dtype) -> int:
    """How many terms ad^k/(k+1)! count in φ(ad) of matrices of this norm.

    The eigenvalues of ad are sums of two eigenvalues ±iλ, ±iμ of a, and λ² + μ² ≤ |θ|²: none is beyond √2 |θ|.
    """
    if not math.isfinite(size):
        return 0  # the result is not finite, whatever the number of terms
    k, term = 0, 1.0
    while term > torch.finfo(dtype).eps:
        k += 1
        term *= math.sqrt(2) * size / (k + 1)
    return k


# Taylor's polynomial of degree 8 by three products (Bader, Blanes & Casas, Mathematics 7 (2019) 1174), a² among them:
# 1 + a + c₈a² + (c₃a² + b)(c₄ + c₅a + c₆a² + c₇b) with b = a²(c₁a + c₂a²).
ROOT = math.sqrt(177)
C3 = 2 / 3
C1, C2 = C3 * (1 + ROOT) / 88, C3 * (1 + ROOT) / 352
C4, C5 = (-271 + 29 * ROOT) / (315 * C3), 11 * (-1 + ROOT) / (1260 * C3)
C6, C7 = 11 * (-9 + ROOT) / (5040 * C3), (89 - ROOT) / (5040 * C3**2)
C8 = (857 - 58 * ROOT) / 630


def _polynomial(a: Tensor, spare: Sequence[Tensor]) -> Tensor:
    """exp(a) − 1 of small a, in spare[0]. All that it is given is written over."""
    a2, factor, b = spare
    multiply(a, a, out=a2)
    multiply(a2, torch.mul(a, C1, out=factor).add_(a2, alpha=C2), out=b)
    _add_to_diagonal(torch.mul(a, C5, out=factor).add_(a2, alpha=C6).add_(b, alpha=C7), C4)
    b.add_(a2, alpha=C3)
    return add_product(a.add_(a2, alpha=C8), b, factor, out=a2)


def _add_to_diagonal(a: Tensor, number: float) -> Tensor:
    a.diagonal(dim1=0, dim2=1).add_(number)
    return a


def _square(e: Tensor, out: Tensor) -> Tensor:
    """(1 + e)² − 1 = e² + 2e: squared so, what is small keeps its digits."""
    return multiply(e, e, out=out).add_(e, alpha=2)


class ReusedMatrices:
    """Matrices to write to, kept from one chunk to the next: new memory would be far from the cache."""

    def __init__(self, n: int, like: Tensor):
        self.n, self.like = n, like
        self.kept: list[Tensor] = []

    def __call__(self, count: int, width: int) -> list[Tensor]:
        """So many of (n, n, width); the first call has the widest."""
        while len(self.kept) < count:
            widest = self.kept[0].numel() if self.kept else self.n * self.n * width
            self.kept.append(self.like.new_empty(widest))
        return [numbers[: self.n**2 * width].view(self.n, self.n, width) for numbers in self.kept[:count]]


def exponential(theta: Tensor, n: int) -> Tensor:
    """W = exp(Σ_k θ_k S_k): (K, N) -> (n, n, N)."""
    out = theta.new_empty(n, n, theta.shape[1])
    reused = ReusedMatrices(n, theta)
    for part in _chunks(theta):
        mine = theta[:, part]
        m = halvings(size_of(mine), theta.dtype)
        a, *spare = reused(4, mine.shape[1])
        e, other = _polynomial(skew(mine / 2**m, n, out=a), spare), a
        for _ in range(m):
            e, other = _square(e, out=other), e
        out[..., part] = _add_to_diagonal(e, 1.0)
    return out


def exponential_gradient(theta: Tensor, x: Tensor) -> Tensor:
    """dL/dθ from the gradient X on ε in e^ε exp(a), a = Σ_k θ_k S_k: I(1), I(h) = ∫₀ʰ e^{−sa} X e^{sa} ds.

    For small h, I(h)/h = Σ_k (−h ad_a)^k(X)/(k+1)!, by Horner's rule; ad_a(X) = aX − (aX)ᵀ for skew matrices.
    Then I(2h) = I(h) + e^{−ha} I(h) e^{ha}.
    """
    n = math.isqrt(2 * theta.shape[0]) + 1
    shape = theta.shape
    theta, x = theta.flatten(1), x.flatten(1)
    out = torch.empty_like(theta)
    reused = ReusedMatrices(n, theta)
    for part in _chunks(theta):
        mine = theta[:, part]
        size = size_of(mine)
        m = halvings(size, theta.dtype)
        a, half, integral, product, *turns = reused(4 + m, mine.shape[1])
        skew(mine / 2**m, n, out=a)
        skew(x[:, part] / 2, n, out=half)
        torch.mul(half, 2, out=integral)
        for k in range(series_terms(size / 2**m, theta.dtype), 0, -1):
            add_product(half, a, integral, times=-1 / (k + 1), out=product)
            torch.sub(product, transpose(product), out=integral)
        if m > 0:
            _polynomial(a, (turns[0], half, product))
        for e, square in itertools.pairwise(turns):
            _square(e, out=square)
        for e in turns:
            turn = _add_to_diagonal(e, 1.0)
            multiply(transpose(turn), integral, out=product)
            integral, half = add_product(integral, product, turn, out=half), integral
        torch.mul(coefficients(integral), 2.0**-m, out=out[:, part])
    return out.unflatten(1, shape[1:])


def _chunks(theta: Tensor) -> Iterator[slice]:
    """A few thousand matrices at a time on a CPU, all of them elsewhere."""
    n_matrices = theta.shape[1]
    step = CHUNK if theta.device.type == "cpu" else max(1, n_matrices)
    for first in range(0, n_matrices, step):
        yield slice(first, first + step)


def accumulate(theta: Tensor) -> Tensor:
    """P_t = W_t … W_1 with W_t = exp(Σ_k θ_k S_k): (K, G, S, T, B) -> (n, n, G, S, T, B)."""
    n = math.isqrt(2 * theta.shape[0]) + 1
    return time_blocks.scan(exponential(theta.flatten(1), n).unflatten(2, theta.shape[1:]), multiply)


def as_matrices(p: Tensor) -> Tensor:
    return p


def rotate(p: Tensor, x: Tensor, back: bool = False) -> Tensor:
    """P x of vectors (n, V, …), or Pᵀ x."""
    return multiply(transpose(p) if back else p, x)


def gathered_gradient(p: Tensor, dx: Tensor, x: Tensor) -> Tensor:
    """P_t (Σ_{s≥t} dx_s ∧ x_s) P_tᵀ in the K generators, dx (n, V, …), x like it or the same at all times.

    If it is the same, that is (P_t Σ_{s≥t} dx_s) ∧ (P_t x), which takes no product of matrices.
    """
    if x.shape != dx.shape:
        return wedge(rotate(p, time_blocks.sum_of_later(dx)), rotate(p, x))
    later = skew(time_blocks.sum_of_later(wedge(dx, x)), p.shape[0])
    return coefficients(multiply(multiply(p, later), transpose(p)))
