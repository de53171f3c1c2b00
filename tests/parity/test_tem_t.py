"""`tem-t` against a plain TEM-transformer written here from its equations, one token at a time."""

import json
import math

import pytest
import torch
from torch import Tensor

from helpers import MIXED, PACKED, PADDED, PLAIN, VOCAB, Layout, assert_bitwise, assert_same, draw_tokens
from mapformers import build_model, build_task
from mapformers.errors import UserError
from mapformers.layers.tem_t import TemT, TemTOptions
from mapformers.model import Decoder, ModelConfig
from mapformers.modules.context import Context
from mapformers.modules.mixer import LayerShape

SHAPES = {
    "one-head": LayerShape(d_model=16, n_heads=1, head_dim=16),
    "wide-heads": LayerShape(d_model=12, n_heads=3, head_dim=8),
}
OPTIONS = {
    "linear": TemTOptions(action_ids=(0, 1, 2, 3)),
    "relu": TemTOptions(action_ids=(9, 2, 5), act="relu"),
    "tanh": TemTOptions(action_ids=(1, 10, 4, 6, 8), act="tanh", attn_temperature=0.5),
}
each_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
each_options = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


def build_tem_t(shape: LayerShape, options: TemTOptions) -> TemT:
    """Every matrix far from the identity and from every other."""
    mixer = TemT.of_shape(shape, options).double()
    with torch.no_grad():
        mixer.moves += 0.5 * torch.randn_like(mixer.moves)
        mixer.compare += 0.3 * torch.randn_like(mixer.compare)
    return mixer


def normalise(e: Tensor) -> Tensor:
    centred = e - e.sum() / len(e)
    return centred / ((centred * centred).sum() / len(e) + 1e-5).sqrt()


def plain_tem_t(mixer: TemT, x: Tensor, tokens: list[int]) -> Tensor:
    """y of one document (L, d_model): e ← norm(act(e W_a)); softmax(q_t K_{<t}ᵀ/√D) V_{<t} over observations."""
    n_heads, size = mixer.heads.n_heads, mixer.heads.head_dim
    bend = {"linear": lambda z: z, "relu": lambda z: z * (z > 0), "tanh": torch.tanh}[mixer.options.act]
    w_x, w_o = mixer.heads.project.weight, mixer.heads.out.weight
    out = []
    for h in range(n_heads):
        rows = slice(h * size, (h + 1) * size)
        e, seen, answers = normalise(mixer.origin[rows]), [], []
        for t, token in enumerate(tokens):
            if token in mixer.options.action_ids:
                e = normalise(bend(e @ mixer.moves[mixer.options.action_ids.index(token), h]))
            q = e @ mixer.compare[h]
            scores = [math.e ** (q @ k / math.sqrt(size) / mixer.options.attn_temperature) for k, _ in seen]
            answers.append(sum((s * v for s, (_, v) in zip(scores, seen)), torch.zeros_like(e)) / sum(scores or [1.0]))
            if token not in mixer.options.action_ids:
                seen.append((q, w_x[rows] @ x[t]))
        out.append(torch.stack(answers))
    return torch.cat(out, dim=1) @ w_o.T


def values_and_gradients(out: Tensor, mixer: TemT, x: Tensor) -> list[Tensor]:
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    return [out, *torch.autograd.grad(out, [x, *mixer.parameters()], weight)]


@pytest.mark.parametrize("rows", [PLAIN, PACKED, PADDED, MIXED], ids=["plain", "packed", "padded", "mixed"])
@each_options
@each_shape
def test_it_is_the_plain_tem_t_in_value_and_gradient(shape: LayerShape, options: TemTOptions, rows: tuple[str, ...]):
    mixer, layout = build_tem_t(shape, options), Layout(rows)
    x = torch.randn(*layout.tokens.shape, shape.d_model, dtype=torch.float64, requires_grad=True)
    expected = torch.zeros_like(x)
    for row, at in layout.documents():
        answer = plain_tem_t(mixer, x[row, at], layout.tokens[row, at].tolist())
        expected = expected.index_put((torch.tensor(row), at), answer)
    mixed, _ = mixer.mix(x, None, Context.of(layout.tokens) if rows is PLAIN else layout.context())
    mixed = mixed * layout.padding_mask.unsqueeze(-1)
    for ours, plain in zip(values_and_gradients(mixed, mixer, x), values_and_gradients(expected, mixer, x)):
        torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-10)


def test_a_model_on_navigation_is_the_plain_one():
    """A whole walk, actions and observations in turn, as the task makes them."""
    task = build_task("navigation", dims=2, steps=40, grid=4)
    tokens = task.sample("iid", 2, generator=torch.Generator().manual_seed(0)).tokens
    mixer = build_tem_t(SHAPES["one-head"], TemTOptions(action_ids=tuple(task.action_ids)))
    x = torch.randn(*tokens.shape, 16, dtype=torch.float64, requires_grad=True)
    expected = torch.stack([plain_tem_t(mixer, x[row], tokens[row].tolist()) for row in range(2)])
    mixed, _ = mixer.mix(x, None, Context.of(tokens))
    for ours, plain in zip(values_and_gradients(mixed, mixer, x), values_and_gradients(expected, mixer, x)):
        torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-10)


def test_which_tokens_act_is_what_it_was_told_and_not_what_they_are():
    tokens = draw_tokens(2, 12)
    x = torch.randn(2, 12, 16, dtype=torch.float64)
    told = build_tem_t(SHAPES["one-head"], TemTOptions(action_ids=(0, 1, 2)))

    def same_weights(ids: tuple[int, ...], order: tuple[int, ...] = (0, 1, 2)) -> TemT:
        other = TemT.of_shape(SHAPES["one-head"], TemTOptions(action_ids=ids)).double()
        other.load_state_dict(told.state_dict() | {"moves": told.moves[list(order)]})
        return other

    y = told.mix(x, None, Context.of(tokens))[0]
    renamed = same_weights((2, 0, 1), order=(2, 0, 1))  # the same matrices for the same tokens
    assert_same(renamed.mix(x, None, Context.of(tokens))[0], y)
    for ids in ((2, 0, 1), (0, 1, 3), (3, 4, 5)):
        assert (same_weights(ids).mix(x, None, Context.of(tokens))[0] - y).abs().max() > 1e-3
    relabelled = (tokens + 3) % VOCAB  # with the tokens renamed alike, all is as before
    assert_same(same_weights((3, 4, 5)).mix(x, None, Context.of(relabelled))[0], y)


def test_only_observations_are_read_and_only_later():
    """Disturb v of one token: later tokens see it if it was an observation; nobody else does."""
    mixer = build_tem_t(SHAPES["one-head"], OPTIONS["linear"])
    tokens = torch.tensor([[0, 7, 1, 3, 8, 9, 2, 10]])
    x = torch.randn(1, 8, 16, dtype=torch.float64)
    before, _ = mixer.mix(x, None, Context.of(tokens))
    for t, token in enumerate(tokens[0].tolist()):
        moved = x.clone()
        moved[0, t] += 1.0
        change = (mixer.mix(moved, None, Context.of(tokens))[0] - before).abs().amax(dim=-1)[0]
        expected = torch.zeros(8, dtype=torch.bool)
        expected[t + 1 :] = token > 3
        assert (change[expected] > 1e-9).all()
        assert_bitwise(change[~expected], torch.zeros_like(change[~expected]))


def test_with_nothing_to_remember_it_says_nothing():
    mixer = build_tem_t(SHAPES["wide-heads"], OPTIONS["linear"])
    tokens = torch.tensor([[0, 1, 2, 3, 7, 1]])
    mixed, _ = mixer.mix(torch.randn(1, 6, 12, dtype=torch.float64), None, Context.of(tokens))
    assert_bitwise(mixed[0, :5], torch.zeros(5, 12, dtype=torch.float64))
    assert mixed[0, 5].abs().max() > 1e-3


def test_it_recalls_what_was_seen_where_it_comes_back_to():
    """With a quarter turn for one action and its inverse for the other, four steps one way are none."""
    mixer = TemT.of_shape(LayerShape(4, 1, 4), TemTOptions(action_ids=(0, 1), attn_temperature=0.01)).double()
    basis = torch.linalg.qr(torch.cat((torch.ones(4, 1), torch.eye(4)[:, :3]), dim=1)).Q.double()  # first: the mean
    turn = torch.eye(4).double()
    turn[1:3, 1:3] = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    with torch.no_grad():
        mixer.moves.copy_(torch.stack((basis @ turn @ basis.T, basis @ turn.T @ basis.T)).unsqueeze(1))
        mixer.origin.copy_(basis[:, 1])
    tokens = torch.tensor([[5, 0, 6, 0, 7, 1, 1, 0, 0, 0, 0]])  # at 0: 5, at 1: 6, at 2: 7
    x = torch.randn(1, tokens.shape[1], 4, dtype=torch.float64)
    values = mixer.heads.merge(mixer.heads.split(x)[0])[0]
    mixed, _ = mixer.mix(x, None, Context.of(tokens))
    for query, seen in ((5, 2), (6, 0), (7, 2), (8, 4), (10, 0)):
        torch.testing.assert_close(mixed[0, query], values[seen], rtol=0, atol=1e-6)


@pytest.mark.parametrize("scale", [0.1, 10.0])
def test_a_place_keeps_its_length_on_a_long_walk(scale: float):
    mixer = TemT.of_shape(SHAPES["one-head"], TemTOptions(action_ids=(0, 1)))
    mixer.moves.data *= scale
    tokens = torch.randint(2, (1, 2000), generator=torch.Generator().manual_seed(0))
    _, memory = mixer.mix(torch.zeros(1, 2000, 16), None, Context.of(tokens))
    assert 0.99 < memory.place.norm() / 4 <= 1.0001


def test_observations_and_padding_leave_it_where_it_is():
    mixer = build_tem_t(SHAPES["one-head"], OPTIONS["linear"])
    notes: dict[str, Tensor] = {}
    real = torch.tensor([[True, True, True, False, True, True]])
    context = Context.of(torch.tensor([[5, 0, 9, 1, 10, 2]]), padding_mask=real, recording=notes)
    mixer.mix(torch.randn(1, 6, 16, dtype=torch.float64), None, context)
    place = notes["place"][0, :, 0]
    steps = (place[1:] - place[:-1]).abs().amax(dim=-1) > 1e-3
    assert steps.tolist() == [True, False, False, False, True]
    assert_same(notes["attention"][0, 0, 5], notes["attention"][0, 0, 5] * torch.tensor([1, 0, 1, 0, 1, 0]))
    assert_same(notes["attention"].sum(dim=-1)[0, 0], torch.tensor([0, 1, 1, 0, 1, 1]).double())


def test_options_pass_through_python_and_json():
    model = build_model("tem-t", vocab_size=VOCAB, d_model=16, action_ids=[3, 1], act="relu")
    assert model.config.layers[0].options == TemTOptions(action_ids=(3, 1), act="relu")
    again = ModelConfig.from_dict(json.loads(json.dumps(model.config.to_dict())))
    assert again == model.config
    Decoder(again).load_state_dict(model.state_dict(), strict=True)


@pytest.mark.parametrize("options", [{}, {"action_ids": ()}, {"action_ids": []}], ids=["absent", "empty", "list"])
def test_it_must_be_told_which_tokens_act(options: dict[str, object]):
    with pytest.raises(UserError, match=r"told which tokens are actions: give action_ids=task\.action_ids"):
        build_model("tem-t", vocab_size=VOCAB, d_model=16, **options)


@pytest.mark.parametrize(
    "wrong",
    [
        {"action_ids": (0, -1)},
        {"action_ids": (0, 1, 1)},
        {"action_ids": (0, 1.5)},
        {"action_ids": ("a",)},
        {"action_ids": 3},
        {"act": "gelu", "action_ids": (0,)},
        {"attn_temperature": 0.0, "action_ids": (0,)},
        {"attn_temperature": math.inf, "action_ids": (0,)},
    ],
    ids=str,
)
def test_wrong_options_are_refused(wrong: dict[str, object]):
    with pytest.raises(UserError, match=next(iter(wrong))):
        build_model("tem-t", vocab_size=VOCAB, d_model=16, **wrong)
