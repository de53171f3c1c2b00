"""A decoder without values starts as a new one does: the way of the device `meta`, for every registered model."""

import pytest
import torch

from helpers import CASES, HYBRID, SIZES, Case, assert_bitwise
from mapformers import build_model
from mapformers.errors import UserError
from mapformers.model import Decoder
from mapformers.starts import reset_parameters, tensors


def built(case: Case, **settings: bool) -> Decoder:
    sizes = SIZES if case.name else {**SIZES, "n_layers": None}
    return build_model(case.name, **sizes, **case.options, **settings)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", [*CASES, HYBRID], ids=str)
@torch.no_grad()
def test_built_on_meta_a_decoder_starts_as_a_new_one(case: Case, dtype: torch.dtype):
    with torch.device("meta"):
        empty = built(case)
    assert all(tensor.is_meta for tensor in tensors(empty).values())
    filled = empty.to(dtype).to_empty(device="cpu")
    for tensor in tensors(filled).values():
        tensor.fill_(torch.nan if tensor.is_floating_point() else 77)
    torch.manual_seed(5)
    reset_parameters(filled)
    torch.manual_seed(5)
    assert_bitwise(tensors(filled), tensors(built(case).to(dtype)))


@torch.no_grad()
def test_a_tied_decoder_stays_tied():
    torch.manual_seed(5)
    wanted = built(CASES[0], tie_head=True)
    model = built(CASES[0], tie_head=True)
    torch.manual_seed(5)
    reset_parameters(model)
    assert_bitwise(tensors(model), tensors(wanted))
    tokens = torch.arange(8).view(2, 4)
    model.embedding.weight.mul_(2)
    wanted.embedding.weight.mul_(2)
    assert_bitwise(model(tokens), wanted(tokens))


def test_what_cannot_be_filled_is_refused():
    with torch.device("meta"):
        empty = built(CASES[0])
    with pytest.raises(UserError, match="give it memory first"):
        reset_parameters(empty)
    with pytest.raises(UserError, match="Give the decoder itself"):
        reset_parameters(torch.nn.Sequential(built(CASES[0])))


def test_what_is_learned_is_as_before():
    model = built(Case("mapwm", {"learn_omega": False}))
    reset_parameters(model)
    assert all(parameter.requires_grad != name.endswith("omega") for name, parameter in model.named_parameters())
    model(torch.zeros(1, 3, dtype=torch.long)).sum().backward()
