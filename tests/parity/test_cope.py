"""`cope` against CoPE of `x-transformers`, and its blocks against what they compute, written out."""

import math
import warnings

import pytest
import torch
from torch import Tensor

from helpers import MIXED, PACKED, PADDED, PLAIN, Case, Layout, assert_same, draw_tokens
from mapformers.errors import UserError
from mapformers.layers.cope import CoPE, CoPEOptions
from mapformers.modules.context import Context, Past
from mapformers.modules.mixer import LayerShape
from mapformers.ops import contextual_attention, tiles

SHAPES = {
    "one-head": LayerShape(d_model=32, n_heads=1, head_dim=32),
    "four-heads": LayerShape(d_model=32, n_heads=4, head_dim=8),
    "wide-heads": LayerShape(d_model=24, n_heads=3, head_dim=20),
}
OPTIONS = {
    "default": CoPEOptions(),
    "clamped": CoPEOptions(npos=5),
    "two-positions": CoPEOptions(npos=2),
    "scaled-content": CoPEOptions(npos=9, cope_scaling="content"),
    "strictly-earlier": CoPEOptions(npos=9, self_key=False),
    "sharp": CoPEOptions(npos=9, cope_scaling="content", self_key=False, attn_temperature=0.5),
}
each_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
each_options = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
LENGTH = 70  # three blocks of rows


@pytest.fixture(scope="module")
def oracle():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit.script is deprecated, and used when it is imported
        return pytest.importorskip("x_transformers.x_transformers", reason="x-transformers is the oracle").CoPE


def build_cope(shape: LayerShape, options: CoPEOptions, dtype: torch.dtype = torch.float64) -> CoPE:
    """Queries and keys large enough for gates from 0.1 to 0.9, and a table that is not zero."""
    cope = CoPE.of_shape(shape, options).to(dtype)
    with torch.no_grad():
        cope.heads.project.weight[: -shape.n_heads * shape.head_dim] *= 10
        cope.positions.normal_()
    return cope


def by_oracle(oracle, ours: CoPE, x: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """What we compute with the oracle's positions, and its own table: it takes masked, scaled logits."""
    theirs = oracle(ours.heads.head_dim, ours.heads.n_heads, ours.options.npos).to(x.dtype)
    theirs.load_state_dict({"pos_emb": ours.positions.detach()})
    q, k, v = ours.heads.split(x)
    content = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~allowed, -torch.finfo(x.dtype).max)
    position = theirs(q, content)
    if ours.options.cope_scaling == "all":
        position = position / math.sqrt(q.shape[-1])
    weights = ((content + position) / ours.options.attn_temperature).softmax(dim=-1)
    return ours.heads.merge(weights @ v), theirs.pos_emb


def values_and_gradients(out: Tensor, *inputs: Tensor) -> list[Tensor]:
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    return [out, *torch.autograd.grad(out, inputs, weight)]


@each_options
@each_shape
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_attention_is_the_oracles_in_value_and_gradient(oracle, shape: LayerShape, options: CoPEOptions, dtype):
    ours = build_cope(shape, options, dtype)
    x = torch.randn(2, LENGTH, shape.d_model, dtype=dtype, requires_grad=True)
    allowed = torch.ones(LENGTH, LENGTH).tril(0 if options.self_key else -1).bool()
    allowed[0, 0] = True
    mixed, _ = ours.mix(x, None, Context.of(torch.zeros(2, LENGTH, dtype=torch.long)))
    expected, table = by_oracle(oracle, ours, x, allowed)
    weights = (ours.heads.project.weight, ours.heads.out.weight)
    got = values_and_gradients(mixed, x, *weights, ours.positions)
    wanted = values_and_gradients(expected, x, *weights, table)
    tolerance = 1e-11 if dtype == torch.float64 else 1e-5
    for mine, oracles in zip(got, wanted, strict=True):
        size = oracles.abs().max().item()
        torch.testing.assert_close(mine, oracles, rtol=tolerance, atol=tolerance * max(1.0, size))


@each_options
@pytest.mark.parametrize("rows", [PLAIN, PACKED, PADDED, MIXED], ids=["plain", "packed", "padded", "mixed"])
def test_documents_and_padding_are_masks_to_the_oracle(oracle, rows: tuple[str, ...], options: CoPEOptions):
    """A gate that may not be looked at counts for nothing: the oracle sums what its mask leaves."""
    ours, layout = build_cope(SHAPES["four-heads"], options), Layout(rows)
    allowed = torch.eye(12, dtype=torch.bool).repeat(len(rows), 1, 1, 1)
    for row, at in layout.documents():
        seen = torch.ones(len(at), len(at)).tril(0 if options.self_key else -1).bool()
        seen[0, 0] = True
        allowed[row, 0, at[:, None], at] = seen
    x = torch.randn(len(rows), 12, 32, dtype=torch.float64)
    expected, _ = by_oracle(oracle, ours, x, allowed)
    mixed, _ = ours.mix(x, None, layout.context())
    assert_same(mixed[layout.padding_mask], expected[layout.padding_mask])


@pytest.mark.parametrize("self_key", [True, False], ids=["self-key", "strictly-earlier"])
def test_without_positions_it_is_nope(self_key: bool):
    nope = Case("nope", {"self_key": self_key}).build()
    cope = Case("cope", {"self_key": self_key, "npos": 4}).build(seed=1)
    missing, unexpected = cope.load_state_dict(nope.state_dict(), strict=False)
    assert not unexpected and all(name.endswith("mixer.positions") for name in missing)
    tokens = draw_tokens(2, 12)
    assert (cope(tokens) - nope(tokens)).abs().max() > 1e-3
    for layer in cope.layers:
        layer.mixer.positions.data.zero_()
    assert_same(cope(tokens), nope(tokens))


def test_a_count_in_float32_stays_exact_over_a_long_row():
    """Positions near the query are sums of few gates, whatever lies far behind."""
    shape = SHAPES["one-head"]
    exact = build_cope(shape, CoPEOptions(npos=64))
    rough = CoPE.of_shape(shape, CoPEOptions(npos=64))
    rough.load_state_dict(exact.state_dict())
    x, context = torch.randn(1, 2048, 32), Context.of(torch.zeros(1, 2048, dtype=torch.long))
    with torch.no_grad():
        torch.testing.assert_close(
            rough.mix(x, None, context)[0].double(), exact.mix(x.double(), None, context)[0], **CLOSE
        )


CLOSE = {"rtol": 0.0, "atol": 2e-5}
TILES = {"one": (64, 2**20), "many": (5, 1), "some-heads": (4, 4 * 23 * 4), "a-row": (1, 2**20)}


def contexts() -> dict[str, Context]:
    tokens = torch.zeros(3, 23, dtype=torch.long)
    flags = torch.rand(2, 3, 23, generator=torch.Generator().manual_seed(0))
    reset, real = flags[0] < 0.15, flags[1] < 0.85
    document, past_real = torch.tensor([[0] * 4 + [1] * 5] * 3), torch.tensor([[True] * 7 + [False, True]] * 3)
    return {
        "plain": Context.of(tokens),
        "packed": Context.of(tokens, reset=reset, padding_mask=real),
        "streamed": Context.of(tokens, past=Past(9, None, None)),
        "streamed-and-packed": Context.of(tokens, reset=reset, past=Past(9, document, past_real)),
    }


@pytest.mark.parametrize("self_key", [True, False], ids=["self-key", "strictly-earlier"])
@pytest.mark.parametrize("name", contexts())
@pytest.mark.parametrize("tile", TILES.values(), ids=TILES)
def test_blocks_equal_the_matrices_written_out(monkeypatch, tile: tuple[int, int], name: str, self_key: bool):
    monkeypatch.setattr(tiles, "CPU_TILE", tile)
    context = contexts()[name]
    cope = build_cope(LayerShape(8, 2, 4), CoPEOptions(npos=6, self_key=self_key))
    n_keys = 23 + context.past.length
    q, k, v = (torch.randn(3, 2, n, 4, dtype=torch.float64, requires_grad=True) for n in (23, n_keys, n_keys))
    logits = sum(cope.written_out(q, k, context)).masked_fill(~context.attention_mask(self_key), -math.inf)
    expected = values_and_gradients(logits.softmax(dim=-1) @ v, q, k, v, cope.positions)
    z = cope.whole_positions(q)
    out = contextual_attention.contextual_attention(
        q, k, v, z, cope.scale, torch.ones_like(q[..., :1]), context.visibility(self_key)
    )
    for found, wanted in zip(values_and_gradients(out, q, k, v, cope.positions), expected):
        torch.testing.assert_close(found, wanted, atol=1e-12, rtol=1e-10)


def test_the_operator_keeps_its_promises_to_the_compiler(monkeypatch):
    """PyTorch's own check of a custom operator: schema, fake tensors, autograd registration, tracing."""
    monkeypatch.setattr(tiles, "CPU_TILE", TILES["many"])
    context = contexts()["packed"]
    documents, real = (flag.repeat_interleave(2, dim=0) for flag in (context.documents(), context.real()))
    sizes = (4, 4, 4, 7, 1)  # q, k, v, z and the sharpness
    inputs = [torch.randn(6, 23, size, dtype=torch.float64, requires_grad=True) for size in sizes]
    torch.library.opcheck(contextual_attention._attend, (*inputs, None, None, 0.5, 0, True))
    torch.library.opcheck(contextual_attention._attend, (*inputs, documents, real, 0.5, 0, False))


@pytest.mark.parametrize("wrong", [{"npos": 1}, {"npos": 0}, {"cope_scaling": "none"}, {"attn_temperature": 0.0}])
def test_wrong_options_are_refused(wrong: dict[str, object]):
    with pytest.raises(UserError, match=next(iter(wrong))):
        CoPEOptions(**wrong)
