"""Every registered layer as `mf.layers` offers it: alone, streamed, packed, padded, and read both ways."""

import copy
import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mapformers as mf
from helpers import (
    CASES,
    FIRST_CASES,
    MIXED,
    PACKED,
    PADDED,
    Case,
    Layout,
    assert_bitwise,
    assert_same,
    draw_tokens,
    thorough,
)
from mapformers.errors import UserError
from mapformers.modules.context import EMPTY_PAST, Context, StreamState
from mapformers.modules.layer import LAYERS

WIDTH, HEADS = 16, 2
each = pytest.mark.parametrize("case", CASES, ids=str)
once_each = pytest.mark.parametrize("case", FIRST_CASES, ids=str)
READ_BOTH_WAYS = ("mapem", "mapem-nc", "mapwm", "mapwm-nc", "nope", "rope")
both_ways = pytest.mark.parametrize(
    "case",
    [c for c in CASES if c.name in READ_BOTH_WAYS and not c.options.get("decay") and c.options.get("softmax", True)],
    ids=str,
)


def build(case: Case, seed: int = 0, **settings: Any) -> nn.Module:
    """The layer with every parameter drawn at random, in float64."""
    layer = LAYERS[case.name].layer(WIDTH, HEADS, **settings, **case.options).double()
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            drawn = 0.4 * torch.randn(parameter.shape, generator=g)
            parameter.copy_(0.3 + drawn.abs() if name.endswith("omega") else drawn)
    return layer


def draw_x(*shape: int, seed: int = 3) -> Tensor:
    return torch.randn(*shape, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def told(case: Case, tokens: Tensor) -> dict[str, Tensor]:
    """The ids, for the one layer that is told which tokens act."""
    return {"tokens": tokens} if case.name == "tem-t" else {}


def test_every_row_of_the_paper_is_a_class():
    offered = {name: getattr(mf.layers, LAYERS[name].layer.__name__) for name in mf.list_models()}
    assert {cls.__name__ for cls in offered.values()} == {
        "CoPE", "LSTM", "MAmPa", "Mamba", "Mamba2", "MapEM", "MapEMNC", "MapWM", "MapWMNC", "NoPE", "PaTH", "RoPE",
        "StackRNN", "TAPE", "TemT",
    }  # fmt: skip
    assert set(mf.layers.classes()) <= set(dir(mf.layers))
    with pytest.raises(AttributeError, match="MapWM"):
        _ = mf.layers.MapXY


def test_arguments_are_those_a_person_would_type():
    y = mf.layers.MapWM(d_model=32, n_heads=4, rank=4)(torch.randn(2, 7, 32))
    assert y.shape == (2, 7, 32)
    arguments = inspect.signature(mf.layers.MapWM).parameters
    assert list(arguments)[:2] == ["d_model", "n_heads"] and arguments["rank"].default == 2
    assert arguments["rank"].annotation is int


@each
def test_it_maps_activations_to_activations_and_equals_its_reference(case: Case):
    layer, x, tokens = build(case), draw_x(2, 9), draw_tokens(2, 9)
    kept = x.clone()
    y = layer(x, **told(case, tokens))
    assert y.shape == x.shape and y.dtype == x.dtype
    assert_bitwise(x, kept)
    if case.name != "tape":  # a whole layer, whose reference is that of its attention
        assert_same(y, layer.reference(x, Context.of(x, **told(case, tokens))))


@each
def test_in_pieces_as_at_once_with_documents_and_padding(case: Case):
    layer, layout = build(case), Layout(MIXED)
    x, real = draw_x(*layout.tokens.shape), layout.padding_mask
    whole = layer(x, **layout.flags, **told(case, layout.tokens))
    state, pieces, start = None, [], 0
    for piece in layout.chunks((3, 1, 5, 2, 1), only_where_needed=True):
        tokens = piece.pop("tokens")
        stop = start + tokens.shape[1]
        y, state = layer(x[:, start:stop], state=state, return_state=True, **piece, **told(case, tokens))
        pieces.append(y)
        start = stop
    assert_same(torch.cat(pieces, dim=1)[real], whole[real])


@once_each
def test_a_state_can_be_detached_moved_and_have_its_rows_selected(case: Case):
    layer, x, tokens = build(case), draw_x(3, 8).requires_grad_(), draw_tokens(3, 8)
    _, state = layer(x[:, :5], return_state=True, **told(case, tokens[:, :5]))
    assert isinstance(state, StreamState)
    go_on = told(case, tokens[:, 5:])
    whole = layer(x[:, 5:], state=state, **go_on)
    assert_bitwise(layer(x[:, 5:], state=state.to("cpu"), **go_on), whole)
    (through_state,) = torch.autograd.grad(whole.square().sum(), x, retain_graph=True)
    (cut,) = torch.autograd.grad(layer(x[:, 5:], state=state.detach(), **go_on).square().sum(), x)
    assert through_state[:, :5].abs().max() > 0 and not cut[:, :5].any()
    for rows in ([2, 0], slice(1, 3), torch.tensor([1]), torch.tensor([True, False, True])):
        some = {name: t[rows] for name, t in go_on.items()}
        assert_same(layer(x[rows, 5:], state=state.rows(rows), **some), whole[rows])


@once_each
def test_a_state_of_something_else_is_refused(case: Case):
    layer, x, tokens = build(case), draw_x(2, 4), draw_tokens(2, 4)
    _, state = layer(x, return_state=True, **told(case, tokens))
    with pytest.raises(UserError, match="batch of 2, the input is a batch of 1"):
        layer(x[:1], state=state, **told(case, tokens[:1]))
    with pytest.raises(UserError, match="state must be what this layer returned"):
        layer(x, state=state.layers[0], **told(case, tokens))
    other = mf.layers.NoPE(WIDTH, HEADS) if case.name != "nope" else mf.layers.RoPE(WIDTH, HEADS)
    with pytest.raises(UserError, match="of another model"):
        other.double()(x, state=state)
    with pytest.raises(UserError, match=r"shape \(batch, length, 16\)"):
        layer(x[..., :3], **told(case, tokens))


@once_each
def test_a_state_without_its_past_is_refused_and_not_misread(case: Case):
    """As a layer of a decoder: keys of five tokens with a context that knows of none used to be computed with."""
    block = case.build(n_layers=1).layers[0]
    x, tokens = draw_x(2, 5), draw_tokens(2, 5)
    _, _, memory = block(x, None, None, Context.of(tokens))
    with pytest.raises(UserError, match="handed over together"):
        block(x, None, memory, Context.of(tokens))


@once_each
def test_a_layer_alone_refuses_half_a_state(case: Case):
    """Keys without the past they belong to, and a past without its keys, were computed with."""
    layer, x, tokens = build(case), draw_x(2, 5), draw_tokens(2, 5)
    _, state = layer(x, return_state=True, **told(case, tokens))
    for half in (state._replace(past=EMPTY_PAST), state._replace(layers=(None,))):
        with pytest.raises(UserError, match="handed over together"):
            layer(x, state=half, **told(case, tokens))


@both_ways
def test_read_both_ways_each_position_sees_both_sides(case: Case):
    layer, x = build(case, causal=False), draw_x(1, 6)
    base = layer(x)
    for t in range(6):
        moved = x.clone()
        moved[0, t] += 1.0
        change = (layer(moved) - base).abs().amax(dim=-1)[0]
        others = [i for i in range(6) if i != t]
        assert change[others].min() > 1e-9


@both_ways
def test_read_both_ways_packed_equals_separate_and_padding_does_not_matter(case: Case):
    layer = build(case, causal=False)
    for rows in (PACKED, PADDED, MIXED):
        layout = Layout(rows)
        x = draw_x(*layout.tokens.shape)
        packed = layer(x, **layout.flags)
        for row, at in layout.documents():
            assert_same(packed[row, at], layer(x[row, at].unsqueeze(0))[0])


@pytest.mark.parametrize("self_key", [True, False])
def test_read_both_ways_mapwm_is_the_displacement_between_any_two_tokens(self_key: bool):
    """q_iᵀ R(θ_j − θ_i) k_j for j after i as for j before it."""
    layer, x = build(Case("mapwm", {"self_key": self_key}), causal=False), draw_x(2, 7)
    q, k, v = layer.heads.split(x)
    theta, *_ = layer.path(x, None, Context.of(x))
    between = mf.lie.rotation_matrix(theta.unsqueeze(2) - theta.unsqueeze(3))  # (B, H, i, j, D, D): θ_j − θ_i
    logits = torch.einsum("bhid,bhijde,bhje->bhij", q, between, k) / (WIDTH // HEADS) ** 0.5
    if not self_key:
        logits = logits.masked_fill(torch.eye(7, dtype=torch.bool), -torch.inf)
    assert_same(layer(x), layer.heads.merge(logits.softmax(dim=-1) @ v))


def test_who_cannot_read_both_ways_says_so():
    for name in set(mf.list_models()) & {"cope", "path", "mamba", "mamba2", "mampa", "lstm", "stack-rnn"}:
        with pytest.raises(UserError, match="in one direction"):
            LAYERS[name].layer(WIDTH, HEADS, causal=False)
    with pytest.raises(UserError, match="in one direction"):
        mf.layers.MapWM(WIDTH, HEADS, causal=False, decay=True)
    layer = mf.layers.RoPE(WIDTH, HEADS, causal=False)
    with pytest.raises(UserError, match="no state to go on from"):
        layer(torch.randn(1, 3, WIDTH), return_state=True)


def test_wrong_arguments_are_one_sentence():
    for make, sentence in {
        lambda: mf.layers.MapWM(16, 3): "cannot be divided into 3 heads",
        lambda: mf.layers.MapWM(16, 2, rank=0): "rank must be at least 1",
        lambda: mf.layers.MapWM(16, 2, rank="two"): "rank must be a whole number",
        lambda: mf.layers.MapWM(16, 2, rnak=2): "did you mean 'rank'",
        lambda: mf.layers.RoPE(16, 2, n_layers=0): "n_layers must be at least 1",
        lambda: mf.layers.RoPE("16", 2): "d_model must be a whole number",
        lambda: mf.layers.RoPE(16, 2, causal="no"): "causal must be True or False",
        lambda: mf.layers.TemT(16, 2): "told which tokens are actions",
        lambda: mf.layers.TemT(16, 2, action_ids=(0,))(torch.randn(1, 2, 16)): "call it with tokens=",
    }.items():
        with pytest.raises(UserError, match=sentence):
            make()


def test_hooks_on_a_mixer_fire_inside_a_decoder():
    """Whatever wraps modules (hooks, sharding, per-layer compilation) relies on their being called."""
    model, fired = mf.build_model("mapwm", vocab_size=5, n_layers=2), []
    for layer in model.layers:
        layer.mixer.register_forward_hook(lambda *_: fired.append(1))
    model(torch.zeros(1, 3, dtype=torch.long))
    assert len(fired) == 2


def test_layers_are_copied_pickled_and_saved_whole(tmp_path):
    for name in mf.list_models():
        layer = build(Case(name, LAYERS[name].variants[0]))
        x, tokens = draw_x(1, 5), draw_tokens(1, 5)
        expected = layer(x, **told(Case(name), tokens))
        torch.save(layer, tmp_path / "layer.pt")
        for other in (copy.deepcopy(layer), torch.load(tmp_path / "layer.pt", weights_only=False)):
            assert_bitwise(other(x, **told(Case(name), tokens)), expected)


def test_tape_goes_on_with_its_state_and_its_stream_together():
    first, second = mf.layers.TAPE(WIDTH, HEADS), mf.layers.TAPE(WIDTH, HEADS, last=True)
    x, stream = first(torch.randn(2, 9, WIDTH), return_stream=True)
    _, state = second(x[:, :5], stream=stream[:, :, :5], return_state=True)
    with pytest.raises(UserError, match="both its state and"):
        second(x[:, 5:], state=state)
    with pytest.raises(UserError, match="stream must be what the TAPE layer before returned"):
        second(x, stream=stream[:, :, :5])


def test_tape_hands_its_positions_to_the_next_layer():
    first, second = mf.layers.TAPE(WIDTH, HEADS), mf.layers.TAPE(WIDTH, HEADS, last=True)
    for parameter in first.parameters():
        nn.init.normal_(parameter, std=0.3)
    x, stream = first(torch.randn(2, 9, WIDTH), return_stream=True)
    assert (second(x, stream=stream) - second(x)).abs().max() > 1e-4


WRAPPED = ("mapwm", "tape", "tem-t")  # a plain one, one with a stream, one that is told the tokens


@pytest.mark.parametrize("case", [case if case.name in WRAPPED else thorough(case) for case in FIRST_CASES], ids=str)
def test_a_layer_compiles_alone(case: Case):
    layer, x, tokens = build(case), draw_x(2, 6), draw_tokens(2, 6)
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    assert_same(compiled(x, **told(case, tokens)), layer(x, **told(case, tokens)))
    torch._dynamo.reset()
