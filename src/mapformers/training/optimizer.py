"""AdamW with decay on matrices only, and the learning rate over time."""

import math

import torch
from torch import nn

from mapformers.training.config import TrainConfig


def build_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW in groups: matrices decay, gains, velocities ω and origins do not; the path may start to learn late."""
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for module in model.modules():
        exempt: set[str] = getattr(module, "no_decay", set())
        late: bool = getattr(module, "learns_late", False)
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad:
                decays = parameter.dim() >= 2 and name not in exempt
                groups.setdefault((decays, late), []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": parameters, "weight_decay": config.weight_decay if decays else 0.0, "late": late}
            for (decays, late), parameters in groups.items()
        ],
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        fused=True,
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, step: int, config: TrainConfig) -> float:
    """Give every group its rate for a step; returns that of the groups that learn from the beginning."""
    rate = learning_rate(step, config)
    for group in optimizer.param_groups:
        group["lr"] = rate * (late_share(step, config) if group["late"] else 1.0)
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


def late_share(step: int, config: TrainConfig) -> float:
    """What share of the rate the path gets: none for path_delay steps, then a rise as long as the warm-up."""
    if step < config.path_delay:
        return 0.0
    return min(1.0, (step - config.path_delay + 1) / max(1, config.warmup_steps)) if config.path_delay else 1.0
