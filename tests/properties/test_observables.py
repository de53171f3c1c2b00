"""What can be seen has names: every layer's notes are in the table, have its shapes, and follow a stream."""

import pytest
import torch
from torch import Tensor

from helpers import (
    CASES,
    EVERYTHING,
    FIRST_CASES,
    HYBRID,
    MIXED,
    Case,
    Layout,
    assert_bitwise,
    assert_same,
    draw_tokens,
    thorough,
)
from mapformers.modules.observables import AXES, OBSERVABLES, Observed

each = pytest.mark.parametrize("case", CASES, ids=str)
each_and_hybrids = pytest.mark.parametrize("case", [*CASES, HYBRID, EVERYTHING], ids=str)


def joined(name: str, pieces: list[Tensor]) -> Tensor:
    """What was seen of pieces as it would be seen of the whole; a key that came later has no share yet."""
    axes = OBSERVABLES[name].axes
    if "K" in axes:
        width = pieces[-1].shape[-1]
        pieces = [torch.nn.functional.pad(piece, (0, width - piece.shape[-1])) for piece in pieces]
    return torch.cat(pieces, dim=axes.index("L"))


def without_later_keys(name: str, seen: Tensor) -> Tensor:
    """Logits of keys that come later are noted or not, as the computation has it: no weight is put on them."""
    return seen.tril() if "K" in OBSERVABLES[name].axes else seen


def in_pieces(model, tokens: Tensor, sizes: tuple[int, ...]) -> list[Observed]:
    state, pieces = None, []
    for piece in tokens.split(sizes, dim=1):
        pieces.append(model.observe(piece, state=state))
        state = pieces[-1].state
    return pieces


def test_the_table_explains_every_axis():
    used = {axis for observable in OBSERVABLES.values() for axis in observable.axes}
    assert used == set(AXES)
    assert all(name == observable.name and len(observable.meaning) > 10 for name, observable in OBSERVABLES.items())
    assert OBSERVABLES["attention"].shape == "(B, H, L, K)"


@each
def test_every_note_is_in_the_table_and_has_the_shape_it_says(case: Case):
    """One size per axis and layer: B, L, K and H are those of the call, the others agree with each other."""
    model = case.build()
    first = model.observe(draw_tokens(3, 4))
    seen = model.observe(draw_tokens(3, 5, seed=1), state=first.state)
    assert len(seen) == 2
    for notes in seen:
        assert notes.keys() <= OBSERVABLES.keys()
        sizes = {"B": 3, "L": 5, "K": 9, "H": 2, "2": 2}
        if "queries" in notes or case.name == "tem-t":
            sizes["D"] = 8
        for name, tensor in notes.items():
            axes = OBSERVABLES[name].axes
            assert tensor.shape == tuple(sizes.setdefault(axis, size) for axis, size in zip(axes, tensor.shape)), name
            assert tensor.dim() == len(axes) and not tensor.requires_grad and tensor.isfinite().all()


IN_TWO = [(case, (4, 5)) for case in [*CASES, HYBRID, EVERYTHING]]
BY_TOKEN = [(case, (1,) * 9) for case in [*FIRST_CASES, HYBRID, EVERYTHING]]
MORE_BY_TOKEN = [thorough(case, (1,) * 9) for case in CASES if case not in FIRST_CASES]


@pytest.mark.parametrize(
    ("case", "sizes"),
    [*IN_TWO, *BY_TOKEN, *MORE_BY_TOKEN],
    ids=lambda value: str(value) if isinstance(value, Case) else "two pieces" if len(value) == 2 else "token by token",
)
def test_observing_in_pieces_equals_observing_at_once(case: Case, sizes: tuple[int, ...]):
    model, tokens = case.build(), draw_tokens(2, 9)
    whole, pieces = model.observe(tokens), in_pieces(model, tokens, sizes)
    assert_same(torch.cat([piece.logits for piece in pieces], dim=1), whole.logits)
    for index, notes in enumerate(whole):
        for name, seen in notes.items():
            streamed = joined(name, [piece[index][name] for piece in pieces])
            if name == "theta":  # an angle of a single token is not reduced modulo 2π
                streamed, seen = (torch.stack((angle.cos(), angle.sin())) for angle in (streamed, seen))
            assert_same(without_later_keys(name, streamed), without_later_keys(name, seen), msg=name)


@each_and_hybrids
def test_observing_answers_as_calling_does(case: Case):
    model, layout = case.build(), Layout(MIXED)
    seen = model.observe(layout.tokens, **layout.flags)
    with torch.no_grad():
        logits, state = model(layout.tokens, **layout.flags, return_state=True)
        assert_bitwise(seen.logits, logits)
        following = model(layout.tokens, state=seen.state)
        assert_bitwise(following, model(layout.tokens, state=state))


@each
def test_attention_covers_the_keys_of_the_state(case: Case):
    model, tokens = case.build(n_layers=1), draw_tokens(2, 8)
    seen = model.observe(tokens[:, 5:], state=model.observe(tokens[:, :5]).state)[0]
    if "attention" not in seen:
        assert case.name in ("mamba", "mamba2", "mampa", "lstm", "stack-rnn") or case.options.get("softmax") is False
        return
    weights = seen["attention"]
    total = weights.sum(dim=-1)
    assert_same(total, (total > 0.5).to(total.dtype))  # 1, or 0 where `tem-t` has seen no observation
    assert (weights[..., :5].sum(dim=-1)[total > 0] > 0).all()
    assert (weights[..., 6:][:, :, 0] == 0).all()


BY_MATRICES = [case for case in CASES if case.name.endswith("-nc") and case.options.get("attend") != "o"]


@pytest.mark.parametrize("case", BY_MATRICES, ids=str)
def test_the_position_of_matrices_is_the_product_of_their_steps(case: Case):
    model, tokens = case.build(n_layers=1), draw_tokens(2, 6)
    layer, context = model.layers[0], model._context(tokens, None, None, None)
    steps = layer.mixer.path.step_matrices(layer.norm_mixer(model.embedding(tokens)), context)
    place, places = torch.eye(layer.mixer.path.n, dtype=torch.float64), []
    for t in range(6):
        place = steps[:, t] @ place
        places.append(place)
    assert_same(model.observe(tokens)[0]["rotation"], torch.stack(places, dim=1))


@pytest.mark.parametrize("name", ["rope", "mapwm", "mapwm-nc"])
def test_queries_and_keys_are_noted_before_they_are_turned(name: str):
    """Alone at the start of a map or further along it, a token asks the same."""
    model = Case(name).build(n_layers=1)
    seen = model.observe(torch.full((1, 4), 3))[0]
    for part in ("queries", "keys"):
        assert_same(seen[part], seen[part][:, :, :1].expand_as(seen[part]))
    q, k = (seen[part] for part in ("queries", "keys"))
    weights = torch.softmax((q @ k.mT / 8**0.5).masked_fill(torch.ones(4, 4).triu(1) > 0, -torch.inf), dim=-1)
    assert (weights - seen["attention"]).abs().max() > 0.01  # what is attended to is turned
