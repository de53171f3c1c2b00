"""`mapformers eval`: measure a trained run, or any model of one's own, on splits of a task."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from mapformers.cli.foreign import build_foreign, load_safetensors, require_answers
from mapformers.cli.output import print_json
from mapformers.cli.parse import parse
from mapformers.cli.rows import parse_words
from mapformers.cli.tables import player_table, split_table
from mapformers.cli.threads import use_threads
from mapformers.cli.train import plain_value
from mapformers.config import to_dict
from mapformers.errors import require
from mapformers.evaluation import evaluate_splits, player_scores, player_sequences
from mapformers.runs.config import ForeignModel
from mapformers.runs.folder import RunFolder
from mapformers.runs.run import load
from mapformers.tasks import Task, build_task
from mapformers.training.train import title_of

PROG = "mapformers eval"
DESCRIPTION = """Measure a trained run, or a model of your own, on a task's splits.

  mapformers eval runs/navigation-mapwm-seed0
  mapformers eval runs/navigation-mapwm-seed0 --splits iid ood-sparse --n-sequences 2048
  mapformers eval --model my_module:build --task navigation --set dims=2 --weights mine.safetensors
"""


@dataclass(frozen=True)
class Arguments:
    run_dir: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="[RUN]")] = None
    """The folder that `mapformers train` wrote."""
    model: Annotated[str | None, tyro.conf.arg(metavar="MODULE:FUNCTION")] = None
    """A model of your own: a function that returns a module from tokens to logits. The module is imported."""
    model_args: Annotated[str, tyro.conf.arg(metavar="NAME=VALUE,...")] = ""
    """What the function is given. It is given vocab_size too, if it takes one."""
    weights: Path | None = None
    """Weights of that model, as safetensors."""
    task: str | None = None
    """The task for that model: a name from `mapformers list tasks`."""
    settings: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="NAME=VALUE")] = ()
    """Settings of that task, such as dims=2 steps=64."""
    splits: tuple[str, ...] = ()
    """Names of splits (all of the task's unless given)."""
    n_sequences: int = 512
    """Sequences per split."""
    seed: int = 0
    """Seed of the sequences; 0 gives those of result.json."""
    threads: int | None = None
    """Threads to compute on (one per core unless given); fewer are faster where the cores are busy."""
    json: bool = False
    """Print one JSON document instead of tables."""


@dataclass(frozen=True)
class Subject:
    """What is measured; ``step``: after how many training steps, where that is known."""

    title: str
    model: Callable[..., Any]
    task: Task[Any]
    step: int | None = None


def main(args: Sequence[str]) -> int:
    asked = parse(Arguments, args, PROG, DESCRIPTION)
    require(asked.n_sequences >= 1, f"--n-sequences must be at least 1, not {asked.n_sequences}.")
    require(asked.seed >= 0, f"--seed must not be negative, but is {asked.seed}.")
    with use_threads(asked.threads):
        return measure(asked, own_model(asked) if asked.run_dir is None else trained_run(asked, asked.run_dir))


def measure(asked: Arguments, subject: Subject) -> int:
    task, n = subject.task, asked.n_sequences
    splits = evaluate_splits(subject.model, task, asked.splits, n, asked.seed)
    if not asked.json:
        Console().print(split_table(splits, subject.title))
    scores = player_scores(task, asked.splits, n, asked.seed)
    if asked.json:
        players = {name: {"n_sequences": player_sequences(n), "splits": found} for name, found in scores.items()}
        print_json(
            {
                "model": subject.title,
                "step": subject.step,
                "task": task.name,
                "settings": to_dict(task.settings),
                "n_sequences": n,
                "seed": asked.seed,
                "splits": splits,
                "players": players,
            }
        )
        return 0
    for player, found in scores.items():
        Console().print(player_table(player, found, n))
    return 0


def own_model(asked: Arguments) -> Subject:
    """A model of the user's own, on a task by name."""
    missing = "needs the folder that `mapformers train` wrote, or --model MODULE:FUNCTION and --task TASK"
    require(asked.model is not None, f"{PROG} {missing}; see `{PROG} --help`.")
    require(
        asked.task is not None, f"--task is missing; name the task to measure {asked.model} on, or see `{PROG} --help`."
    )
    assert asked.model is not None and asked.task is not None
    settings = {name: plain_value(value) for name, value in parse_words(asked.settings, "--set").items()}
    task = build_task(asked.task, **settings)
    _require_splits(task, asked.splits)
    model = build_foreign(asked.model, asked.model_args, task)
    if asked.weights is not None:
        load_safetensors(asked.weights, model)
    require_answers(model, task, asked.splits, asked.model)
    return Subject(f"{asked.model} on {asked.task}", model, task)


def trained_run(asked: Arguments, folder: Path) -> Subject:
    """A run, whose task and weights are its own; ``--model`` builds the model where that is the user's."""
    given = {"--task": asked.task, "--set": asked.settings, "--weights": asked.weights}
    extra = [option for option, value in given.items() if value]
    require(not extra, f"The run in {folder} has its own task and weights; leave out {' and '.join(extra)}.")
    _, config = RunFolder.open(folder)
    foreign = isinstance(config.model, ForeignModel)
    require(
        not foreign or asked.model is not None,
        f"The model of {folder} is your own {config.model_name}; name what builds it: --model MODULE:FUNCTION.",
    )
    built_here = f"The model of {folder} is {config.model_name}, which is built here; leave out --model."
    require(foreign or asked.model is None, built_here)
    require(asked.model is not None or not asked.model_args, "--model-args are for --model; give both or neither.")
    task = config.build_task()
    _require_splits(task, asked.splits)  # refused before anything is loaded
    model: Any = build_foreign(asked.model, asked.model_args, task) if asked.model else None
    run = load(folder, model)
    if asked.model is not None:
        require_answers(run.model, task, asked.splits, asked.model)
    for fault in run.faults:
        Console(stderr=True).print(fault, highlight=False, soft_wrap=True)
    return Subject(f"{title_of(run.config)}, step {run.step}", run.model, run.task, run.step)


def _require_splits(task: Task[Any], splits: Sequence[str]) -> None:
    for split in splits:
        task.split_settings(split)
