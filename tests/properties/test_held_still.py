"""Holding the path still: while it lasts no sequence drifts, and when it ends the movements stay what they were."""

import torch

import mapformers as mf
from mapformers.mixers.context import Context
from mapformers.mixers.path_integrator import PathIntegrator


def integrator() -> tuple[PathIntegrator, torch.Tensor, Context]:
    path = mf.build_model("mapwm", vocab_size=7, d_model=8, rank=2).layers[0].mixer.path
    x = torch.randn(4, 16, 8) + torch.randn(8)
    return path, x, Context(torch.zeros(4, 16, dtype=torch.long), recording={})


def movement(path: PathIntegrator, x: torch.Tensor, context: Context) -> torch.Tensor:
    path(x, None, context)
    return context.recording["delta_in"]


def test_the_mean_movement_is_zero_while_held_and_not_before():
    path, x, context = integrator()
    free = movement(path, x, context)
    path.driftless = True
    held = movement(path, x, context)
    assert free.mean(dim=(0, 1)).abs().min() > 1e-3
    assert held.mean(dim=(0, 1)).abs().max() < 1e-6
    torch.testing.assert_close(held - held.mean(dim=(0, 1)), free - free.mean(dim=(0, 1)))


def test_the_mean_gets_no_gradient():
    path, x, context = integrator()
    path.driftless = True
    theta, _ = path(x, None, context)
    (theta.cos() + theta.sin()).sum().backward()
    x_mean = x.mean(dim=(0, 1))
    toward_drift = path.w_in.grad @ (x_mean / x_mean.norm())
    path.driftless, path.w_in.grad = False, None
    theta, _ = path(x, None, context)
    (theta.cos() + theta.sin()).sum().backward()
    assert toward_drift.abs().max() < 0.5 * (path.w_in.grad @ (x_mean / x_mean.norm())).abs().max()


def test_letting_go_changes_nothing_and_the_drift_is_saved():
    path, x, context = integrator()
    path.driftless = True
    for _ in range(200):
        held = movement(path, x, context)
    path.driftless = False
    torch.testing.assert_close(movement(path, x, context), held, atol=1e-5, rtol=0)
    assert path.state_dict()["drift"].abs().max() > 1e-3


def test_padding_does_not_count():
    path, x, context = integrator()
    path.driftless = True
    real = torch.ones(4, 16, dtype=torch.bool)
    real[:, 10:] = False
    padded = Context(context.tokens, padding_mask=real, recording={})
    assert movement(path, x, padded)[:, :10].mean(dim=(0, 1)).abs().max() < 1e-6


def test_a_model_that_is_measured_is_not_held_and_not_changed():
    model = mf.build_model("mapwm", vocab_size=7, d_model=8)
    path = model.layers[0].mixer.path
    tokens = torch.randint(0, 7, (4, 16))
    free = model.eval()(tokens)
    path.driftless = True
    torch.testing.assert_close(model(tokens), free, atol=0, rtol=0)
    model.train().observe(tokens)
    assert model.training and path.drift.abs().max() == 0
    model(tokens)
    assert path.drift.abs().max() > 0
