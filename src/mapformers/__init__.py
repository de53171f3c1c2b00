"""Learn cognitive maps: transformers whose positional encoding is path-integrated from the tokens they read.

>>> import mapformers as mf
>>> task = mf.build_task("navigation", dims=2)
>>> model = mf.build_model("mapwm", vocab_size=task.vocab_size, d_model=64, n_layers=1, n_heads=1, rank=2)
>>> scores = mf.evaluate(model, task, "iid", n_sequences=8)
"""

from mapformers import evaluation, lie, players
from mapformers.errors import UserError
from mapformers.evaluation import evaluate
from mapformers.mixers import LAYERS
from mapformers.model import Decoder, build_model
from mapformers.recipes import RECIPES
from mapformers.tasks import TASKS, Batch, Metric, Task, build_task


def list_models() -> list[str]:
    """Names that :func:`build_model` knows."""
    return LAYERS.names()


def list_tasks() -> list[str]:
    """Names that :func:`build_task` knows."""
    return TASKS.names()


def list_recipes() -> list[str]:
    """Tables and figures that can be run by name."""
    return RECIPES.names()


__all__ = [
    "Batch",
    "Decoder",
    "Metric",
    "Task",
    "UserError",
    "build_model",
    "build_task",
    "evaluate",
    "evaluation",
    "lie",
    "list_models",
    "list_recipes",
    "list_tasks",
    "players",
]
