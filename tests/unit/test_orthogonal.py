"""SO(n): exponentials and path products against PyTorch's matrix exponential and an explicit loop, in float64."""

import pytest
import torch
from torch import Tensor

from helpers import assert_same
from mapformers import lie
from mapformers.lie import orthogonal, path_products, quaternions

F64 = torch.float64
each_n = pytest.mark.parametrize("n", [2, 3, 4, 6, 8])


def angles(n: int, *shape: int, scale: float = 2.0, dtype: torch.dtype = F64) -> Tensor:
    return scale * torch.randn(orthogonal.n_generators(n), *shape, dtype=dtype)


def batched(matrices: Tensor) -> Tensor:
    """(n, n, N) -> (N, n, n)."""
    return matrices.permute(2, 0, 1)


def test_block_two_turns_as_every_other_rotation_here():
    theta = angles(2, 7)
    turned = orthogonal.exponential(orthogonal.skew(theta, 2))
    assert_same(batched(turned), lie.rotation_matrix(theta.T))


@each_n
@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 30.0])
def test_exponential_equals_matrix_exp(n, scale):
    a = orthogonal.skew(angles(n, 50, scale=scale), n)
    found = batched(orthogonal.exponential(a))
    torch.testing.assert_close(found, torch.linalg.matrix_exp(batched(a)), rtol=0, atol=1e-10)
    torch.testing.assert_close(found @ found.mT, torch.eye(n, dtype=F64).expand_as(found), rtol=0, atol=1e-10)


@each_n
def test_gradient_of_the_exponential_equals_that_of_matrix_exp(n):
    theta = angles(n, 20).requires_grad_()
    grad = torch.randn(n, n, 20, dtype=F64)
    a = orthogonal.skew(theta, n)
    (expected,) = torch.autograd.grad((torch.linalg.matrix_exp(batched(a)) * batched(grad)).sum(), theta)
    found = orthogonal.unskew(orthogonal.exponential_backward(a.detach(), grad))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_many_matrices_are_worked_on_in_parts(monkeypatch):
    a = orthogonal.skew(angles(3, 25), 3)
    whole = orthogonal.exponential(a), orthogonal.exponential_backward(a, a)
    monkeypatch.setattr(orthogonal, "CHUNK", 4)
    assert_same(orthogonal.exponential(a), whole[0])
    assert_same(orthogonal.exponential_backward(a, a), whole[1])


def walk(theta: Tensor, n: int) -> Tensor:
    """P_t = W_t P_{t−1} one step at a time, by matrix_exp: (K, L, M) -> (n, n, L, M)."""
    place, places = torch.eye(n, dtype=theta.dtype), []
    for t in range(theta.shape[1]):
        place = torch.linalg.matrix_exp(batched(orthogonal.skew(theta[:, t], n))) @ place
        places.append(place)
    return torch.stack(places).permute(2, 3, 0, 1)


@each_n
@pytest.mark.parametrize("length", [1, 2, 3, 16, 29])
def test_path_products_and_their_gradient_equal_the_explicit_loop(n, length):
    theta = angles(n, length, 3).requires_grad_()
    found, expected = path_products.rotation_products(theta, n), walk(theta, n)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    weight = torch.randn_like(found)
    gradients = [torch.autograd.grad(products, theta, weight)[0] for products in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n", [3, 4])
@pytest.mark.parametrize("scale", [0.0, 1e-6, 1e-2, 3.0])
def test_quaternions_rotate_as_matrices_do(n, scale):
    """In value and gradient, for angles of any size; near 0 the Jacobian is a series."""
    theta = angles(n, 20, 3, scale=scale)
    by_matrices, by_quaternions = (way.rotation_products(theta, n) for way in (orthogonal, quaternions))
    torch.testing.assert_close(by_quaternions, by_matrices, rtol=0, atol=1e-12)
    grad = torch.randn_like(by_matrices)
    gradients = [way.rotation_products_backward(theta, by_matrices, grad) for way in (orthogonal, quaternions)]
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-9, atol=1e-10)


def test_paths_are_worked_on_in_parts(monkeypatch):
    theta = angles(4, 6, 7).requires_grad_()
    whole = path_products.rotation_products(theta, 4)
    weight = torch.randn_like(whole)
    (expected,) = torch.autograd.grad(whole, theta, weight)
    monkeypatch.setattr(path_products, "NUMBERS", 200)
    parts = path_products.rotation_products(theta, 4)
    assert_same(parts, whole)
    assert_same(torch.autograd.grad(parts, theta, weight)[0], expected)


def test_the_operator_keeps_its_promises_to_the_compiler():
    torch.library.opcheck(path_products.rotation_products, (angles(3, 5, 2).requires_grad_(), 3))


@each_n
def test_a_long_path_stays_a_rotation_in_float32(n):
    """4096 random steps and their inverses, in reversed order, lead back."""
    out = angles(n, 4096, 4, scale=0.5, dtype=torch.float32)
    there_and_back = path_products.rotation_products(torch.cat((out, -out.flip(1)), dim=1), n)
    end = batched(there_and_back[:, :, -1])
    assert (end - torch.eye(n)).abs().max() < 2e-3
    assert (end @ end.mT - torch.eye(n)).abs().max() < 2e-3


def test_order_matters_and_in_the_plane_it_does_not():
    theta = angles(3, 2, 1)
    assert (walk(theta, 3)[:, :, -1] - walk(theta.flip(1), 3)[:, :, -1]).abs().max() > 0.1
    theta = angles(2, 2, 1)
    assert_same(walk(theta, 2)[:, :, -1], walk(theta.flip(1), 2)[:, :, -1])
