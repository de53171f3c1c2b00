"""`tape` against its equations, written token by token with C and S at full size; what it is at the start; symmetry.

There is no oracle to install. The loop below shares no code with the layer: plain vectors, one query at a time.
"""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from helpers import MIXED, PLAIN, Case, Layout, assert_same, draw_tokens
from mapformers import build_model
from mapformers.errors import UserError
from mapformers.layers.rope import RoPE, RoPEOptions
from mapformers.layers.tape import TAPE, TAPEOptions
from mapformers.model import Decoder
from mapformers.modules.context import Context
from mapformers.modules.layer import Block
from mapformers.modules.mixer import LayerShape

BOTH_KEYS = pytest.mark.parametrize("self_key", [True, False], ids=["self-key", "strictly-earlier"])
BOTH_CONTEXTS = pytest.mark.parametrize("rows", [PLAIN, MIXED], ids=["plain", "mixed"])


def rms_norm(x: Tensor, norm: nn.Module) -> Tensor:
    return x / (x.square().mean() + 1e-6).sqrt() * norm.gain


def rot_half(x: Tensor) -> Tensor:
    half = len(x) // 2
    return torch.cat((-x[half:], x[:half]))


def beginning(length: int, options: TAPEOptions, n_heads: int, head_dim: int) -> list[tuple[Tensor, Tensor]]:
    """(C, S) of every token, each (H, D) with two equal halves; the first token stands at 1."""
    omega = [options.rope_base ** (-2 * i / head_dim) for i in range(head_dim // 2)] * 2
    theta = torch.arange(1, length + 1, dtype=torch.float64)[:, None] * torch.tensor(omega, dtype=torch.float64)
    return [(t.cos().expand(n_heads, -1), t.sin().expand(n_heads, -1)) for t in theta]


def one_layer(layer: TAPE, x: list[Tensor], e: list[tuple[Tensor, Tensor]]) -> tuple[list, list]:
    """Steps 1 to 4 of REFERENCES.md for one sequence: x of (d_model,) and (C, S) of (H, D) for each token."""
    heads, options, update = layer.mixer.heads, layer.mixer.options, layer.update
    n_heads, size = heads.n_heads, heads.head_dim
    q, k, v = [], [], []
    for token, (cos, sin) in zip(x, e):
        projected = (heads.project.weight @ rms_norm(token, layer.norm_mixer)).reshape(3, n_heads, size)
        for turned, of in ((q, projected[0]), (k, projected[1])):
            turned.append([of[h] * cos[h] + rot_half(of[h]) * sin[h] for h in range(n_heads)])
        v.append(projected[2])
    new_x, new_e = [], []
    for i, (token, (cos, sin)) in enumerate(zip(x, e)):
        seen = range(i + 1) if options.self_key else range(max(i, 1))
        attended, average_cos, average_sin = [], [], []
        for h in range(n_heads):
            logits = [q[i][h] @ k[j][h] / math.sqrt(size) / options.attn_temperature for j in seen]
            weights = torch.stack(logits).softmax(dim=0)
            attended.append(sum(w * v[j][h] for w, j in zip(weights, seen)))
            average_cos.append(sum(w * e[j][0][h] for w, j in zip(weights, seen)))
            average_sin.append(sum(w * e[j][1][h] for w, j in zip(weights, seen)))
        token = token + heads.out.weight @ torch.cat(attended)
        gate, value = (layer.mlp.up.weight @ rms_norm(token, layer.norm_mlp)).chunk(2)
        m = layer.mlp.down.weight @ (silu(gate) * value)
        if update is not None:
            s, g = update.share.unsqueeze(1), silu(update.gate.weight @ m).unsqueeze(1)
            cos, sin = cos + s * torch.stack(average_cos), sin + s * torch.stack(average_sin)
            cos, sin = (part + update.down @ (g * (update.up @ part)) for part in (cos, sin))
        new_x.append(token + m)
        new_e.append((cos, sin))
    return new_x, new_e


def by_loop(model: Decoder, tokens: Tensor) -> tuple[Tensor, list[list[tuple[Tensor, Tensor]]]]:
    """Logits (L, V) of one sequence, and (C, S) after each layer."""
    x = list(model.embedding(tokens))
    heads, streams = model.layers[0].mixer.heads, []
    e = beginning(len(tokens), model.layers[0].mixer.options, heads.n_heads, heads.head_dim)
    for layer in model.layers:
        x, e = one_layer(layer, x, e)
        streams.append(e)
    return torch.stack([model.head.weight @ rms_norm(token, model.norm) for token in x]), streams


@pytest.mark.parametrize("n_heads", [1, 2, 4])
@pytest.mark.parametrize("options", [{}, {"self_key": False}, {"rope_base": 300.0, "attn_temperature": 0.6}], ids=str)
def test_it_is_its_equations_in_value_and_gradient(options: dict[str, float], n_heads: int):
    model, tokens = Case("tape", options).build(n_layers=3, n_heads=n_heads), draw_tokens(2, 7)
    parameters = dict(model.named_parameters())
    fast = model(tokens)
    slow = torch.stack([by_loop(model, row)[0] for row in tokens])
    assert_same(fast, slow)
    weight = torch.randn_like(fast)
    ours, theirs = (torch.autograd.grad(t, parameters.values(), weight, allow_unused=True) for t in (fast, slow))
    for name, mine, other in zip(parameters, ours, theirs):
        if mine is None or other is None:  # of the last update, which nothing reads
            assert name.startswith("layers.2.update") and mine is None and other is None
        else:
            assert_same(mine, other)
            assert mine.abs().max() > 1e-6


def streams_of(model: Decoder, tokens: Tensor, stream: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
    """x after the last layer and the stream after each."""
    x, context, streams = model.embedding(tokens), Context.of(tokens), []
    for layer in model.layers:
        x, stream, _ = layer(x, stream, None, context)
        streams.append(stream)
    return x, streams


def test_both_halves_of_cos_and_sin_stay_equal_so_one_is_kept():
    model, tokens = Case("tape").build(n_layers=3), draw_tokens(1, 7)
    _, slow = by_loop(model, tokens[0])
    _, fast = streams_of(model, tokens)
    for ours, theirs in zip(fast[:2], slow[:2]):
        cos, sin = (torch.stack(part, dim=1) for part in zip(*theirs))  # (H, L, D)
        for whole, half in zip((cos, sin), ours[0].chunk(2, dim=-1)):
            assert_same(whole, torch.cat((half, half), dim=-1))


def fresh(n_layers: int, self_key: bool) -> Decoder:
    model = build_model("tape", vocab_size=11, d_model=16, n_heads=2, n_layers=n_layers, self_key=self_key).double()
    for layer in model.layers:  # large enough that attention is not uniform
        layer.mixer.heads.project.weight.data[:32] *= 10
    return model


def as_rope(model: Decoder, layout: Layout, plain: bool) -> Tensor:
    """The same weights in ordinary blocks around RoPE."""
    x, shape = model.embedding(layout.tokens), LayerShape(16, 2, 8, 4, len(model.layers))
    context = Context.of(layout.tokens) if plain else layout.context()
    for layer in model.layers:
        block = Block(shape, RoPE.of_shape(shape, RoPEOptions(**vars(layer.mixer.options)))).double()
        block.norm_mixer, block.norm_mlp, block.mlp = layer.norm_mixer, layer.norm_mlp, layer.mlp
        block.mixer.heads = layer.mixer.heads
        x, _, _ = block(x, None, None, context)
    return model.head(model.norm(x))


@BOTH_KEYS
@BOTH_CONTEXTS
@pytest.mark.parametrize("n_layers", [1, 3])
def test_at_the_start_it_is_rope(rows: tuple[str, ...], n_layers: int, self_key: bool):
    model, layout = fresh(n_layers, self_key), Layout(rows)

    def difference() -> float:
        logits = model(layout.tokens) if rows is PLAIN else model(layout.tokens, **layout.flags)
        return (logits - as_rope(model, layout, rows is PLAIN))[layout.padding_mask].abs().max().item()

    assert difference() < 1e-11
    for name, parameter in model.named_parameters():
        if name.startswith("layers.0.update") and name.endswith(("share", "up")):
            assert not parameter.any()
            parameter.data.fill_(0.5)
            assert difference() > 1e-6
            parameter.data.zero_()


def test_a_model_of_one_layer_has_nothing_idle():
    assert not any("update" in name for name, _ in fresh(1, True).named_parameters())
    names = [name for name, _ in fresh(2, True).layers[0].named_parameters() if "update" in name]
    assert names == ["update.share", "update.up", "update.down", "update.gate.weight"]


@pytest.mark.parametrize("shift", [1, 137, -50])
def test_a_shift_of_all_indices_turns_the_stream_and_nothing_else(shift: int):
    model, tokens = Case("tape").build(n_layers=3), draw_tokens(2, 9)
    mixer = model.layers[0].mixer
    theta, _ = mixer.angles(torch.zeros(2, 9, 16, dtype=torch.float64), None, Context.of(tokens))
    omega = torch.tensor([10000 ** (-i / 4) for i in range(4)], dtype=torch.float64)
    begun, shifted = (torch.cat((t.cos(), t.sin()), dim=-1) for t in (theta, theta + shift * omega))
    x, streams = streams_of(model, tokens)
    for start in (begun, shifted):
        other, turned = streams_of(model, tokens, start)
        torch.testing.assert_close(other, x, rtol=0, atol=1e-9)
    by = torch.polar(torch.ones_like(omega), shift * omega)
    for stream, moved in zip(streams[:2], turned):
        before, after = (torch.complex(*t.chunk(2, dim=-1)) for t in (stream, moved))
        torch.testing.assert_close(after, before * by, rtol=0, atol=1e-9)


HYBRID = Case(None, {"layers": ["mapwm", "tape", "nope", ("tape", {"self_key": False}), "rope"]})


def test_other_layers_hand_the_stream_on():
    model, tokens = HYBRID.build(), draw_tokens(2, 9)
    _, streams = streams_of(model, tokens)
    assert streams[0] is None and streams[1] is streams[2] and streams[3] is streams[4]
    x, context = torch.randn(2, 9, 16, dtype=torch.float64), Context.of(tokens)
    continued, begun = (model.layers[3](x, stream, None, context)[0] for stream in (streams[2], None))
    assert (continued - begun).abs().max() > 1e-3


@pytest.mark.parametrize("sizes", [(1,) * 12, (3, 1, 5, 2, 1)], ids=["single", "uneven"])
def test_a_hybrid_reads_documents_in_chunks_or_at_once(sizes: tuple[int, ...]):
    model, layout = HYBRID.build(), Layout(MIXED)
    state, pieces = None, []
    for piece in layout.chunks(sizes, only_where_needed=True):
        logits, state = model(**piece, state=state, return_state=True)
        pieces.append(logits)
    whole = model(layout.tokens, **layout.flags)
    assert_same(torch.cat(pieces, dim=1)[layout.padding_mask], whole[layout.padding_mask])
    assert_same(whole[layout.padding_mask], layout.alone(model)[layout.padding_mask])


def test_autocast_leaves_the_stream_in_float32():
    model, tokens = Case("tape").build(dtype=torch.float32), draw_tokens(2, 9)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, streams = streams_of(model, tokens)
    assert streams[0].dtype == torch.float32


def test_an_odd_head_is_refused():
    with pytest.raises(UserError, match="tape rotates pairs"):
        TAPE(9)
