"""Keys that fade: rows join without a seam however many are taken at once, and nothing overflows."""

import pytest
import torch

import mapformers.ops.fading_attention as fading
from helpers import Case, Layout, assert_same, draw_tokens
from mapformers.layers import mapwm
from mapformers.ops.visibility import Visibility


def inputs(length: int, dtype: torch.dtype, step: float) -> tuple[torch.Tensor, ...]:
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, length, 8, generator=g, dtype=torch.float64).to(dtype) for _ in range(3))
    faded = (step * torch.rand(2, 3, length, 4, generator=g, dtype=torch.float64)).cumsum(dim=2)
    return q, k, v, faded


def by_definition(q, k, v, faded, self_key=True, at=slice(None)):
    """What is read at the queries ``at``: all of them unless given."""
    apart = (faded[:, :, at].unsqueeze(3) - faded.unsqueeze(2)).clamp(min=0)  # (B, H, i, j, n_b)
    pairs = (q[:, :, at].double().unsqueeze(3) * k.double().unsqueeze(2)).unflatten(-1, (2, 4)).sum(dim=-2)
    logits = (pairs * torch.exp(-apart)).sum(dim=-1) / 8**0.5
    hidden = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).triu(1 if self_key else 0)
    hidden[0, 0] = False
    return logits.masked_fill(hidden[at], -torch.inf).softmax(dim=-1) @ v.double()


@pytest.mark.parametrize("self_key", [True, False])
@pytest.mark.parametrize("rows", [1, 5, 32, 37])
def test_rows_join_without_a_seam(rows, self_key):
    q, k, v, faded = inputs(37, torch.float64, 0.3)
    how = 8**-0.5, Visibility(self_key=self_key), rows
    out = fading.fading_attention(q, k, v, faded, *how)
    assert_same(out, by_definition(q, k, v, faded, self_key))
    weights = fading.fading_weights(q, k, faded, *how)
    assert_same(torch.cat([some @ v[:, :, : some.shape[-1]] for some in weights], dim=2), out)


@pytest.mark.parametrize("step", [0.01, 0.3, fading.MAX_FADING])
def test_the_longest_fading_does_not_overflow_float32(step):
    q, k, v, faded = inputs(2000, torch.float32, step)  # at most, up to 4000 in the exponent
    rows = fading.rows_at_once(faded, 0)
    assert {0.01: 2000, 0.3: 125, fading.MAX_FADING: fading.ROWS}[step] == rows
    out = fading.fading_attention(q, k, v, faded, 8**-0.5, Visibility(), rows)
    at = torch.tensor([0, 31, 32, 777, 1999])
    expected = by_definition(q, k, v, faded, at=at)
    torch.testing.assert_close(out[:, :, at].double(), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("start", [0, 100])
@pytest.mark.parametrize("step", [0.02, 0.1, 0.5, fading.MAX_FADING])
def test_rows_are_the_most_that_grow_little(step, start):
    faded = inputs(700, torch.float32, step)[-1]
    rows, length = fading.rows_at_once(faded, start), 700 - start

    def growth(rows: int) -> float:
        here = faded[:, :, start:]
        return max(
            (here[:, :, min(first + rows, length) - 1] - here[:, :, first]).max().item()
            for first in range(0, length, rows)
        )

    assert rows <= fading.ROWS or growth(rows) <= fading.MOST_GROWTH
    assert growth(rows) <= fading.ROWS * fading.MAX_FADING
    assert rows == length or growth(min(2 * rows, length)) > fading.MOST_GROWTH


@pytest.mark.parametrize("row", ["AAAAAAAAAAAA", "AAAABBBBBBCC", "..AAAABBBB.."])
def test_rows_chosen_by_their_fading_are_those_of_a_compiler(monkeypatch, row):
    """All rows at once by fused attention, some rows at a time, and as few as always fit: values and gradients."""
    decoder, layout = Case("mapwm", {"decay": True}).build(), Layout([row, row])
    flags = {} if row == "A" * len(row) else layout.flags
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            if name.endswith("rate_log"):
                parameter.fill_(-1.0)

    def read() -> tuple[torch.Tensor, ...]:
        out = decoder(layout.tokens, **flags)[layout.padding_mask]
        return out, *torch.autograd.grad(out.square().sum(), list(decoder.parameters()))

    at_once = read()
    for rows in (5, 1):
        monkeypatch.setattr(mapwm, "rows_at_once", lambda faded, start, rows=rows: rows)
        for one, other in zip(at_once, read(), strict=True):
            assert_same(one, other)


def test_float16_is_computed_in_float32():
    q, k, v, faded = inputs(600, torch.float16, 0.1)
    out = fading.fading_attention(q, k, v, faded, 8**-0.5, Visibility(), fading.rows_at_once(faded, 0))
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.double(), by_definition(q, k, v, faded), rtol=1e-4, atol=1e-4)


def test_without_rates_it_is_mapwm():
    plain, faded = Case("mapwm", {}).build(), Case("mapwm", {"decay": True}).build(seed=1)
    faded.load_state_dict(plain.state_dict(), strict=False)
    tokens = draw_tokens(2, 20)
    assert (faded(tokens) - plain(tokens)).abs().max() > 1e-3
    with torch.no_grad():
        for name, parameter in faded.named_parameters():
            if name.endswith("rate_log"):
                parameter.fill_(-torch.inf)
    assert_same(faded(tokens), plain(tokens))
