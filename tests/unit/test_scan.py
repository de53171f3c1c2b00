"""Selective scans and linear attention against their plain loops, whatever length, tiling, documents and rates."""

import pytest
import torch
from torch import Tensor

from helpers import assert_same
from mapformers import lie
from mapformers.ops.linear_attention import linear_attention, rotation_loop
from mapformers.ops.selective_scan import selective_loop, selective_scan

each_length = pytest.mark.parametrize("length", [1, 2, 7, 16, 33])
each_kind = pytest.mark.parametrize("kind", ["decay", "turn", "both"])
with_and_without_resets = pytest.mark.parametrize("resets", [False, True], ids=["one-document", "documents"])
BATCH, CHANNELS, N = 3, 5, 4


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype).requires_grad_()


def draw_resets(length: int, wanted: bool) -> Tensor | None:
    return torch.rand(BATCH, length) < 0.2 if wanted else None


def selective_inputs(kind: str, length: int) -> list[Tensor | None]:
    """Δ, rate, ω, v, b, c and the start."""
    n_rates = N if kind == "decay" else N // 2
    rate = None if kind == "turn" else (0.1 + torch.rand(n_rates, CHANNELS, dtype=torch.float64)).requires_grad_()
    omega = None if kind == "decay" else draw(n_rates, CHANNELS)
    delta, v = draw(BATCH, length, CHANNELS), draw(BATCH, length, CHANNELS)
    return [delta, rate, omega, v, draw(BATCH, length, N), draw(BATCH, length, N), draw(BATCH, N, CHANNELS)]


def attention_inputs(length: int, decays: bool) -> list[Tensor | None]:
    """q, k, v, the start and the logarithm of the decay."""
    q, k = (draw(BATCH, 2, length, N) for _ in range(2))
    decay = (-torch.rand(BATCH, 2, length, dtype=torch.float64)).requires_grad_() if decays else None
    return [q, k, draw(BATCH, 2, length, 3), draw(BATCH, 2, N, 3), decay]


def assert_same_with_gradients(ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...], inputs: list[Tensor | None]):
    weights = [torch.randn_like(t) for t in ours]
    present = [t for t in inputs if t is not None]
    for mine, plain in zip(ours, theirs, strict=True):
        assert_same(mine, plain)
    gradients = (torch.autograd.grad(out, present, weights) for out in (ours, theirs))
    for mine, plain in zip(*gradients, strict=True):
        assert_same(mine, plain)


@pytest.mark.parametrize("tile", [1, 8 * N * CHANNELS, 2**19], ids=["token-by-token", "small-tiles", "one-tile"])
@with_and_without_resets
@each_length
@each_kind
def test_selective_scan_is_its_loop(kind: str, length: int, resets: bool, tile: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mapformers.ops.chunked_recurrence.CPU_TILE", tile)
    inputs, reset = selective_inputs(kind, length), draw_resets(length, resets)
    assert_same_with_gradients(selective_scan(*inputs, reset), selective_loop(*inputs, reset), inputs)


@each_kind
def test_selective_scan_in_two_halves_is_the_whole(kind: str):
    delta, rate, omega, v, b, c, start = selective_inputs(kind, 21)
    first, middle = selective_scan(delta[:, :8], rate, omega, v[:, :8], b[:, :8], c[:, :8], start)
    second, end = selective_scan(delta[:, 8:], rate, omega, v[:, 8:], b[:, 8:], c[:, 8:], middle)
    whole, last = selective_scan(delta, rate, omega, v, b, c, start)
    assert_same(torch.cat((first, second), dim=1), whole)
    assert_same(end, last)


def test_a_selective_scan_starts_from_nothing_unless_told():
    delta, rate, omega, v, b, c, start = selective_inputs("decay", 9)
    for ours, theirs in zip(
        selective_scan(delta, rate, omega, v, b, c),
        selective_scan(delta, rate, omega, v, b, c, torch.zeros_like(start)),
    ):
        assert_same(ours, theirs)


def test_decay_and_rotation_are_the_exponential_of_a_matrix():
    """exp(Δ A) with A = [[−rate, −ω], [ω, −rate]], as A.3 writes it."""
    rate, omega, delta = 0.3, 1.7, torch.randn(6, dtype=torch.float64).abs()
    generator = torch.tensor([[-rate, -omega], [omega, -rate]], dtype=torch.float64)
    start = h = torch.tensor([1.0, 2.0], dtype=torch.float64)
    expected = []
    for step in delta:
        h = torch.linalg.matrix_exp(step * generator) @ h
        expected.append(h[1])
    rate, omega, read = (torch.tensor(x, dtype=torch.float64) for x in ([[rate]], [[omega]], [0.0, 1.0]))
    nothing = torch.zeros(1, 6, 2, dtype=torch.float64)
    y, last = selective_scan(
        delta.view(1, 6, 1), rate, omega, nothing[..., :1], nothing, read.expand(1, 6, 2), start.view(1, 2, 1)
    )
    assert_same(y[0, :, 0], torch.stack(expected))
    assert_same(last[0, :, 0], h)


@pytest.mark.parametrize("step", [0.0, 1e-6, 1.0, 30.0, 1e4])
def test_no_decay_is_too_fast_or_too_slow_for_float32(step: float):
    """A product of 256 decays underflows; nothing is ever divided by it."""
    torch.manual_seed(0)
    delta = torch.full((2, 256, 3), step) * torch.rand(2, 256, 3)
    rate = torch.arange(1, 17.0).repeat(3, 1).T.contiguous().requires_grad_()
    v, (b, c) = torch.randn(2, 256, 3), torch.randn(2, 2, 256, 16)
    inputs = [delta.requires_grad_(), rate, v.requires_grad_(), b.requires_grad_(), c.requires_grad_()]
    y, _ = selective_scan(delta, rate, None, v, b, c)
    wide = [t.detach().double().requires_grad_() for t in inputs]
    expected, _ = selective_loop(wide[0], wide[1], None, *wide[2:])
    torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-4)
    gradients, exact = (torch.autograd.grad(out.sum(), of) for out, of in ((y, inputs), (expected, wide)))
    for ours, theirs in zip(gradients, exact):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-3, atol=1e-3 * (1 + theirs.abs().max().item()))


def test_a_rotation_of_a_long_walk_keeps_its_length():
    torch.manual_seed(0)
    delta, omega = torch.randn(1, 5000, 2), torch.tensor([[6.0], [0.1]]).expand(2, 2).contiguous()
    nothing = torch.zeros(1, 5000, 4)
    _, last = selective_scan(delta, None, omega, nothing[..., :2], nothing, nothing, torch.ones(1, 4, 2))
    pairs = last.view(1, 2, 2, 2).norm(dim=1)
    torch.testing.assert_close(pairs, torch.full_like(pairs, 2**0.5), rtol=1e-4, atol=0)


@pytest.mark.parametrize("chunk", [1, 4, 64])
@pytest.mark.parametrize("decays", [False, True], ids=["kept", "decaying"])
@with_and_without_resets
@each_length
def test_linear_attention_is_its_loop(
    length: int, resets: bool, decays: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
):
    """Without rotation, θ = 0."""
    monkeypatch.setattr("mapformers.ops.linear_attention.CHUNK", chunk)
    inputs, reset = attention_inputs(length, decays), draw_resets(length, resets)
    still = torch.zeros(BATCH, 2, length, N // 2, dtype=torch.float64)
    assert_same_with_gradients(linear_attention(*inputs, reset), rotation_loop(still, *inputs, reset), inputs)


@pytest.mark.parametrize("decays", [False, True], ids=["kept", "decaying"])
@with_and_without_resets
def test_a_state_that_turns_is_one_in_the_frame_of_the_origin(resets: bool, decays: bool):
    """R(θ_t)ᵀ c_t and R(θ_s)ᵀ b_s undo the path, so that `linear_attention` needs no rotation of its state (A.5)."""
    inputs, reset = attention_inputs(21, decays), draw_resets(21, resets)
    step = draw(BATCH, 2, 21, N // 2)
    theta = lie.integrate(step.transpose(1, 2), reset=reset).transpose(1, 2)
    q, k = lie.rotate(-theta, *inputs[:2])
    y, home = linear_attention(q, k, *inputs[2:], reset)
    here = lie.rotation_matrix(theta[:, :, -1]) @ home
    assert_same_with_gradients((y, here), rotation_loop(step, *inputs, reset), [step, *inputs])


def test_no_decay_is_too_fast_for_linear_attention():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 1, 200, 4)
    decay = (-1e3 * torch.rand(1, 1, 200)).requires_grad_()
    y, h = linear_attention(q, k, v, torch.zeros(1, 1, 4, 4), decay)
    (y.sum() + h.sum()).backward()
    assert y.isfinite().all() and decay.grad.isfinite().all()
