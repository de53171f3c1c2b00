"""The mean movement held at zero: while it lasts nothing drifts, and when it ends the movements stay what they were."""

import torch
from torch import nn

import mapformers as mf
from mapformers.modules.context import Context
from mapformers.modules.movement import PathIntegrator
from mapformers.training import zero_mean_movement


def integrator() -> tuple[PathIntegrator, torch.Tensor, Context]:
    path = mf.build_model("mapwm", vocab_size=7, d_model=8, rank=2).layers[0].mixer.path
    x = torch.randn(4, 16, 8) + torch.randn(8)
    return path, x, Context.of(torch.zeros(4, 16, dtype=torch.long), recording={})


def movement(path: PathIntegrator, x: torch.Tensor, context: Context) -> torch.Tensor:
    path(x, None, context)
    return context.recording["delta_in"]


def test_the_mean_movement_is_zero_while_held_and_not_before():
    path, x, context = integrator()
    free = movement(path, x, context)
    zero_mean_movement(path, True)
    held = movement(path, x, context)
    assert free.mean(dim=(0, 1)).abs().min() > 1e-3
    assert held.mean(dim=(0, 1)).abs().max() < 1e-6
    torch.testing.assert_close(held - held.mean(dim=(0, 1)), free - free.mean(dim=(0, 1)))


def test_the_mean_gets_no_gradient():
    path, x, context = integrator()
    zero_mean_movement(path, True)
    theta, *_ = path(x, None, context)
    (theta.cos() + theta.sin()).sum().backward()
    x_mean = x.mean(dim=(0, 1))
    toward_mean = path.w_in.grad @ (x_mean / x_mean.norm())
    path.w_in.grad = None
    zero_mean_movement(path, False)
    theta, *_ = path(x, None, context)
    (theta.cos() + theta.sin()).sum().backward()
    assert toward_mean.abs().max() < 0.5 * (path.w_in.grad @ (x_mean / x_mean.norm())).abs().max()


def test_letting_go_changes_nothing_and_the_mean_is_saved():
    path, x, context = integrator()
    zero_mean_movement(path, True)
    for _ in range(200):
        held = movement(path, x, context)
    zero_mean_movement(path, False)
    torch.testing.assert_close(movement(path, x, context), held, atol=1e-5, rtol=0)
    assert path.state_dict()["mean"].abs().max() > 1e-3


def test_padding_does_not_count():
    path, x, context = integrator()
    zero_mean_movement(path, True)
    real = torch.ones(4, 16, dtype=torch.bool)
    real[:, 10:] = False
    padded = Context.of(context.tokens, padding_mask=real, recording={})
    assert movement(path, x, padded)[:, :10].mean(dim=(0, 1)).abs().max() < 1e-6


def test_a_model_that_is_measured_is_not_held_and_not_changed():
    model = mf.build_model("mapwm", vocab_size=7, d_model=8)
    path = model.layers[0].mixer.path
    tokens = torch.randint(0, 7, (4, 16))
    free = model.eval()(tokens)
    zero_mean_movement(model, True)
    torch.testing.assert_close(model(tokens), free, atol=0, rtol=0)
    model.train().observe(tokens)
    assert model.training and path.mean.abs().max() == 0
    model(tokens)
    assert path.mean.abs().max() > 0


def test_a_loop_of_ones_own_gets_the_model_that_train_makes(tmp_path):
    """What docs/training.md promises: these calls are all that `mf.train` does to a model besides stepping."""
    settings = {"sequences": 160, "batch_size": 16, "steps": 8, "grid": 4, "zero_mean_steps": 5, "warmup_steps": 3}
    run = mf.train("navigation", "mapwm", scale="smoke", out=tmp_path / "run", **settings)

    model, task, train = run.config.build_model(), run.task, run.config.train
    optimizer = mf.training.build_optimizer(model, train)
    for step in range(train.steps):
        mf.training.set_learning_rate(optimizer, step, train)
        mf.training.zero_mean_movement(model, step < train.zero_mean_steps)
        batch = task.sample("iid", train.batch_size, mf.seeding.generator(run.config.seed, "train", step))
        optimizer.zero_grad()
        task.loss(model(batch.tokens), batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), train.clip)
        optimizer.step()
    for name, weight in run.model.state_dict().items():
        assert torch.equal(weight, model.state_dict()[name]), name


def test_models_without_movements_are_left_alone():
    zero_mean_movement(nn.Linear(3, 3), True)
    zero_mean_movement(mf.build_model("rope", vocab_size=7), True)
