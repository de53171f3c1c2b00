"""Learn cognitive maps: transformers whose positional encoding is path-integrated from the tokens they read.

Examples:
    >>> import mapformers as mf
    >>> task = mf.build_task("navigation", dims=2)
    >>> model = mf.build_model("mapwm", vocab_size=task.vocab_size, d_model=64, n_layers=1, n_heads=1, rank=2)
    >>> scores = mf.evaluate(model, task, "iid", n_sequences=8)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from mapformers import analysis, evaluation, layers, lie, lm, players, seeding, training
    from mapformers.errors import UserError
    from mapformers.evaluation.evaluate import evaluate
    from mapformers.launch.reproduce import reproduce
    from mapformers.model import Decoder, build_model
    from mapformers.plugins import import_plugins
    from mapformers.registry import list_models, list_recipes, list_tasks
    from mapformers.runs.config import RunConfig
    from mapformers.runs.run import Run, load
    from mapformers.tasks import Batch, Metric, Task, build_task
    from mapformers.training.train import resume, train

# Where each name lives. It is imported when it is first used, so that `import mapformers` itself takes no time.
_HOMES = {
    "Batch": "tasks",
    "Decoder": "model",
    "Metric": "tasks",
    "Run": "runs.run",
    "RunConfig": "runs.config",
    "Task": "tasks",
    "UserError": "errors",
    "build_model": "model",
    "build_task": "tasks",
    "evaluate": "evaluation",
    "import_plugins": "plugins",
    "list_models": "registry",
    "list_recipes": "registry",
    "list_tasks": "registry",
    "load": "runs.run",
    "reproduce": "launch.reproduce",
    "resume": "training",
    "train": "training",
}
_SUBMODULES = (
    "analysis",
    "benchmarks",
    "evaluation",
    "hf",
    "launch",
    "layers",
    "lie",
    "lm",
    "modules",
    "ops",
    "players",
    "recipes",
    "reports",
    "runs",
    "seeding",
    "tasks",
    "training",
)

__all__ = [
    "Batch",
    "Decoder",
    "Metric",
    "Run",
    "RunConfig",
    "Task",
    "UserError",
    "__version__",
    "analysis",
    "build_model",
    "build_task",
    "evaluate",
    "evaluation",
    "import_plugins",
    "layers",
    "lie",
    "list_models",
    "list_recipes",
    "list_tasks",
    "lm",
    "load",
    "players",
    "reproduce",
    "resume",
    "seeding",
    "train",
    "training",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib import metadata

        try:
            return metadata.version("mapformers")
        except metadata.PackageNotFoundError:  # the sources lie on the path, but nothing is installed
            return "unknown"
    if name in _SUBMODULES:
        return import_module(f"mapformers.{name}")
    if name in _HOMES:
        found = getattr(import_module(f"mapformers.{_HOMES[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'mapformers' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
