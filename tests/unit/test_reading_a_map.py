"""Reading the map of a model: what there is to read, and why there is none where there is none."""

import pytest
import torch

import mapformers as mf

TOKENS = torch.arange(5)


@pytest.mark.parametrize("name", ["mapwm", "mapem"])
def test_a_path_that_is_a_sum_has_coordinates(name):
    model = mf.build_model(name, vocab_size=5, d_model=16, rank=2)
    assert mf.analysis.walked_path(model, TOKENS).shape == (5, 2)
    assert mf.analysis.token_movements(model).shape == (5, 2)


@pytest.mark.parametrize("name", ["mapwm-nc", "mapem-nc"])
def test_a_path_of_products_has_movements_but_no_coordinates_and_says_so(name):
    model = mf.build_model(name, vocab_size=5, d_model=16, rank=2)
    assert mf.analysis.token_movements(model).shape == (5, 2)
    with pytest.raises(
        mf.UserError, match=rf"\({name}\) has no coordinate: its path is a product of matrices, not a sum"
    ):
        mf.analysis.walked_path(model, TOKENS)


def test_places_that_matrices_move_are_products_too():
    model = mf.build_model("tem-t", vocab_size=5, d_model=16, action_ids=(0, 1))
    with pytest.raises(mf.UserError, match="has no delta_in: its path is a product of matrices, not a sum"):
        mf.analysis.token_movements(model)


def test_without_a_path_there_is_none():
    model = mf.build_model("rope", vocab_size=5, d_model=16)
    with pytest.raises(mf.UserError, match=r"Layer 0 \(rope\) has no coordinate: it does not integrate a path"):
        mf.analysis.walked_path(model, TOKENS)
