"""What a recipe is: the rows and columns of a table, the paper's figures, and the runs that fill it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mapformers.config import from_dict, to_dict
from mapformers.errors import unknown
from mapformers.model import model_config, suggested_settings
from mapformers.registry import Registry
from mapformers.tasks import TASKS
from mapformers.training.config import TrainConfig
from mapformers.training.run import RunConfig

Paper = tuple[float, float]  # mean and ± as printed


@dataclass(frozen=True)
class Row:
    """A model of the table: a registered name, its sizes and options, and training settings of its own."""

    label: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """A table: every row is trained once per world and seed, and measured on the splits of that world."""

    name: str
    summary: str
    task: str
    worlds: Mapping[str, Mapping[str, Any]]
    splits: Mapping[str, str]  # split -> column heading
    rows: Sequence[Row]
    paper: Mapping[tuple[str, str, str], Paper]  # (row, world, split) -> the printed figure
    metric: str = "accuracy"
    curves: bool = False  # whether the documents show how each run learned

    def row(self, label: str) -> Row:
        for row in self.rows:
            if row.label == label:
                return row
        raise unknown(f"row of {self.name!r}", label, [row.label for row in self.rows])

    def run_config(self, row: Row, world: str, seed: int, scale: str) -> RunConfig:
        """The run behind one cell of the table."""
        entry = TASKS[self.task]
        settings: Any = from_dict(entry.settings, self.worlds[world])
        task = entry.build(settings)
        options = {**suggested_settings(row.model, task.suggestions()), **row.options}
        model = model_config(row.model, vocab_size=task.vocab_size, **options)
        train = from_dict(TrainConfig, {**to_dict(task.training(scale)), **row.train})
        return RunConfig(self.task, settings, model, train, seed)


RECIPES: Registry[Recipe] = Registry("recipe")


def register_recipe(recipe: Recipe) -> Recipe:
    """Make a recipe known by name."""
    RECIPES.add(recipe.name, recipe)
    return recipe
