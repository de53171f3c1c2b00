"""The blocked product of two attentions against the matrices written out: values, gradients, masks, memory."""

import math

import pytest
import torch
from torch import Tensor

from mapformers.modules.context import Context, Past
from mapformers.ops import conjunctive_attention as blocked
from mapformers.ops import tiles as tiling
from mapformers.ops.visibility import Visibility

BATCH, HEADS, LENGTH, SIZE = 3, 2, 23, 4
TILES = {"one": (64, 2**20), "many": (5, 1), "some-heads": (4, 4 * LENGTH * 4), "a-row": (1, 2**20)}


def written_out(q, k, q_place, k_place, v, scale, allowed: Tensor) -> Tensor:
    logits = (q @ k.mT) * (q_place @ k_place.mT) * scale
    return logits.masked_fill(~allowed, -math.inf).softmax(dim=-1) @ v


def plain() -> Context:
    return Context.of(torch.zeros(BATCH, LENGTH, dtype=torch.long))


def both_ways() -> Context:
    return Context.of(torch.zeros(BATCH, LENGTH, dtype=torch.long), causal=False)


def both_ways_packed() -> Context:
    reset, real = torch.rand(2, BATCH, LENGTH) < torch.tensor([0.15, 0.85])[:, None, None]
    return Context.of(torch.zeros(BATCH, LENGTH, dtype=torch.long), reset=reset, padding_mask=real, causal=False)


def packed() -> Context:
    reset = torch.rand(BATCH, LENGTH) < 0.15
    real = torch.rand(BATCH, LENGTH) < 0.85
    return Context.of(torch.zeros(BATCH, LENGTH, dtype=torch.long), reset=reset, padding_mask=real)


def streamed() -> Context:
    return Context.of(torch.zeros(BATCH, LENGTH, dtype=torch.long), past=Past(9, None, None))


def streamed_and_packed() -> Context:
    document, real = torch.randint(0, 2, (BATCH, 9)).sort(dim=1).values, torch.rand(BATCH, 9) < 0.8
    reset = torch.rand(BATCH, LENGTH) < 0.15
    return Context.of(torch.zeros(BATCH, LENGTH, dtype=torch.long), reset=reset, past=Past(9, document, real))


def draw(context: Context, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    lengths = [LENGTH, LENGTH + context.past.length] * 2 + [LENGTH + context.past.length]
    return [torch.randn(BATCH, HEADS, length, SIZE, dtype=dtype, requires_grad=True) for length in lengths]


@pytest.mark.parametrize("self_key", [True, False], ids=["self-key", "strictly-earlier"])
@pytest.mark.parametrize(
    "make", [plain, packed, streamed, streamed_and_packed, both_ways, both_ways_packed], ids=lambda make: make.__name__
)
@pytest.mark.parametrize("tile", TILES.values(), ids=TILES)
def test_equals_the_matrices_written_out_in_value_and_gradient(monkeypatch, tile, make, self_key):
    monkeypatch.setattr(tiling, "CPU_TILE", tile)
    context = make()
    inputs = draw(context)
    weight = torch.randn(BATCH, HEADS, LENGTH, SIZE, dtype=torch.float64)
    results = []
    outs = (
        written_out(*inputs, 0.3, context.attention_mask(self_key)),
        blocked.conjunctive_reference(*inputs, 0.3, context.visibility(self_key)),
        blocked.conjunctive_attention(*inputs, 0.3, context.visibility(self_key)),
    )
    for out in outs:
        results.append((out, *torch.autograd.grad((out * weight).sum(), inputs)))
    for expected, *found in zip(*results):
        for other in found:
            torch.testing.assert_close(other, expected, atol=1e-12, rtol=1e-10)


def test_bfloat16_is_as_close_to_float64_as_bfloat16_written_out():
    """The product is formed in float32, so blocking loses nothing."""
    context = plain()
    exact = draw(context)
    rough = [t.detach().bfloat16() for t in exact]
    allowed = context.attention_mask()
    truth = written_out(*exact, 0.3, allowed)
    ours = (blocked.conjunctive_attention(*rough, 0.3, context.visibility()) - truth).abs().mean()
    theirs = (written_out(*rough, 0.3, allowed) - truth).abs().mean()
    assert ours < 1.1 * theirs


def test_the_operator_keeps_its_promises_to_the_compiler(monkeypatch):
    """PyTorch's own check of a custom operator: schema, fake tensors, autograd registration, tracing."""
    monkeypatch.setattr(tiling, "CPU_TILE", TILES["many"])
    context = packed()
    documents, real = (flag.repeat_interleave(HEADS, dim=0) for flag in (context.documents(), context.real()))
    flat = [t.detach().flatten(0, 1).requires_grad_() for t in draw(context)]
    torch.library.opcheck(blocked._attend, (*flat, None, None, 0.3, 0, True, True))
    torch.library.opcheck(blocked._attend, (*flat, documents, real, 0.3, 0, False, True))


def test_the_masked_half_is_skipped(monkeypatch):
    """The tiles of one head hold about half of the L×L logits."""
    monkeypatch.setattr(tiling, "CPU_TILE", (4, 2**20))
    like = torch.empty(1, 64, SIZE)
    logits = sum(
        (t.rows.stop - t.rows.start) * (t.keys.stop - t.keys.start) for t in tiling.tiles(like, 64, Visibility())
    )
    assert 64 * 65 / 2 <= logits <= 0.55 * 64 * 64
