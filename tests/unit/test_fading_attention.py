"""Keys that fade: tiles of rows join without a seam, and nothing overflows however far the path has faded."""

import pytest
import torch

import mapformers.ops.fading_attention as fading
from helpers import Case, assert_same, draw_tokens
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
@pytest.mark.parametrize("rows", [1, 5, 32])
def test_tiles_join_without_a_seam(monkeypatch, rows, self_key):
    monkeypatch.setattr(fading, "ROWS", rows)
    q, k, v, faded = inputs(37, torch.float64, 0.3)
    out, _ = fading.fading_attention(q, k, v, faded, 8**-0.5, Visibility(self_key=self_key))
    assert_same(out, by_definition(q, k, v, faded, self_key))


def test_the_longest_fading_does_not_overflow_float32():
    q, k, v, faded = inputs(2000, torch.float32, fading.MAX_FADING)  # up to 4000 in the exponent
    out, _ = fading.fading_attention(q, k, v, faded, 8**-0.5, Visibility())
    at = torch.tensor([0, 31, 32, 777, 1999])
    expected = by_definition(q, k, v, faded, at=at)
    torch.testing.assert_close(out[:, :, at].double(), expected, rtol=2e-5, atol=2e-5)


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
