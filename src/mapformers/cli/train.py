"""`mapformers train`: a model on a task, into a run folder."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from mapformers.cli.parse import parse, parse_known, without_help
from mapformers.cli.tables import split_table
from mapformers.config import to_dict
from mapformers.errors import require
from mapformers.evaluation import scores_beside
from mapformers.mixers import LAYERS
from mapformers.model import model_config, suggested_settings
from mapformers.tasks import TASKS
from mapformers.training.backend import Backend, is_main_process
from mapformers.training.config import TrainConfig
from mapformers.training.loop import resume, train
from mapformers.training.run import RunConfig, RunFolder

PROG = "mapformers train"
DESCRIPTION = """Train a model on a task.

  mapformers train --task navigation --model mapwm
  mapformers train --task navigation --dims 1 --model rope --n-layers 4 --n-heads 2 --d-model 128 --seed 3
  mapformers train --task navigation --model mapwm --resume

Name a task and a model, then --help, to see the settings of both.
"""
Scale = Literal["smoke", "cpu", "paper"]


@dataclass(frozen=True)
class Choice:
    """What to train, how much, and where to."""

    task: str
    """A name from `mapformers list tasks`."""
    model: str
    """A name from `mapformers list models`."""
    scale: Scale = "cpu"
    """smoke: seconds, to see that it runs; cpu: minutes on a laptop; paper: the paper's own budget."""
    seed: int = 0
    """Of the initialisation and of all data."""
    out: Path | None = None
    """Run folder (runs/TASK-MODEL-seedN unless given)."""
    resume: bool = False
    """Go on with the run in that folder from its newest checkpoint."""

    @property
    def folder(self) -> Path:
        return self.out or Path("runs") / f"{self.task}-{self.model}-seed{self.seed}"


@dataclass(frozen=True)
class Sizes:
    """The decoder."""

    d_model: int = 64
    """Width of the residual stream."""
    n_layers: int = 1
    """Number of layers."""
    n_heads: int = 1
    """Attention heads."""
    head_dim: int | None = None
    """Size of a head (None: d_model / n_heads)."""
    mlp_ratio: int = 4
    """Width of the MLP over d_model."""


def main(args: Sequence[str]) -> int:
    if not {"--task", "--model"} <= {arg.split("=")[0] for arg in args}:
        parse(Choice, args, PROG, DESCRIPTION)  # --help, or what is missing
    choice, config = run_config(args)
    console = Console(stderr=True)
    title = f"{choice.model} on {choice.task}"
    if choice.resume:
        check_same_run(choice, config, args)
        result = resume(choice.folder, console, title)
    else:
        result = train(config, choice.folder, console, title)
    if not is_main_process():
        return 0
    _, config = RunFolder.open(choice.folder)  # a resumed run has settings of its own
    Console().print(split_table(result["splits"], f"{title}, seed {config.seed}"))
    for player, scores in scores_beside(config.build_task(), None, config.train.final_sequences).items():
        Console().print(split_table(scores, f"player: {player}"))
    console.print(f"Run folder: {choice.folder}", highlight=False, soft_wrap=True)
    return 0


def run_config(args: Sequence[str]) -> tuple[Choice, RunConfig]:
    """The run that a command line asks for. Names first, then the settings those names bring with them."""
    quiet = without_help(args)
    choice = parse_known(Choice, quiet, PROG)
    task_entry, layer = TASKS[choice.task], LAYERS[choice.model]
    task = task_entry.build(parse_known(task_entry.settings, quiet, PROG))
    suggested = suggested_settings(choice.model, task.suggestions())
    sizes = {key: suggested.pop(key) for key in list(suggested) if key in Sizes.__dataclass_fields__}

    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = [
        ("choice", Choice),
        ("task_settings", task_entry.settings, task_entry.settings()),
        ("sizes", Sizes, Sizes(**sizes)),
        ("model_options", layer.options, layer.options(**suggested)),
        ("training", TrainConfig, task.training(choice.scale)),
        ("backend", Backend, Backend()),
    ]
    everything = dataclasses.make_dataclass("Train", fields, frozen=True)
    chosen: Any = parse(everything, args, PROG, DESCRIPTION)
    settings = {**to_dict(chosen.sizes), **to_dict(chosen.model_options)}
    model = model_config(choice.model, vocab_size=task.vocab_size, **settings)
    return choice, RunConfig(choice.task, chosen.task_settings, model, chosen.training, choice.seed, chosen.backend)


def check_same_run(choice: Choice, config: RunConfig, args: Sequence[str]) -> None:
    """A run goes on with the settings it was started with: others on the command line are refused, not ignored."""
    _, started = RunFolder.open(choice.folder)
    names = (started.task, started.model.layers[0].name, started.seed)
    require(
        names == (choice.task, choice.model, choice.seed),
        f"{choice.folder} holds a run of {names[1]} on {names[0]} with seed {names[2]}; name those to resume it.",
    )
    own = {f"--{name}" for name in ("task", "model", "seed", "out", "resume")}
    given = [arg.split("=")[0] for arg in args if arg.startswith("--") and arg.split("=")[0] not in own]
    require(
        not given or config == started,
        f"{choice.folder} was started with other settings; resume it without {' '.join(given)}.",
    )
