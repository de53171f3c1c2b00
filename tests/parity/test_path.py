"""`path` against PaTH's own reference in `fla-core`, and against every product of Householder matrices written out."""

import importlib.metadata
import importlib.util
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from helpers import Case, Layout, assert_same, draw_tokens
from mapformers.errors import UserError
from mapformers.layers.path import PaTH, PaTHOptions
from mapformers.modules.context import Context
from mapformers.modules.mixer import LayerShape
from mapformers.ops import householder_attention as householder
from mapformers.ops.householder_attention import householder_attention

SHAPES = {
    "one-head": LayerShape(d_model=64, n_heads=1, head_dim=64),
    "three-heads": LayerShape(d_model=24, n_heads=3, head_dim=10),
}
each_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
each_conv = pytest.mark.parametrize("conv", [True, False], ids=["conv", "no-conv"])
# Lengths of less than a chunk, of whole ones, and of some that are not full.
each_length = pytest.mark.parametrize("length", [1, 20, 64, 75])


@pytest.fixture(scope="module")
def naive_path_attn() -> Callable[..., Tensor]:
    """The authors' plain PyTorch, loaded by its path: importing `fla.ops` would ask for triton."""
    pytest.importorskip("einops", reason="the oracle needs it")
    try:
        files = importlib.metadata.files("fla-core") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("fla-core is the oracle")
    (source,) = (file for file in files if file.as_posix() == "fla/ops/path_attn/naive.py")
    spec = importlib.util.spec_from_file_location("naive_path_attn", source.locate())
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.naive_path_attn


def build(shape: LayerShape, dtype: torch.dtype = torch.float64, **options) -> PaTH:
    """The mixer with every parameter drawn at random, large enough for β to range over (0, 2)."""
    mixer = PaTH.of_shape(shape, PaTHOptions(**options)).to(dtype)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.normal_(std=0.4)
    return mixer


def plain(length: int, batch: int = 2) -> Context:
    return Context.of(torch.zeros(batch, length, dtype=torch.long))


def assert_near(got: tuple[Tensor, ...], wanted: tuple[Tensor, ...], tolerance: float) -> None:
    for ours, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def with_gradients(out: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    return out, *torch.autograd.grad(out, inputs, weight)


@each_length
@each_shape
def test_attention_is_the_authors_in_value_and_gradient(naive_path_attn, shape: LayerShape, length: int):
    size = (2, shape.n_heads, length, shape.head_dim)
    q, k, v, w = (torch.randn(size) for _ in range(4))
    beta = 2 * torch.rand(size[:-1])
    inputs = [t.requires_grad_() for t in (q, k, v, nn.functional.normalize(w, dim=-1), beta)]
    scale = shape.head_dim**-0.5
    ours, _, _ = householder_attention(*inputs, scale, plain(length).visibility())
    gate = torch.zeros(2, length, shape.n_heads)
    theirs = naive_path_attn(*(t.transpose(1, 2) for t in inputs), gate, scale, chunk_size=16).transpose(1, 2)
    assert_near(with_gradients(ours, inputs), with_gradients(theirs, inputs), 1e-5)


@each_conv
@each_shape
def test_the_mixer_is_the_authors_layer_with_the_same_weights(naive_path_attn, shape: LayerShape, conv: bool):
    """Their layer itself needs triton; its parts are PyTorch's modules around the attention above."""
    ours, length = build(shape, torch.float32, conv=conv), 40
    inner = shape.n_heads * shape.head_dim
    rank = ours.options.path_rank
    w_proj = nn.Sequential(nn.Linear(shape.d_model, rank, bias=False), nn.Linear(rank, inner, bias=False))
    bt_proj = nn.Linear(shape.d_model, shape.n_heads)
    w_conv1d = nn.Conv1d(inner, inner, 3, groups=inner, padding=2, bias=False)
    learned = ours.reflections
    pairs = [(w_proj[0].weight, learned.w_in), (w_proj[1].weight, learned.w_out)]
    pairs += [(bt_proj.weight, learned.beta), (bt_proj.bias, learned.beta_bias)]
    if learned.kernel is not None:
        pairs.append((w_conv1d.weight, learned.kernel))
    with torch.no_grad():
        for theirs, mine in pairs:
            theirs.copy_(mine.view_as(theirs))
    x = torch.randn(2, length, shape.d_model, requires_grad=True)
    w = w_proj(x)
    if conv:
        w = nn.functional.silu(w_conv1d(w.mT)[:, :, :length]).mT
    split = [part.unflatten(-1, (shape.n_heads, shape.head_dim)) for part in (*ours.heads.project(x).chunk(3, -1), w)]
    split[-1] = nn.functional.normalize(split[-1], dim=-1)
    gate = torch.zeros(2, length, shape.n_heads)
    attended = naive_path_attn(*split, bt_proj(x).sigmoid() * 2, gate, shape.head_dim**-0.5, chunk_size=16)
    expected = ours.heads.out(attended.flatten(-2))
    mixed, _ = ours.mix(x, None, plain(length))
    shared = [x, ours.heads.project.weight, ours.heads.out.weight]
    got = with_gradients(mixed, [*shared, *(mine for _, mine in pairs)])
    wanted = with_gradients(expected, [*shared, *(theirs for theirs, _ in pairs)])
    scale = max(1.0, *(t.abs().max().item() for t in wanted))  # gradients of these large weights reach hundreds
    assert_near(tuple(t / scale for t in got), tuple(t.view_as(g) / scale for t, g in zip(wanted, got)), 1e-5)


def written_out(mixer: PaTH, x: Tensor) -> Tensor:
    """One document (L, d_model) by the equations alone: every convolution, matrix, product and softmax in a loop."""
    heads, learned, (n_heads, size) = mixer.heads, mixer.reflections, mixer.reflections.size
    length = len(x)
    q, k, v = heads.project(x).view(length, 3, n_heads, size).unbind(1)
    read = x @ learned.w_in.T @ learned.w_out.T
    beta = 2 / (1 + torch.exp(-(x @ learned.beta.T + learned.beta_bias)))
    out = torch.zeros(length, n_heads, size, dtype=x.dtype)
    for h in range(n_heads):
        matrices = []
        for t in range(length):
            w = read[t]
            if learned.kernel is not None:
                w = sum(learned.kernel[:, 2 - back] * read[t - back] for back in range(min(t, 2) + 1))
                w = w / (1 + torch.exp(-w))
            w = w.view(n_heads, size)[h]
            w = w / w.norm()
            matrices.append(torch.eye(size, dtype=x.dtype) - beta[t, h] * torch.outer(w, w))
        for i in range(length):
            keys = range(i + 1) if mixer.options.self_key or i == 0 else range(i)
            logits = []
            for j in keys:
                product = torch.eye(size, dtype=x.dtype)
                for t in range(j + 1, i + 1):
                    product = product @ matrices[t]
                logits.append(k[j, h] @ product @ q[i, h] / math.sqrt(size) / mixer.options.attn_temperature)
            out[i, h] = torch.stack(logits).softmax(dim=0) @ v[list(keys), h]
    return heads.out(out.flatten(1))


@pytest.mark.parametrize("chunk", [1, 4, 32])
@pytest.mark.parametrize(
    "options", [{}, {"self_key": False}, {"conv": False, "path_rank": 2}, {"attn_temperature": 0.5}], ids=str
)
@torch.no_grad()
def test_the_mixer_is_its_equations_written_out(monkeypatch: pytest.MonkeyPatch, options: dict, chunk: int):
    monkeypatch.setattr(householder, "CHUNK", chunk)
    mixer = build(LayerShape(d_model=12, n_heads=2, head_dim=5), **options)
    layout = Layout(("AAAAAAAAAAAAAAAAAAAAAA", "AAAABBBBBBBCCDEEEEEEEE", "..AA.A.AAA.A^.BB.BBB.B"))
    x = torch.randn(*layout.tokens.shape, 12, dtype=torch.float64)
    mixed, _ = mixer.mix(x, None, layout.context())
    for row, at in layout.documents():
        torch.testing.assert_close(mixed[row, at], written_out(mixer, x[row, at]), rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_the_order_of_the_product():
    """s_02 = k_0ᵀ H_1 H_2 q_2; the other order is another number."""
    q, k, w = torch.randn(3, 1, 1, 3, 6, dtype=torch.float64)
    w, beta = nn.functional.normalize(w, dim=-1), torch.tensor([[[0.9, 1.3, 1.8]]], dtype=torch.float64)
    _, _, (weights,) = householder_attention(q, k, torch.ones_like(k), w, beta, 1.0, plain(3, batch=1).visibility())
    _, h1, h2 = torch.eye(6) - beta[0, 0, :, None, None] * torch.einsum("li,lj->lij", w[0, 0], w[0, 0])
    (q2, (k0, k1, k2)) = q[0, 0, 2], k[0, 0]
    logits = torch.stack((k0 @ h1 @ h2 @ q2, k1 @ h2 @ q2, k2 @ q2))
    assert_same(weights[0, 0, 2], logits.softmax(dim=0))
    assert abs(k0 @ h1 @ h2 @ q2 - k0 @ h2 @ h1 @ q2) > 1e-3


@each_conv
@torch.no_grad()
def test_the_state_holds_keys_carried_on_by_every_later_token(conv: bool):
    mixer, length = build(LayerShape(d_model=12, n_heads=2, head_dim=5), conv=conv), 40
    x, context = torch.randn(1, length, 12, dtype=torch.float64), plain(length, batch=1)
    _, key, _ = mixer.heads.split(x)
    w, beta, _ = mixer.reflections(x, None, context)
    cached = torch.zeros(1, 2, 0, 5, dtype=torch.float64)
    for t in range(length):
        along = (cached * w[:, :, t, None]).sum(dim=-1, keepdim=True)
        cached = cached - beta[:, :, t, None, None] * along * w[:, :, t, None]
        cached = torch.cat((cached, key[:, :, t, None]), dim=2)
    _, state = mixer.mix(x, None, context)
    assert_same(state.keys, cached)


@pytest.mark.parametrize("sizes", [(1,) * 80, (33, 1, 40, 6), (7, 73)], ids=["single", "uneven", "early"])
@each_conv
@torch.no_grad()
def test_streaming_over_many_chunks_with_documents_and_padding(conv: bool, sizes: tuple[int, ...]):
    model = Case("path", {"conv": conv}).build()
    layout = Layout(("A" * 80, "A" * 35 + "." * 10 + "A" * 10 + "B" * 25, ".." + "A" * 30 + "^" + "B" * 46 + "."))
    state, pieces = None, []
    for piece in layout.chunks(sizes, only_where_needed=True):
        logits, state = model(**piece, state=state, return_state=True)
        pieces.append(logits)
    streamed, real = torch.cat(pieces, dim=1), layout.padding_mask
    assert_same(streamed[real], model(layout.tokens, **layout.flags)[real])
    assert_same(streamed[real], layout.alone(model)[real])


@torch.no_grad()
def test_tokens_that_apply_nothing_leave_attention_without_position():
    """β = 0 makes every H_t = I: then `path` is `nope`."""
    path, nope = Case("path").build(), Case("nope").build()
    tokens = draw_tokens(2, 50)
    for layer in path.layers:
        layer.mixer.reflections.beta.zero_()
        layer.mixer.reflections.beta_bias.fill_(-1e4)
    nope.load_state_dict({name: t for name, t in path.state_dict().items() if "reflections" not in name})
    assert_same(path(tokens), nope(tokens))


@torch.no_grad()
def test_float32_suffices_for_equal_tokens_that_reflect():
    """β = 2 with one w for all tokens: the triangular system is at its stiffest, yet every product is I or H."""
    length, dim = 256, 16
    q, k, v = torch.randn(3, 1, 1, length, dim, dtype=torch.float64)
    w = nn.functional.normalize(torch.randn(dim, dtype=torch.float64), dim=0).expand(1, 1, length, -1)
    beta = torch.full((1, 1, length), 2.0, dtype=torch.float64)
    inputs = (q, k, v, w, beta)
    exact, _, _ = householder_attention(*inputs, 0.25, plain(length, batch=1).visibility())
    single, _, _ = householder_attention(*(t.float() for t in inputs), 0.25, plain(length, batch=1).visibility())
    torch.testing.assert_close(single.double(), exact, rtol=1e-4, atol=1e-4)


@each_shape
@torch.no_grad()
def test_the_start_is_that_of_the_authors(shape: LayerShape):
    torch.manual_seed(0)
    mixer = PaTH.of_shape(shape, PaTHOptions())
    learned = mixer.reflections
    for weight in (learned.w_in, learned.w_out, learned.kernel, learned.beta):
        assert 0.012 < weight.std() < 0.028
    assert not learned.beta_bias.any()
    w, beta, _ = learned(torch.randn(2, 9, shape.d_model), None, plain(9))
    torch.testing.assert_close(w.norm(dim=-1), torch.ones(2, shape.n_heads, 9), rtol=1e-4, atol=1e-4)
    assert ((beta - 1).abs() < 0.5).all()


def test_a_bottleneck_of_nothing_is_refused():
    with pytest.raises(UserError, match="path_rank must be at least 1, not 0"):
        PaTHOptions(path_rank=0)
