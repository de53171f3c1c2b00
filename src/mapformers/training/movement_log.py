"""How far tokens move on the map while a model learns: ‖Δ_t‖ of actions and of all other tokens (paper, C.1)."""

from typing import Any

import torch
from torch import nn

from mapformers.model import Decoder
from mapformers.modules.movement import find_movements
from mapformers.tasks import Task

MAX_TOKENS = 4096  # of a vocabulary that is looked at; a text has more, and no actions


def movement_sizes(model: nn.Module, task: Task[Any]) -> dict[str, float]:
    """The mean ‖Δ_t‖, after W_out and over all heads, of the task's actions and of its other tokens.

    Every token is read alone, by the first layer that moves. Nothing is drawn at random and no gradient is kept, so
    training goes on bit for bit as if nobody had looked. Empty where there is nothing to tell: a model without
    movements, one of the user's own, a task in which all tokens are actions or none is.
    """
    actions = sorted(set(task.action_ids))
    others = sorted(set(range(task.vocab_size)) - set(actions))
    told = actions and others and task.vocab_size <= MAX_TOKENS
    if not told or not isinstance(model, Decoder) or not find_movements(model):
        return {}
    device = model.embedding.weight.device
    seen = model.observe(torch.arange(task.vocab_size, device=device).unsqueeze(1))
    durations = next(notes["delta_out"] for notes in seen if "delta_out" in notes)
    sizes = durations[:, 0].flatten(1).double().norm(dim=1).cpu()
    return {"delta_actions": float(sizes[actions].mean()), "delta_observations": float(sizes[others].mean())}
