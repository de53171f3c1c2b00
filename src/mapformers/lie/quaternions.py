"""SO(3) and SO(4) by unit quaternions: products along a path without matrix exponentials.

A rotation of R⁴ is x ↦ p x q̄ with two unit quaternions, one of R³ (the imaginary ones) is x ↦ p x p̄; composing
rotations multiplies their quaternions, and exp is a cosine and a sine. Quaternions are kept entries first, (4, …), pure
ones as vectors (3, …), and S streams of them side by side: (4, S, L, M), S = 2 for SO(4) and 1 for SO(3).
"""

import math

import torch
from torch import Tensor

from mapformers.lie.orthogonal import multiply, transpose, unskew


def half_angles(theta: Tensor, n: int) -> Tensor:
    """The pure quaternions (3, S, …) whose exponentials rotate as exp(Σ_k θ_k S_k), θ (K, …); see orthogonal.skew."""
    if n == 3:
        xy, xz, yz = theta
        return torch.stack((yz, -xz, xy)).unsqueeze(1) / 2
    a, b, c, d, e, f = theta  # planes 01, 02, 03, 12, 13, 23: the matrix is u x − x v
    u, v = torch.stack((a + f, b - e, c + d)), torch.stack((f - a, -e - b, d - c))
    return torch.stack((u, v), dim=1) / 2


def half_angles_transposed(pure: Tensor, n: int) -> Tensor:
    """The transpose of :func:`half_angles`: (3, S, …) -> (K, …)."""
    if n == 3:
        x, y, z = pure[:, 0] / 2
        return torch.stack((z, -y, x))
    u, v = pure[:, 0] / 2, pure[:, 1] / 2
    return torch.stack((u[0] - v[0], u[1] - v[1], u[2] - v[2], u[2] + v[2], -u[1] - v[1], u[0] + v[0]))


def product(a: Tensor, b: Tensor) -> Tensor:
    """Hamilton's product of (4, …)."""
    (w, x, y, z), (s, t, u, v) = a, b
    return torch.stack(
        (
            w * s - x * t - y * u - z * v,
            w * t + x * s + y * v - z * u,
            w * u - x * v + y * s + z * t,
            w * v + x * u - y * t + z * s,
        )
    )


def exponential(pure: Tensor) -> Tensor:
    """exp of pure quaternions, (3, …) -> (4, …): cos|u| + u sin|u|/|u|."""
    size = torch.linalg.vector_norm(pure, dim=0)
    return torch.cat((size.cos().unsqueeze(0), pure * torch.sinc(size / math.pi)))


def prefix_products(w: Tensor) -> Tensor:
    """p_t = w_t … w_1 along dimension 2 of (4, S, L, M), in blocks of √L steps (see orthogonal.prefix_products)."""
    length = w.shape[2]
    step = math.isqrt(max(0, length - 1)) + 1
    blocks = -(-length // step)
    spare = torch.zeros_like(w[:, :, :1]).expand(-1, -1, blocks * step - length, -1).clone()
    spare[0] = 1.0
    within = torch.cat((w, spare), dim=2).unflatten(2, (blocks, step))
    for j in range(1, step):
        within[:, :, :, j] = product(within[:, :, :, j], within[:, :, :, j - 1])
    for block in range(1, blocks):
        within[:, :, block] = product(within[:, :, block], within[:, :, block - 1, -1].unsqueeze(2))
    return within.flatten(2, 3)[:, :, :length]


def matrices(p: Tensor) -> Tensor:
    """The rotations of unit quaternions (4, S, …) as (n, n, …)."""
    left = _left(p[:, 0])
    right = _right_of_conjugate(p[:, -1])
    both = multiply(left, right)
    return both if p.shape[1] == 2 else both[1:, 1:]


def _left(p: Tensor) -> Tensor:
    """x ↦ p x as a matrix (4, 4, …)."""
    w, x, y, z = p
    return _rows((w, -x, -y, -z), (x, w, -z, y), (y, z, w, -x), (z, -y, x, w))


def _right_of_conjugate(q: Tensor) -> Tensor:
    """x ↦ x q̄ as a matrix (4, 4, …)."""
    w, x, y, z = q
    return _rows((w, x, y, z), (-x, w, -z, y), (-y, z, w, -x), (-z, -y, x, w))


def _rows(*rows: tuple[Tensor, ...]) -> Tensor:
    return torch.stack([torch.stack(row) for row in rows])


def turned(p: Tensor, pure: Tensor) -> Tensor:
    """p v p̄ of pure v (3, …): v + 2 w (r × v) + 2 r × (r × v), p = w + r."""
    once = 2 * _cross(p[1:], pure)
    return pure + p[0] * once + _cross(p[1:], once)


def _cross(a: Tensor, b: Tensor) -> Tensor:
    return torch.stack((a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]))


def rotation_products(theta: Tensor, n: int) -> Tensor:
    """(K, L, M) -> P (n, n, L, M), as orthogonal.rotation_products."""
    return matrices(prefix_products(exponential(half_angles(theta, n))))


def rotation_products_backward(theta: Tensor, products: Tensor, grad: Tensor) -> Tensor:
    """dL/dθ from dL/dP.

    A small rotation ε before step t changes every later P_s to P_s P_{t−1}ᵀ e^ε P_{t−1}, so its gradient is that of
    Σ_{s≥t} P_sᵀ Ḡ_s, carried by P_{t−1}; both are pure quaternions. From ε back to θ goes the Jacobian of exp.
    """
    n = products.shape[0]
    pure = half_angles(theta, n)
    p = prefix_products(exponential(pure))
    pulled = half_angles_of_dual(unskew(multiply(transpose(products), grad)), n)
    later = pulled.flip(2).cumsum(dim=2).flip(2)
    before = torch.cat((_ones_like(p[:, :, :1]), p[:, :, :-1]), dim=2)
    return half_angles_transposed(_jacobian(2 * pure, turned(before, later)), n)


def half_angles_of_dual(theta_bar: Tensor, n: int) -> Tensor:
    """A gradient with respect to θ as one with respect to half angles: the inverse of their transpose."""
    return half_angles(theta_bar, n) * (4 if n == 3 else 2)


def _ones_like(p: Tensor) -> Tensor:
    one = torch.zeros_like(p)
    one[0] = 1.0
    return one


def _jacobian(omega: Tensor, m: Tensor) -> Tensor:
    """∫₀¹ e^{s ad_ω} m ds = m + (1 − cos|ω|)/|ω|² ω × m + (|ω| − sin|ω|)/|ω|³ ω × (ω × m)."""
    size2 = omega.square().sum(dim=0)
    size = size2.sqrt()
    near = size2 < 1e-2 if omega.dtype == torch.float32 else size2 < 1e-4
    safe = torch.where(near, 1.0, size)
    first = torch.where(near, 0.5 - size2 / 24 + size2**2 / 720, (1 - safe.cos()) / safe**2)
    second = torch.where(near, 1 / 6 - size2 / 120 + size2**2 / 5040, (safe - safe.sin()) / safe**3)
    once = _cross(omega, m)
    return m + first * once + second * _cross(omega, once)
