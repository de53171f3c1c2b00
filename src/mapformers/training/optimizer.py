"""AdamW with decay on matrices only, and the learning rate over time."""

import math

import torch
from torch import nn

from mapformers.runs.config import TrainConfig


def build_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW in two groups: matrices decay; gains, velocities ω and origins do not."""
    decaying, plain = split_parameters(model)
    groups = [{"params": decaying, "weight_decay": config.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=config.lr, betas=(config.beta1, config.beta2), fused=True)


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
    """Give every group its rate for a step, and return it."""
    rate = learning_rate(step, config)
    for group in optimizer.param_groups:
        group["lr"] = rate
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
