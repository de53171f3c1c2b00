"""SO(n): exponentials and carried vectors against PyTorch's matrix exponential and an explicit loop, in float64."""

import pytest
import torch
from torch import Tensor

from helpers import assert_same
from mapformers import lie
from mapformers.lie.generators import coefficients, n_generators, skew, wedge
from mapformers.ops import rotation_products
from mapformers.ops.rotation_products import matrices, quaternions, time_blocks
from mapformers.ops.rotation_products.reference import apply_in_order
from mapformers.ops.rotation_products.single import single_rotation

F64 = torch.float64
each_n = pytest.mark.parametrize("n", [2, 3, 4, 6, 8])


def angles(n: int, *shape: int, scale: float = 2.0, dtype: torch.dtype = F64) -> Tensor:
    return scale * torch.randn(n_generators(n), *shape, dtype=dtype)


def batched(matrices: Tensor) -> Tensor:
    """(n, n, …) -> (…, n, n)."""
    return matrices.movedim((0, 1), (-2, -1))


def matrix_exp(theta: Tensor, n: int) -> Tensor:
    """exp(Σ_k θ_k S_k), (K, …) -> (…, n, n), by PyTorch."""
    return torch.linalg.matrix_exp(batched(skew(theta, n)))


def test_generators_and_their_wedge():
    theta = angles(4, 5)
    matrix = skew(theta, 4)
    assert_same(matrix, -matrix.transpose(0, 1))
    assert_same(coefficients(matrix), theta)
    dx, x = torch.randn(2, 4, 3, 5, dtype=F64)
    assert_same((wedge(dx, x) * theta).sum(), torch.einsum("ivN,ijN,jvN->", dx, matrix, x))


def test_block_two_turns_as_every_other_rotation_here():
    theta = angles(2, 7)
    assert_same(batched(matrices.exponential(theta, 2)), lie.rotation_matrix(theta.T))


@each_n
@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 30.0])
def test_exponential_equals_matrix_exp(n, scale):
    theta = angles(n, 50, scale=scale)
    found = batched(matrices.exponential(theta, n))
    torch.testing.assert_close(found, matrix_exp(theta, n), rtol=0, atol=1e-10)
    torch.testing.assert_close(found @ found.mT, torch.eye(n, dtype=F64).expand_as(found), rtol=0, atol=1e-10)


@each_n
@pytest.mark.parametrize("scale", [1e-3, 1.0, 8.0])
def test_exponential_is_as_good_in_float32(n, scale):
    theta = angles(n, 500, scale=scale)
    found = batched(matrices.exponential(theta.float(), n))
    assert (found - matrix_exp(theta.float().double(), n)).abs().max() < 1e-6 * max(1, scale)


@each_n
@pytest.mark.parametrize("scale", [0.0, 1e-3, 2.0, 8.0])
def test_gradient_of_the_exponential_equals_that_of_matrix_exp(n, scale):
    """X on ε in e^ε W is the gradient G = X W on W, with X skew."""
    theta = angles(n, 20, scale=scale).requires_grad_()
    x = angles(n, 20)
    w = matrix_exp(theta, n)
    (expected,) = torch.autograd.grad(w, theta, batched(skew(x, n)) / 2 @ w.detach())
    ways = [matrices, quaternions] if n in (3, 4) else [matrices]
    for way in ways:
        found = way.exponential_gradient(theta.detach(), x)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_many_matrices_are_worked_on_in_parts(monkeypatch):
    theta, x = angles(6, 25), angles(6, 25)
    whole = matrices.exponential(theta, 6), matrices.exponential_gradient(theta, x)
    monkeypatch.setattr(matrices, "CHUNK", 4)
    assert_same(matrices.exponential(theta, 6), whole[0])
    assert_same(matrices.exponential_gradient(theta, x), whole[1])


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 16, 29])
def test_time_is_cut_and_joined_and_summed_from_behind(length):
    x = torch.randn(3, length, 2, dtype=F64)
    cut = time_blocks.cut(x)
    assert_same(time_blocks.joined(cut, length), x)
    assert_same(time_blocks.at(cut.movedim(3, 0), length - 1), x[:, -1].T)
    later = time_blocks.sum_of_later(cut.movedim(3, 0).contiguous())
    assert_same(time_blocks.joined(later.movedim(0, 3), length), x.flip(1).cumsum(dim=1).flip(1))


class Path:
    """A path of L steps of G rotations in B sequences, and the same by an explicit loop over matrix exponentials."""

    def __init__(self, n: int, length: int, scale: float = 2.0, groups: int = 2, batch: int = 3):
        self.n, self.length = n, length
        self.steps = angles(n, batch, length, groups, scale=scale).requires_grad_()  # (K, B, L, G)
        self.theta = time_blocks.cut(self.steps.permute(1, 2, 0, 3)).permute(3, 4, 0, 1, 2).contiguous()
        self.p = rotation_products.accumulate(self.theta.detach(), n)

    def walked(self) -> Tensor:
        """P_t = W_t P_{t−1} one step at a time: (B, L, G, n, n)."""
        place, places = torch.eye(self.n, dtype=F64), []
        for t in range(self.length):
            place = matrix_exp(self.steps[:, :, t], self.n) @ place
            places.append(place)
        return torch.stack(places, dim=1)

    def in_order(self, y: Tensor) -> Tensor:
        """(n, m, G, S, T, B) -> (B, L, G, n, m)."""
        return time_blocks.joined(y.permute(3, 4, 5, 2, 0, 1), self.length)

    def assert_same(self, found: Tensor, expected: Tensor, *inputs: Tensor) -> None:
        """In value and gradient."""
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
        weight, inputs = torch.randn_like(found), (self.steps, *inputs)
        gradients = [torch.autograd.grad(y, inputs, weight, retain_graph=True) for y in (found, expected)]
        torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)


lengths = pytest.mark.parametrize("length", [1, 2, 3, 16, 29])


@each_n
@lengths
def test_products_along_a_path_equal_the_explicit_loop(n, length):
    path = Path(n, length)
    path.assert_same(path.in_order(rotation_products.all_rotations(path.theta, path.p, n)), path.walked())


@each_n
@pytest.mark.parametrize("back", [False, True], ids=["forth", "back"])
def test_the_plain_reference_is_the_same_loop(n, back):
    path = Path(n, 7)
    x = torch.randn(n, 2, 2, *path.theta.shape[2:], dtype=F64, requires_grad=True)
    found = path.in_order(rotation_products.apply(path.theta, path.p, x, n, back))
    path.assert_same(found, path.in_order(apply_in_order(path.theta, x, n, back)), x)


@each_n
@lengths
def test_where_a_path_ends_equals_the_explicit_loop(n, length):
    path = Path(n, length)
    end = rotation_products.rotation_at(path.theta, path.p, n, length - 1)
    path.assert_same(end.permute(3, 2, 0, 1), path.walked()[:, -1])


@each_n
@lengths
@pytest.mark.parametrize("back", [False, True], ids=["forth", "back"])
@pytest.mark.parametrize("fixed", [False, True], ids=["tokens", "origins"])
def test_carried_vectors_equal_the_explicit_loop(n, length, back, fixed):
    path = Path(n, length)
    times = path.theta.shape[2:]
    x = torch.randn(n, 2, 2, *((1, 1, 1) if fixed else times), dtype=F64, requires_grad=True)
    found = path.in_order(rotation_products.apply(path.theta, path.p, x, n, back))
    rotations = path.walked().mT if back else path.walked()
    path.assert_same(found, rotations @ path.in_order(x.expand(-1, -1, -1, *times)), x)


@pytest.mark.parametrize("n", [3, 4])
@pytest.mark.parametrize("scale", [0.0, 1e-6, 1e-2, 3.0])
def test_quaternions_rotate_as_matrices_do(n, scale):
    """In value and gradient, for angles of any size."""
    theta, x = angles(n, 2, 5, 4, 3, scale=scale), torch.randn(n, 2, 2, 5, 4, 3, dtype=F64)
    by_matrices, by_quaternions = (way.accumulate(theta) for way in (matrices, quaternions))
    torch.testing.assert_close(quaternions.as_matrices(by_quaternions), by_matrices, rtol=0, atol=1e-12)
    found, expected = (
        way.exponential_gradient(theta, way.gathered_gradient(p, x.flip(0), x))
        for way, p in ((quaternions, by_quaternions), (matrices, by_matrices))
    )
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("n", [4, 6])
def test_paths_are_worked_on_in_parts(n, monkeypatch):
    path = Path(n, 7, groups=3)
    x = torch.randn(n, 2, 3, 1, 1, 1, dtype=F64)
    whole = rotation_products.apply(path.theta, path.p, x, n, False)
    weight = torch.randn_like(whole)
    (expected,) = torch.autograd.grad(whole, path.steps, weight, retain_graph=True)
    monkeypatch.setattr(rotation_products.operators, "CPU_NUMBERS", 1)
    assert_same(rotation_products.accumulate(path.theta.detach(), n), path.p)
    parts = rotation_products.apply(path.theta, path.p, x, n, False)
    assert_same(parts, whole)
    assert_same(torch.autograd.grad(parts, path.steps, weight)[0], expected)


@pytest.mark.parametrize("n", [4, 6])
def test_the_operators_keep_their_promises_to_the_compiler(n):
    path = Path(n, 5)
    theta = path.theta.detach().requires_grad_()
    x = torch.randn(n, 2, 2, 1, 1, 1, dtype=F64, requires_grad=True)
    torch.library.opcheck(rotation_products.accumulate, (theta.detach(), n))
    torch.library.opcheck(rotation_products.apply, (theta, path.p, x, n, False))
    torch.library.opcheck(rotation_products.rotation_at, (theta, path.p, n, 4))


@each_n
def test_a_long_path_stays_a_rotation_in_float32(n):
    """4096 random steps and their inverses, in reversed order, lead back."""
    out = angles(n, 4, 4096, 1, scale=0.5, dtype=torch.float32)
    there_and_back = time_blocks.cut(torch.cat((out, -out.flip(2)), dim=2).permute(1, 2, 0, 3))
    theta = there_and_back.permute(3, 4, 0, 1, 2).contiguous()
    end = rotation_products.rotation_at(theta, rotation_products.accumulate(theta, n), n, 8191).permute(3, 2, 0, 1)
    assert (end - torch.eye(n)).abs().max() < 2e-3
    assert (end @ end.mT - torch.eye(n)).abs().max() < 2e-3


def test_order_matters_and_in_the_plane_it_does_not():
    for n, matters in ((3, True), (2, False)):
        theta = angles(n, 2)
        there, back = (matrix_exp(theta[:, t], n) for t in (0, 1))
        assert ((there @ back - back @ there).abs().max() > 0.1) == matters


@each_n
def test_the_rotation_of_a_single_step_is_the_exponential(n: int):
    theta = angles(n, 5, 2)
    theta[:, 0, 0] = 0.0
    assert_same(single_rotation(theta.movedim(0, -1), n), matrix_exp(theta, n))


def test_a_movement_that_is_not_finite_needs_no_terms():
    """Backward comes before the loss is checked, so a diverged run must get through it."""
    assert matrices.series_terms(float("inf"), torch.float32) == matrices.series_terms(float("nan"), torch.float32) == 0
    assert matrices.series_terms(1.0, torch.float32) > 5
