"""Many dimensions on a page: which two of them are drawn, and what share of the whole they show."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Plane:
    """Points (N, 2), what the axes are, and the share of the squared lengths that the two dimensions have."""

    points: Tensor
    axes: tuple[str, str]
    share: float
    basis: Tensor  # (r, 2)


def plane_of(vectors: Tensor) -> Plane:
    """Vectors (N, r) as points of a plane whose origin is theirs.

    Two dimensions are drawn as they are, one along the horizontal axis, and more than two along the two directions in
    which the vectors are longest (principal components, without subtracting the mean, so that 0 stays 0).
    """
    vectors = vectors.double()
    r = vectors.shape[1]
    if r <= 2:
        basis = torch.eye(r, 2, dtype=torch.float64)
        names = ("first inner dimension", "second inner dimension" if r == 2 else "(there is one inner dimension)")
        return Plane(vectors @ basis, names, 1.0, basis)
    basis = _upright(torch.linalg.svd(vectors, full_matrices=False).Vh[:2].T)
    total = float(vectors.square().sum()) or 1.0
    points = vectors @ basis
    return Plane(points, _named(points, total, f"direction of {r}"), float(points.square().sum()) / total, basis)


def principal_plane(vectors: Tensor) -> Plane:
    """Vectors (N, D) along their first two principal components, the mean subtracted: ordinary PCA."""
    centred = vectors.double() - vectors.double().mean(dim=0)
    basis = _upright(torch.linalg.svd(centred, full_matrices=False).Vh[:2].T)
    total = float(centred.square().sum()) or 1.0
    points = centred @ basis
    return Plane(points, _named(points, total, "component"), float(points.square().sum()) / total, basis)


def _upright(basis: Tensor) -> Tensor:
    """Singular vectors have no sign: the largest entry of each is made positive, so that a figure stays as it is."""
    largest = basis.gather(0, basis.abs().argmax(dim=0, keepdim=True))
    return basis * torch.where(largest < 0, -1.0, 1.0)


def _named(points: Tensor, total: float, what: str) -> tuple[str, str]:
    shares = [float(column.square().sum()) / total for column in points.T]
    first, second = (f"{order} {what} ({share:.0%})" for order, share in zip(("first", "second"), shares))
    return first, second


def cosines(vectors: Tensor) -> Tensor:
    """The cosine of the angle between every two of N vectors, (N, N); 0 with a vector of length 0."""
    unit = torch.nn.functional.normalize(vectors.double(), dim=1)
    return unit @ unit.T
