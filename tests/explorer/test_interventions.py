"""A state before the first token, and interventions: what each must equal, for every registered variant."""

import pytest
import torch

from helpers import CASES, EVERYTHING, HYBRID, Case, assert_bitwise, assert_same, draw_tokens
from mapformers.errors import UserError
from mapformers.modules.attention import HeadOptions
from mapformers.modules.layer import LAYERS
from mapformers.modules.movement import find_movements

each_and_hybrid = pytest.mark.parametrize("case", [*CASES, HYBRID, EVERYTHING], ids=str)
ATTENTION = [case for case in CASES if issubclass(LAYERS[case.name].options, HeadOptions)]
WITH_KEYS = [case for case in ATTENTION if case.options.get("softmax", True)]


@each_and_hybrid
@torch.no_grad()
def test_an_empty_state_is_as_good_as_none(case: Case):
    model, tokens = case.build(), draw_tokens(3, 5)
    empty = model.empty_state(batch_size=3)
    assert empty.past.length == 0
    assert_bitwise(model(tokens, state=empty), model(tokens))
    once, again = (model(tokens[:, :1], state=state, return_state=True)[1] for state in (empty, None))
    assert_bitwise(model(tokens[:, 1:], state=once), model(tokens[:, 1:], state=again))


@torch.no_grad()
def test_an_empty_state_has_every_tensor_that_a_later_one_has():
    model = EVERYTHING.build()
    _, later = model(draw_tokens(2, 4), return_state=True)
    for before, after in zip(model.empty_state(2).layers, later.layers, strict=True):
        assert type(before) is type(after)
        for name, start, tensor in zip(before._fields, before, after, strict=True):
            assert (start is None) == (tensor is None), name
            if start is not None:
                grown = [a for a, b in zip(start.shape, tensor.shape) if a != b]
                assert start.dtype == tensor.dtype and grown in ([], [0]), name
    with pytest.raises(UserError, match="batch_size must be at least 1"):
        model.empty_state(0)


@pytest.mark.parametrize("case", ATTENTION, ids=str)
@torch.no_grad()
def test_a_temperature_is_that_of_the_model(case: Case):
    """As if it had been built so; its gates, and whatever else is not a final logit, stay."""
    tokens, warm = draw_tokens(2, 7), case.options.get("attn_temperature", 1.0)
    own = Case(case.name, {**case.options, "attn_temperature": 3 * warm}).build()
    assert_same(case.build().observe(tokens, temperature=3.0).logits, own(tokens))


@pytest.mark.parametrize("case", [case for case in CASES if find_movements(case.build())], ids=str)
@torch.no_grad()
def test_a_token_whose_movement_is_scaled_to_zero_stays_where_it_was(case: Case):
    model, tokens = case.build(n_layers=1), draw_tokens(2, 6)
    still = torch.ones(2, 6)
    still[:, 3] = 0
    plain, seen = model.observe(tokens), model.observe(tokens, movement_scale=still)
    place = "coordinate" if "coordinate" in seen[0] else "rotation"
    assert_same(seen[0][place][:, 3], seen[0][place][:, 2])
    assert_bitwise(seen[0]["delta_in"][:, 3], torch.zeros_like(seen[0]["delta_in"][:, 3]))
    assert_same(seen.logits[:, :3], plain.logits[:, :3])
    assert not torch.allclose(seen.logits[:, 3:], plain.logits[:, 3:])
    pieces, state = [], None
    for token, scale in zip(tokens.split(1, dim=1), still.split(1, dim=1)):
        one = model.observe(token, state=state, movement_scale=scale)
        pieces.append(one.logits)
        state = one.state
    assert_same(torch.cat(pieces, dim=1), seen.logits)


@pytest.mark.parametrize("case", WITH_KEYS, ids=str)
@torch.no_grad()
def test_a_hidden_token_is_not_attended_to(case: Case):
    model, tokens = case.build(n_layers=1), draw_tokens(2, 8)
    state = model.observe(tokens[:, :6]).state
    hidden = state.hiding([1, 4])
    seen = model.observe(tokens[:, 6:], state=hidden)
    attention = seen[0]["attention"]
    assert (attention[..., [1, 4]] == 0).all()
    one_by_one = model.observe(tokens[:, 7:], state=model.observe(tokens[:, 6:7], state=hidden).state)
    assert_same(one_by_one.logits, seen.logits[:, 1:])
    assert_bitwise(model.observe(tokens[:, 6:], state=state.hiding([])).logits, model(tokens[:, 6:], state=state))
    with pytest.raises(UserError, match=r"\[6\] cannot be hidden"):
        state.hiding([6])
