"""`rope` against Llama of `transformers`: the angles, the rotation, and the whole attention with the same weights."""

import pytest
import torch
from torch import Tensor

from helpers import Layout, assert_same
from mapformers import lie
from mapformers.layers.rope import RoPE
from mapformers.modules.context import Context
from mapformers.modules.layer import LAYERS
from mapformers.modules.mixer import LayerShape

llama = pytest.importorskip("transformers.models.llama.modeling_llama", reason="transformers is the oracle")

SHAPES = {
    "one-head": LayerShape(d_model=64, n_heads=1, head_dim=64),
    "four-heads": LayerShape(d_model=64, n_heads=4, head_dim=16),
    "wide-heads": LayerShape(d_model=24, n_heads=3, head_dim=20),
}
each_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
each_base = pytest.mark.parametrize("base", [10000.0, 500.0])


def llama_config(shape: LayerShape, base: float):
    config = llama.LlamaConfig(
        hidden_size=shape.d_model,
        num_attention_heads=shape.n_heads,
        num_key_value_heads=shape.n_heads,
        head_dim=shape.head_dim,
        rope_parameters={"rope_type": "default", "rope_theta": base},
        attention_bias=False,
    )
    config._attn_implementation = "sdpa"
    return config


def build_rope(shape: LayerShape, base: float) -> RoPE:
    mixer = LAYERS["rope"].build(shape, LAYERS["rope"].options(rope_base=base)).mixer
    assert isinstance(mixer, RoPE)
    return mixer


def twins(shape: LayerShape, base: float, dtype: torch.dtype):
    """Our mixer and Llama's attention with the same weights."""
    ours, theirs = build_rope(shape, base).to(dtype), llama.LlamaAttention(llama_config(shape, base), 0).to(dtype)
    with torch.no_grad():
        for part, weight in zip((theirs.q_proj, theirs.k_proj, theirs.v_proj), ours.heads.project.weight.chunk(3)):
            part.weight.copy_(weight)
        theirs.o_proj.weight.copy_(ours.heads.out.weight)
    return ours, theirs


def cos_sin(position: Tensor, head_dim: int, base: float) -> tuple[Tensor, Tensor]:
    """What Llama's rotary embedding gives, in float64, which it does not do itself."""
    inverse = torch.tensor([1.0 / base ** (i / head_dim) for i in range(0, head_dim, 2)], dtype=torch.float64)
    theta = torch.cat((position[..., None] * inverse,) * 2, dim=-1)
    return theta.cos(), theta.sin()


def values_and_gradients(out: Tensor, x: Tensor, *weights: Tensor) -> list[Tensor]:
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    return [out, *torch.autograd.grad(out, (x, *weights), weight)]


@each_base
@pytest.mark.parametrize("head_dim", [2, 16, 64])
def test_velocities_are_llamas(head_dim: int, base: float):
    oracle = llama.LlamaRotaryEmbedding(llama_config(LayerShape(head_dim, 1, head_dim), base))
    torch.testing.assert_close(lie.rope_ladder(head_dim // 2, base).float(), oracle.inv_freq, rtol=1e-6, atol=0)


@each_base
@each_shape
def test_angles_are_llamas(shape: LayerShape, base: float):
    length = 24
    x = torch.zeros(2, length, shape.d_model)
    theta, _ = build_rope(shape, base).angles(x, None, Context.of(torch.zeros(2, length, dtype=torch.long)))
    position = torch.arange(1, length + 1).expand(2, -1)  # a token's own step counts: the first stands at 1
    cos, sin = llama.LlamaRotaryEmbedding(llama_config(shape, base))(x, position)
    for ours, theirs in ((theta.cos(), cos), (theta.sin(), sin)):
        both_halves = torch.cat((ours, ours), dim=-1)[:, 0].expand_as(theirs)
        torch.testing.assert_close(both_halves, theirs, rtol=0, atol=1e-5)


def test_rotation_is_llamas():
    q, k = torch.randn(2, 2, 3, 7, 10, dtype=torch.float64)
    theta = 3 * torch.randn(2, 7, 5, dtype=torch.float64)
    cos, sin = (torch.cat((t, t), dim=-1) for t in (theta.cos(), theta.sin()))
    for ours, theirs in zip((q, k), llama.apply_rotary_pos_emb(q, k, cos, sin)):
        assert_same(lie.rotate(theta.unsqueeze(1), ours)[0], theirs)


@each_base
@each_shape
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_attention_is_llamas_in_value_and_gradient(shape: LayerShape, base: float, dtype: torch.dtype):
    ours, theirs = twins(shape, base, dtype)
    x = torch.randn(2, 24, shape.d_model, dtype=dtype, requires_grad=True)
    position = torch.arange(24).expand(2, -1)
    if dtype == torch.float64:
        rotary = cos_sin(position, shape.head_dim, base)
    else:
        rotary = llama.LlamaRotaryEmbedding(llama_config(shape, base))(x, position)
    mixed, _ = ours.mix(x, None, Context.of(position))
    expected, _ = theirs(x, position_embeddings=rotary, attention_mask=None)
    *got, qkv = values_and_gradients(mixed, x, ours.heads.out.weight, ours.heads.project.weight)
    q, k, v, o = (part.weight for part in (theirs.q_proj, theirs.k_proj, theirs.v_proj, theirs.o_proj))
    *wanted, dq, dk, dv = values_and_gradients(expected, x, o, q, k, v)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    for mine, oracle in zip((*got, qkv), (*wanted, torch.cat((dq, dk, dv))), strict=True):
        torch.testing.assert_close(mine, oracle, rtol=tolerance, atol=tolerance)


@each_shape
def test_packed_documents_are_llamas_with_its_positions_and_mask(shape: LayerShape):
    """Llama is told of documents by positions that begin anew and a mask; we by ``reset`` and ``padding_mask``."""
    ours, theirs = twins(shape, 10000.0, torch.float64)
    layout = Layout(("AAAABBBBBCCC", "AAA..A..BBBB", "...AAAAA^BBB"))
    position = torch.zeros_like(layout.tokens)
    mask = torch.eye(12, dtype=torch.bool).repeat(3, 1, 1, 1)
    for row, at in layout.documents():
        position[row, at] = torch.arange(len(at))
        mask[row, 0, at[:, None], at] = torch.ones(len(at), len(at), dtype=torch.bool).tril()
    x = torch.randn(3, 12, shape.d_model, dtype=torch.float64)
    expected, _ = theirs(x, position_embeddings=cos_sin(position, shape.head_dim, 10000.0), attention_mask=mask)
    mixed, _ = ours.mix(x, None, layout.context())
    assert_same(mixed[layout.padding_mask], expected[layout.padding_mask])
