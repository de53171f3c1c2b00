"""The mathematics without learning: rotations, ladders of velocities, path integration, angles."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from helpers import assert_bitwise, assert_same
from mapformers import lie

F64 = torch.float64


def turned(x: Tensor, theta: Tensor) -> Tensor:
    return lie.rotate(theta, x)[0]


def test_rotate_multiplies_each_pair_as_a_complex_number():
    x, theta = torch.randn(3, 10, dtype=F64), torch.randn(3, 5, dtype=F64)
    z = torch.complex(x[:, :5], x[:, 5:]) * torch.polar(torch.ones_like(theta), theta)
    assert_same(turned(x, theta), torch.cat((z.real, z.imag), dim=-1))


def test_rotate_equals_the_rotation_matrix():
    x, theta = torch.randn(2, 3, 7, 6, dtype=F64), 4 * torch.randn(2, 3, 7, 3, dtype=F64)
    matrix = lie.rotation_matrix(theta)
    assert_same(turned(x, theta), (matrix @ x.unsqueeze(-1)).squeeze(-1))
    assert_same(matrix @ matrix.mT, torch.eye(6, dtype=F64).expand_as(matrix))
    assert_same(torch.linalg.det(matrix), torch.ones(2, 3, 7, dtype=F64))


@pytest.mark.parametrize(
    "shapes",
    [((2, 3, 4), (2, 3, 8), (2, 3, 8)), ((1, 3, 4), (2, 3, 8), (1, 3, 8)), ((2, 3, 4), (1, 8), (3, 8))],
    ids=["same", "one-angle-for-all", "one-vector-for-all"],
)
def test_gradients_of_vectors_and_of_the_angle_they_share(shapes):
    """Against finite differences, and against autograd through the rotation matrix."""
    theta, *vectors = (torch.randn(shape, dtype=F64, requires_grad=True) for shape in shapes)
    assert torch.autograd.gradcheck(lie.rotate, (theta, *vectors))

    def by_matrix(theta: Tensor, *vectors: Tensor) -> list[Tensor]:
        return [(lie.rotation_matrix(theta) @ x.unsqueeze(-1)).squeeze(-1) for x in vectors]

    inputs = (theta, *vectors)
    losses = [sum((y**3).sum() for y in rotate(*inputs)) for rotate in (lie.rotate, by_matrix)]
    for ours, theirs in zip(*(torch.autograd.grad(loss, inputs) for loss in losses)):
        assert_same(ours, theirs)


def test_rotate_keeps_the_dtype_of_each_vector_and_turns_it_in_that_of_the_angle():
    x, theta = torch.randn(64, 8), 3 * torch.randn(64, 4)
    half = lie.rotate(theta, x.bfloat16())[0]
    assert half.dtype == torch.bfloat16
    assert_bitwise(half, turned(x.bfloat16().float(), theta).bfloat16())


def test_rotations_compose_invert_and_keep_lengths():
    x, (a, b) = torch.randn(5, 8, dtype=F64), torch.randn(2, 5, 4, dtype=F64)
    assert_same(turned(turned(x, a), b), turned(x, a + b))
    assert_same(turned(turned(x, a), -a), x)
    assert_same(turned(x, a).norm(dim=-1), x.norm(dim=-1))
    assert_bitwise(turned(x, torch.zeros_like(a)), x)


def test_only_the_difference_of_two_rotations_counts_between_two_vectors():
    (q, k), (i, j) = torch.randn(2, 5, 8, dtype=F64), torch.randn(2, 5, 4, dtype=F64)
    assert_same((turned(q, i) * turned(k, j)).sum(-1), (q * turned(k, j - i)).sum(-1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, F64], ids=str)
def test_rotate_keeps_the_dtype_of_what_it_rotates(dtype: torch.dtype):
    x = torch.randn(2, 4).to(dtype)
    assert turned(x, torch.randn(2, 2)).dtype == dtype


@pytest.mark.parametrize("omega_max, base", [(2 * math.pi, 64.0), (2 * math.pi, 512.0), (1.0, 1024.0)])
@pytest.mark.parametrize("n_blocks", [2, 3, 32])
def test_ladder_falls_evenly_between_its_ends(n_blocks: int, omega_max: float, base: float):
    omega = lie.ladder(n_blocks, omega_max, base)
    assert omega.shape == (n_blocks,) and omega.dtype == F64
    assert omega[0].item() == pytest.approx(omega_max, rel=1e-14)
    assert omega[-1].item() == pytest.approx(2 * math.pi / base, rel=1e-14)
    ratios = omega[1:] / omega[:-1]
    assert (ratios < 1).all()
    assert_same(ratios, ratios[:1].expand_as(ratios))


def test_ladder_of_one_block_is_omega_max():
    assert_bitwise(lie.ladder(1, 3.0, 64.0), torch.tensor([3.0], dtype=F64))


def test_shares_give_the_remainder_to_the_first():
    assert lie.blocks_per_dimension(32, 2) == [16, 16]
    assert lie.blocks_per_dimension(10, 3) == [4, 3, 3]
    assert lie.blocks_per_dimension(11, 3) == [4, 4, 3]
    assert lie.blocks_per_dimension(3, 3) == [1, 1, 1]


@given(rank=st.integers(1, 6), spare=st.integers(0, 9))
def test_each_inner_dimension_starts_with_a_ladder_of_its_own(rank: int, spare: int):
    n_blocks = rank + spare
    sizes = lie.blocks_per_dimension(n_blocks, rank)
    assert sum(sizes) == n_blocks and sizes == sorted(sizes, reverse=True) and sizes[0] - sizes[-1] <= 1
    omega, w_out = lie.ladders(n_blocks, rank, 5.0, 50.0)
    assert omega.shape == (n_blocks,) and w_out.shape == (rank, n_blocks)
    assert set(w_out.unique().tolist()) <= {0.0, 1.0}
    assert_bitwise(w_out.sum(dim=0), torch.ones(n_blocks, dtype=F64))
    for size, drives, block in zip(sizes, w_out, omega.split(sizes)):
        assert_bitwise(omega[drives.bool()], block)
        assert_bitwise(block, lie.ladder(size, 5.0, 50.0))


@pytest.mark.parametrize("head_dim", [2, 8, 64])
def test_rope_ladder_is_ropes(head_dim: int):
    expected = [10000.0 ** (-2 * i / head_dim) for i in range(head_dim // 2)]
    assert_same(lie.rope_ladder(head_dim // 2), torch.tensor(expected, dtype=F64))
    assert_same(lie.rope_ladder(2, 500.0), torch.tensor([1.0, 500.0**-0.5], dtype=F64))


def walk_step_by_step(delta: Tensor, initial: Tensor | None, mask: Tensor | None, reset: Tensor | None) -> Tensor:
    places = torch.empty(delta.shape, dtype=F64)
    for b in range(delta.shape[0]):
        here = torch.zeros(delta.shape[2:], dtype=F64) if initial is None else initial[b].to(F64)
        for t in range(delta.shape[1]):
            if reset is not None and reset[b, t]:
                here = torch.zeros_like(here)
            if mask is None or mask[b, t]:
                here = here + delta[b, t]
            places[b, t] = here
    return places


@given(
    seed=st.integers(0, 10**6),
    batch=st.integers(1, 3),
    length=st.integers(1, 8),
    inner=st.sampled_from([(), (2,), (2, 3)]),
    given_flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    chance=st.sampled_from([0.0, 0.3, 1.0]),
    dtype=st.sampled_from([torch.float32, F64]),
)
def test_integrate_is_a_walk_step_by_step(seed, batch, length, inner, given_flags, chance, dtype):
    g = torch.Generator().manual_seed(seed)
    delta = torch.randn(batch, length, *inner, generator=g, dtype=dtype)
    possible = {
        "initial": torch.randn(batch, *inner, generator=g, dtype=F64),
        "mask": torch.rand(batch, length, generator=g) >= chance,
        "reset": torch.rand(batch, length, generator=g) < chance,
    }
    flags = {name: flag if use else None for (name, flag), use in zip(possible.items(), given_flags)}
    coordinate = lie.integrate(delta, **flags)
    assert coordinate.dtype == F64
    torch.testing.assert_close(coordinate, walk_step_by_step(delta, **flags), rtol=0, atol=1e-13)


def test_integrate_does_not_move_by_what_padding_holds():
    delta = torch.tensor([[1.0, math.nan, 2.0, math.inf]])
    real = torch.tensor([[True, False, True, False]])
    assert lie.integrate(delta, mask=real).tolist() == [[1.0, 1.0, 3.0, 3.0]]


def test_integrate_sends_gradients_back_along_the_walk():
    delta = torch.randn(2, 6, 2, dtype=F64, requires_grad=True)
    initial = torch.randn(2, 2, dtype=F64, requires_grad=True)
    mask, reset = torch.rand(2, 6) < 0.7, torch.rand(2, 6) < 0.3

    def run(delta: Tensor, initial: Tensor) -> Tensor:
        return lie.integrate(delta, initial=initial, mask=mask, reset=reset)

    assert reset.any() and not mask.all()
    assert torch.autograd.gradcheck(run, (delta, initial), atol=1e-9)


def test_angles_are_omega_times_w_out_times_the_coordinate():
    coordinate = 100 * torch.randn(2, 3, 2, 2, dtype=F64)
    w_out, omega = torch.randn(2, 2, 5, dtype=F64), torch.randn(2, 5, dtype=F64)
    theta = lie.angles(coordinate, w_out, omega, dtype=F64)
    assert theta.shape == (2, 2, 3, 5)
    for b, h, t, n in torch.cartesian_prod(*map(torch.arange, theta.shape)).tolist():
        expected = omega[h, n] * sum(w_out[h, r, n] * coordinate[b, t, h, r] for r in range(2))
        difference = (theta[b, h, t, n] - expected).item()
        assert math.remainder(difference, 2 * math.pi) == pytest.approx(0, abs=1e-11)
    assert theta.abs().max() <= math.pi


def test_angles_are_rounded_only_after_they_are_reduced():
    """2²⁴ + 0.75 turns of 2π: in float32 the fraction of the turn would be gone."""
    coordinate = torch.tensor([[[[2.0**24 + 0.75]]]], dtype=F64)
    theta = lie.angles(coordinate, torch.ones(1, 1, 1), torch.full((1, 1), 1.5, dtype=F64))
    assert theta.dtype == torch.float32
    expected = math.remainder(1.5 * (2**24 + 0.75), 2 * math.pi)
    assert theta.item() == pytest.approx(expected, abs=1e-6)


@given(st.floats(-1e3, 1e3))
def test_wrap_keeps_the_point_on_the_circle_and_has_derivative_one(value: float):
    theta = torch.tensor(value, dtype=F64, requires_grad=True)
    wrapped = lie.wrap(theta)
    assert abs(wrapped.item()) <= math.pi + 1e-12
    assert wrapped.cos().item() == pytest.approx(math.cos(value), abs=1e-12)
    assert wrapped.sin().item() == pytest.approx(math.sin(value), abs=1e-12)
    assert torch.autograd.grad(wrapped, theta)[0].item() == 1.0
