"""Weight decay touches matrices only, and the learning rate follows its closed form."""

import math

import pytest
import torch
from torch import nn

import mapformers as mf
from mapformers.modules.layer import LAYERS
from mapformers.runs.config import TrainConfig
from mapformers.training.optimizer import build_optimizer, learning_rate, set_learning_rate, split_parameters

EXEMPT = {"omega", "gain", "query_origin", "key_origin", "A_log", "rate_log", "decay_log"}
VARIANTS = [(name, variant) for name in LAYERS for variant in LAYERS[name].variants]


def build(name, variant):
    return mf.build_model(name, vocab_size=21, d_model=16, n_heads=2, n_layers=2, **variant)


@pytest.mark.parametrize(("name", "variant"), VARIANTS, ids=str)
def test_every_trained_parameter_is_in_one_group(name, variant):
    model = build(name, variant)
    decaying, plain = split_parameters(model)
    found = [id(p) for p in (*decaying, *plain)]
    assert len(found) == len(set(found))
    assert set(found) == {id(p) for p in model.parameters() if p.requires_grad}


@pytest.mark.parametrize(("name", "variant"), VARIANTS, ids=str)
def test_decay_is_on_matrices_less_what_a_module_exempts(name, variant):
    model = build(name, variant)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decaying, plain = split_parameters(model)
    for parameter in decaying:
        assert parameter.dim() >= 2
        assert names[id(parameter)].split(".")[-1] not in EXEMPT
    for parameter in plain:
        assert parameter.dim() < 2 or names[id(parameter)].split(".")[-1] in EXEMPT


def test_the_groups_of_mapem_by_name():
    model = mf.build_model("mapem", vocab_size=21, d_model=16, project_position=True)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decaying, plain = ({names[id(p)] for p in group} for group in split_parameters(model))
    mixer = "layers.0.mixer."
    assert plain == {
        *(f"{mixer}{name}" for name in ("path.omega", "query_origin", "key_origin")),
        *(f"{name}.gain" for name in ("norm", "layers.0.norm_mixer", "layers.0.norm_mlp")),
    }
    assert decaying == {
        "embedding.weight",
        "head.weight",
        *(f"layers.0.mlp.{name}.weight" for name in ("up", "down")),
        *(f"{mixer}{name}" for name in ("path.w_in", "path.w_out", "projection")),
        *(f"{mixer}heads.{name}.weight" for name in ("project", "out")),
    }


def test_a_step_without_gradient_shrinks_matrices_and_nothing_else():
    """AdamW's decoupled decay is then all that happens: p ← p · (1 − lr · weight_decay)."""
    model = mf.build_model("mapem", vocab_size=21, d_model=16)
    config = TrainConfig(lr=0.1, weight_decay=0.5)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = build_optimizer(model, config)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        kept = 1.0 if name.split(".")[-1] in EXEMPT else 1 - 0.1 * 0.5
        torch.testing.assert_close(parameter.detach(), before[name] * kept, rtol=1e-6, atol=0)


def test_a_frozen_parameter_is_left_out():
    model = mf.build_model("mapwm", vocab_size=21, d_model=16, learn_omega=False)
    omega = model.layers[0].mixer.path.omega
    assert all(p is not omega for group in split_parameters(model) for p in group)


def test_adamw_gets_the_settings_asked_for():
    optimizer = build_optimizer(nn.Linear(2, 2), TrainConfig(lr=0.25, beta1=0.5, beta2=0.75, weight_decay=0.125))
    matrices, rest = optimizer.param_groups
    assert (matrices["lr"], matrices["betas"]) == (rest["lr"], rest["betas"]) == (0.25, (0.5, 0.75))
    assert (matrices["weight_decay"], rest["weight_decay"]) == (0.125, 0)


def config_of(schedule, **settings):
    return TrainConfig(
        **{"sequences": 100, "batch_size": 1, "lr": 0.5, "warmup_steps": 20} | settings, schedule=schedule
    )


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant"])
def test_warm_up_rises_in_equal_parts_to_the_peak(schedule):
    config = config_of(schedule)
    rates = [learning_rate(step, config) for step in range(21)]
    assert rates[:20] == pytest.approx([0.5 * k / 20 for k in range(1, 21)], rel=1e-12)
    assert rates[20] == max(learning_rate(step, config) for step in range(100)) == 0.5


@pytest.mark.parametrize("final", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("warmup", [0, 20])
def test_linear_falls_on_a_straight_line(final, warmup):
    config = config_of("linear", final_lr=final, warmup_steps=warmup)
    for step in range(warmup, 101):
        line = 0.5 + (step - warmup) * (0.5 * final - 0.5) / (100 - warmup)
        assert learning_rate(step, config) == pytest.approx(line, rel=1e-12, abs=1e-15)
    assert learning_rate(100, config) == pytest.approx(0.5 * final, abs=1e-15)


@pytest.mark.parametrize("final", [0.0, 0.1, 1.0])
def test_cosine_falls_on_half_a_cosine(final):
    config = config_of("cosine", final_lr=final)
    for step in range(20, 101):
        wave = 0.5 * final + (0.5 - 0.5 * final) * math.cos(math.pi * (step - 20) / 160) ** 2
        assert learning_rate(step, config) == pytest.approx(wave, rel=1e-12, abs=1e-15)
    assert learning_rate(60, config) == pytest.approx(0.25 * (1 + final))
    assert learning_rate(100, config) == pytest.approx(0.5 * final, abs=1e-15)


def test_constant_stays_at_the_peak():
    assert {learning_rate(step, config_of("constant")) for step in range(20, 100)} == {0.5}


@pytest.mark.parametrize(("sequences", "batch_size", "steps"), [(100, 10, 10), (109, 10, 10), (5, 10, 1)])
def test_the_budget_is_in_whole_batches(sequences, batch_size, steps):
    assert TrainConfig(sequences=sequences, batch_size=batch_size).steps == steps


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"sequences": 0}, "sequences must be at least 1"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1"),
        ({"lr": 0.0}, "lr must be above 0"),
        ({"lr": float("nan")}, "lr must be a finite number"),
        ({"clip": 0.0}, "clip must be above 0"),
        ({"warmup_steps": -1}, "warmup_steps must not be negative"),
        ({"weight_decay": -0.1}, "weight_decay must not be negative"),
        ({"beta2": 1.0}, r"beta2 must lie in \[0, 1\)"),
        ({"final_lr": 1.5}, "final_lr is a share"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_settings_are_refused_in_one_sentence(wrong, sentence):
    with pytest.raises(mf.UserError, match=sentence):
        TrainConfig(**wrong)


def test_every_group_gets_the_rate_of_the_step():
    config = config_of("linear")
    optimizer = build_optimizer(mf.build_model("mapwm", vocab_size=21, d_model=16), config)
    for step in (0, 19, 50, 99):
        assert set_learning_rate(optimizer, step, config) == learning_rate(step, config)
        assert {group["lr"] for group in optimizer.param_groups} == {learning_rate(step, config)}
