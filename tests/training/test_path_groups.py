"""A rate and a decay of the path's own: who gets them, and that nothing changes where they are not asked for."""

import pytest
import torch

import mapformers as mf
from mapformers.errors import UserError
from mapformers.runs.config import TrainConfig
from mapformers.training.optimizer import build_optimizer, set_learning_rate, split_parameters

PATH = {"w_in", "w_out", "omega"}


def optimizer_of(name, **settings):
    torch.manual_seed(0)
    model = mf.build_model(name, vocab_size=21, d_model=32, n_heads=2, n_layers=2)
    return model, build_optimizer(model, TrainConfig(lr=0.1, warmup_steps=0, weight_decay=0.5, **settings))


def test_by_default_there_are_two_groups_in_their_old_order():
    model, optimizer = optimizer_of("mapwm")
    assert [group["params"] for group in optimizer.param_groups] == list(split_parameters(model))
    assert set_learning_rate(optimizer, 0, TrainConfig(lr=0.1, warmup_steps=0)) == 0.1
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.1]


@pytest.mark.parametrize("name", ["mapwm", "mapem", "mapwm-nc", "mampa"])
def test_the_path_has_its_share_of_the_rate_and_of_the_decay(name):
    model, optimizer = optimizer_of(name, path_lr=0.25, path_decay=0.0)
    names = {parameter: name for name, parameter in model.named_parameters()}
    set_learning_rate(optimizer, 0, TrainConfig(lr=0.1, warmup_steps=0))
    seen = set()
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            seen.add(parameter)
            own = ".path." in names[parameter]
            assert own == (names[parameter].split(".")[-1] in PATH)
            assert group["lr"] == (0.025 if own else 0.1)
            assert group["weight_decay"] in ((0.0,) if own else (0.0, 0.5))
    assert seen == {p for p in model.parameters() if p.requires_grad}


def test_a_model_without_a_path_has_no_empty_group():
    model, optimizer = optimizer_of("rope", path_lr=0.1)
    assert [group["params"] for group in optimizer.param_groups] == list(split_parameters(model))


def test_with_a_rate_of_nothing_a_path_stays_as_it_starts():
    model, optimizer = optimizer_of("mapwm", path_lr=0.0, path_decay=0.0)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    set_learning_rate(optimizer, 0, TrainConfig(lr=0.1, warmup_steps=0))
    model(torch.arange(5).unsqueeze(0)).square().mean().backward()
    optimizer.step()
    stayed = {name for name, parameter in model.named_parameters() if torch.equal(parameter, before[name])}
    assert stayed == {name for name in before if ".path." in name}


def test_shares_that_cannot_be_are_refused():
    with pytest.raises(UserError, match="path_lr must not be negative, but is -1"):
        TrainConfig(path_lr=-1.0)
    with pytest.raises(UserError, match="path_decay must not be negative, but is -1"):
        TrainConfig(path_decay=-1.0)
