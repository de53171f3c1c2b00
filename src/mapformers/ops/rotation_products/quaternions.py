"""SO(3) and SO(4) by unit quaternions: paths without matrices or their exponentials.

A rotation of R⁴ is x ↦ p x q̄ with two unit quaternions, one of R³ (the imaginary ones) is x ↦ p x p̄; composing
rotations multiplies their quaternions, and exp is a cosine and a sine. Quaternions are kept entries first, (4, …), pure
ones as vectors (3, …), and S streams of them side by side: (4, S, …), S = 2 for SO(4) and 1 for SO(3).
"""

import torch
from torch import Tensor

from mapformers.lie.generators import wedge
from mapformers.ops.rotation_products import time_blocks

# ab = Σ_j SIGNS[i][j] a_j b_{i xor j} in component i (Hamilton), and the same with a or b conjugated.
SIGNS = ((1, -1, -1, -1), (1, 1, 1, -1), (1, -1, 1, 1), (1, 1, -1, 1))


def _terms(conjugate: str) -> list[list[tuple[int, int, int]]]:
    """(sign, index of a, index of b) of every term of every component, a positive one first."""
    terms = []
    for i, signs in enumerate(SIGNS):
        flips = [(conjugate == "a" and j > 0) + (conjugate == "b" and i ^ j > 0) for j in range(4)]
        row = [(sign * (-1) ** flip, j, i ^ j) for j, (sign, flip) in enumerate(zip(signs, flips))]
        terms.append(sorted(row, reverse=True))
    return terms


TERMS = {conjugate: _terms(conjugate) for conjugate in ("", "a", "b")}


def product(a: Tensor, b: Tensor, *, conjugate: str = "", out: Tensor | None = None) -> Tensor:
    """Hamilton's product a b of (4, …), with "a" or "b" conjugated on the way; ``out`` must be neither of them."""
    if out is None:
        out = a.new_empty(torch.broadcast_shapes(a.shape, b.shape))
    left, right = a.unbind(0), b.unbind(0)
    for component, ((_, j, k), *others) in zip(out.unbind(0), TERMS[conjugate]):
        torch.mul(left[j], right[k], out=component)
        for sign, j, k in others:
            component.addcmul_(left[j], right[k], value=sign)
    return out


def half_angles(theta: Tensor) -> Tensor:
    """The pure quaternions (3, S, …) whose exponentials rotate as exp(Σ_k θ_k S_k), θ (K, …); see generators.skew."""
    pure = theta.new_empty(3, theta.shape[0] // 3, *theta.shape[1:])
    if theta.shape[0] == 3:
        xy, xz, yz = theta
        torch.mul(yz, 0.5, out=pure[0, 0]), torch.mul(xz, -0.5, out=pure[1, 0]), torch.mul(xy, 0.5, out=pure[2, 0])
        return pure
    a, b, c, d, e, f = theta  # planes 01, 02, 03, 12, 13, 23: the matrix is u x − x v
    u, v = pure.unbind(1)
    torch.add(f, a, out=u[0]), torch.sub(b, e, out=u[1]), torch.add(d, c, out=u[2])
    torch.sub(f, a, out=v[0]), torch.add(b, e, out=v[1]).neg_(), torch.sub(d, c, out=v[2])
    return pure.mul_(0.5)


def half_angles_transposed(pure: Tensor) -> Tensor:
    """The transpose of `half_angles`: (3, S, …) -> (K, …)."""
    streams = pure.shape[1]
    theta = pure.new_empty(3 * streams, *pure.shape[2:])
    if streams == 1:
        x, y, z = pure[:, 0]
        torch.mul(z, 0.5, out=theta[0]), torch.mul(y, -0.5, out=theta[1]), torch.mul(x, 0.5, out=theta[2])
        return theta
    u, v = pure.unbind(1)
    torch.sub(u, v, out=theta[:3])
    torch.add(u[2], v[2], out=theta[3]), torch.add(u[1], v[1], out=theta[4]).neg_(), torch.add(u[0], v[0], out=theta[5])
    return theta.mul_(0.5)


def exponential(pure: Tensor) -> Tensor:
    """exp of pure quaternions, (3, …) -> (4, …): cos|u| + u sin|u|/|u|."""
    out = pure.new_empty(4, *pure.shape[1:])
    size = norm(pure)
    torch.mul(pure, sinc(size), out=out[1:])
    torch.cos(size, out=out[0])
    return out


def norm(pure: Tensor) -> Tensor:
    """|u| of (3, …); PyTorch's own norm is slow over a first dimension."""
    return (pure[0] * pure[0]).addcmul_(pure[1], pure[1]).addcmul_(pure[2], pure[2]).sqrt_()


def sinc(size: Tensor) -> Tensor:
    """sin|u|/|u|; below the smallest size that counts both are the size itself."""
    size = size.clamp(min=torch.finfo(size.dtype).tiny)
    return size.sin().div_(size)


def accumulate(theta: Tensor) -> Tensor:
    """The quaternions of P_t = W_t … W_1, W_t = exp(Σ_k θ_k S_k): (K, G, S, T, B) -> (4, 1 or 2, G, S, T, B)."""
    p = time_blocks.scan(exponential(half_angles(theta)), product)
    return p.mul_(p.square().sum(dim=0).rsqrt_())  # of unit length again, whatever rounding did along the way


def as_matrices(p: Tensor) -> Tensor:
    """The rotations of unit quaternions (4, S, …) as (n, n, …)."""
    n = 2 + p.shape[1]
    units = torch.eye(n, dtype=p.dtype, device=p.device).reshape(n, n, *(1,) * (p.dim() - 2))
    return rotate(p, units)


def rotate(p: Tensor, x: Tensor, back: bool = False) -> Tensor:
    """P x of vectors (n, V, …), or Pᵀ x."""
    if p.shape[1] == 1:
        return rotate_pure(p[:, 0].unsqueeze(1), x, back)
    left, right = p[:, 0].unsqueeze(1), p[:, 1].unsqueeze(1)
    if back:
        return product(product(left, x, conjugate="a"), right)
    return product(product(left, x), right, conjugate="b")


def rotate_pure(p: Tensor, pure: Tensor, back: bool = False) -> Tensor:
    """p v p̄ of pure v (3, …), or p̄ v p: v ± 2 w (r × v) + 2 r × (r × v), p = w + r."""
    axis = p[1:]
    once = cross(axis, pure).mul_(2)
    return cross(axis, once).addcmul_(p[0], once, value=-1 if back else 1).add_(pure)


def cross(a: Tensor, b: Tensor) -> Tensor:
    out = a.new_empty(torch.broadcast_shapes(a.shape, b.shape))
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        torch.mul(a[j], b[k], out=out[i]).addcmul_(a[k], b[j], value=-1)
    return out


def gathered_gradient(p: Tensor, dx: Tensor, x: Tensor) -> Tensor:
    """P_t (Σ_{s≥t} dx_s ∧ x_s) P_tᵀ in the K generators, dx (n, V, …), x like it or the same at all times.

    ⟨X, Σ_k θ_k S_k⟩ of a gradient X on θ is that of its pure quaternions, on which P acts stream by stream.
    """
    later = time_blocks.sum_of_later(wedge(dx, x))
    pure = half_angles(later)  # an isometry up to a factor: the inverse of its transpose is 4 times (SO(3)) or twice it
    return half_angles_transposed(rotate_pure(p, pure)).mul_(4 if p.shape[1] == 1 else 2)


def exponential_gradient(theta: Tensor, x: Tensor) -> Tensor:
    """dL/dθ from the gradient X on ε in e^ε exp(Σ_k θ_k S_k): φ(−ad) X, φ(z) = (e^z − 1)/z.

    For ω = 2u twice the half angles that is m − (1 − cos|ω|)/|ω|² ω × m + (|ω| − sin|ω|)/|ω|³ ω × (ω × m). The second
    quotient loses its digits near 0 just as ω × (ω × m) vanishes, so it needs no series.
    """
    u = half_angles(theta)
    m = half_angles(x)
    size = norm(u)
    ratio = sinc(size)
    once = cross(u, m)
    twice = cross(u, once)
    # by the half angle: (1 − cos|ω|)/|ω|² = sinc²|u|/2, and (|ω| − sin|ω|)/|ω|³ = (1 − sinc|u| cos|u|)/4|u|²
    second = size.cos().mul_(ratio).neg_().add_(1).div_(size.square_().clamp_(min=1e-30))
    m.addcmul_(once, ratio.square_(), value=-1).addcmul_(twice, second)
    return half_angles_transposed(m).mul_(4 if u.shape[1] == 1 else 2)
