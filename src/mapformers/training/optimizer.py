"""AdamW with decay on matrices only, and the learning rate over time."""

import math
from typing import Any

import torch
from torch import nn

from mapformers.modules.movement import find_movements
from mapformers.runs.config import TrainConfig

RATE_SHARE = "rate_share"  # of a group of parameters: its learning rate over that of the others


def build_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW in two groups: matrices decay; gains, velocities ω and origins do not.

    What makes a path (every parameter of a `Movement`) is in two more groups where its rate or decay is another.
    """
    decaying, plain = split_parameters(model)
    groups = [{"params": decaying, "weight_decay": config.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    if (config.path_lr, config.path_decay) != (1.0, 1.0):
        groups = [part for group in groups for part in _path_apart(group, model, config)]
    return torch.optim.AdamW(groups, lr=config.lr, betas=(config.beta1, config.beta2), fused=True)


def _path_apart(group: dict[str, Any], model: nn.Module, config: TrainConfig) -> list[dict[str, Any]]:
    """A group without the parameters of paths, and those with a rate and a decay of their own; neither is empty."""
    path = {parameter for movement in find_movements(model) for parameter in movement.parameters()}
    others = {**group, "params": [p for p in group["params"] if p not in path]}
    own = {
        "params": [p for p in group["params"] if p in path],
        "weight_decay": group["weight_decay"] * config.path_decay,
        RATE_SHARE: config.path_lr,
    }
    return [part for part in (others, own) if part["params"]]


def split_parameters(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """(those that decay, those that do not): matrices, less what a module names in its ``no_decay``."""
    decaying: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    seen: set[nn.Parameter] = set()  # a tied weight has several names
    for module in model.modules():
        exempt: set[str] = getattr(module, "no_decay", set())
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and parameter not in seen:
                seen.add(parameter)
                (decaying if parameter.dim() >= 2 and name not in exempt else plain).append(parameter)
    return decaying, plain


def set_learning_rate(optimizer: torch.optim.Optimizer, step: int, config: TrainConfig) -> float:
    """Give every group its rate for a step, and return the one that most have."""
    rate = learning_rate(step, config)
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get(RATE_SHARE, 1.0)
    return rate


def learning_rate(step: int, config: TrainConfig) -> float:
    """The rate at a step counted from 0: a linear rise to the peak, then the schedule down to final_lr · peak."""
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.lr
    done = (step - config.warmup_steps) / max(1, config.steps - config.warmup_steps)
    left = 1 - done if config.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
    return config.lr * (config.final_lr + (1 - config.final_lr) * left)
