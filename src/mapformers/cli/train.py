"""`mapformers train`: a model on a task, into a run folder."""

import argparse
import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from mapformers.cli.differences import differences
from mapformers.cli.moved_text import with_its_text
from mapformers.cli.parse import given_flags, parse
from mapformers.cli.tables import player_table, split_table
from mapformers.cli.threads import use_threads
from mapformers.errors import require
from mapformers.evaluation import player_scores
from mapformers.model import LayerSpec
from mapformers.modules.layer import LAYERS
from mapformers.runs import checkpoint
from mapformers.runs.config import Backend, RunConfig, Scale, TrainConfig
from mapformers.runs.folder import RunFolder
from mapformers.tasks import TASKS
from mapformers.training.backend import is_main_process
from mapformers.training.train import default_folder, resume_run, start_run, title_of

PROG = "mapformers train"
DESCRIPTION = """Train a model on a task.

  mapformers train --task navigation --model mapwm
  mapformers train --task navigation --dims 1 --model rope --n-layers 4 --n-heads 2 --d-model 128 --seed 3
  mapformers train --task navigation --layers mapem mapwm:rank=4
  mapformers train --resume --out runs/navigation-mapwm-seed0

Name a task and a model, then --help, to see the settings of both.
"""


@dataclass(frozen=True)
class Choice:
    """What to train, for how long, and where the run is written."""

    task: str | None = None
    """A name from `mapformers list tasks`."""
    model: str | None = None
    """A name from `mapformers list models`."""
    layers: tuple[str, ...] = ()
    """Instead of a model: the layers of a hybrid, each NAME or NAME:OPTION=VALUE,OPTION=VALUE."""
    scale: Scale = "cpu"
    """smoke: seconds, to see that it runs; cpu: minutes on a laptop; paper: the paper's own budget."""
    seed: int = 0
    """Seed of the initialisation and of all data."""
    out: Path | None = None
    """Run folder (runs/TASK-MODEL-seedN unless given)."""
    resume: bool = False
    """Continue the run in that folder from its newest checkpoint; if there is none yet, start it."""
    overwrite: bool = False
    """Start anew although the folder holds a run; its files are removed, and no others."""
    snapshots: int = 0
    """How many snapshots of the weights to keep while training, for `mapformers analyze --frames`."""
    threads: int | None = None
    """Threads to compute on (unless given, one per core, or as many as before with --resume)."""


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
    tie_head: bool = False
    """Whether one matrix is both embedding and head."""


def main(args: Sequence[str]) -> int:
    asked = parse_train(args)
    with use_threads(asked.choice.threads):
        return train_asked(asked)


def train_asked(asked: "Asked") -> int:
    choice, console = asked.choice, Console(stderr=True)
    if choice.resume:
        named = choice.out is not None or choice.task is not None
        require(named, f"Name the run to resume: --resume --out RUN, or its {asked.named_by} with --resume.")
        require(not choice.overwrite, "--resume continues a run and --overwrite starts it anew; give one of them.")
    composed = asked.compose() if choice.out is None else None
    folder = choice.out or default_folder(composed or asked.compose())
    if choice.resume and has_something_to_resume(folder, asked):
        config = check_same_run(folder, asked)
        with use_threads(threads_of(folder, choice)):
            result = resume_run(folder, console, snapshots=choice.snapshots)
    else:
        config = composed or asked.compose()
        result = start_run(config, folder, console, overwrite=choice.overwrite, snapshots=choice.snapshots)
    if not is_main_process():
        return 0
    Console().print(split_table(result["splits"], f"{title_of(config)}, seed {config.seed}"))
    for player, scores in player_scores(config.build_task(), None, config.train.final_sequences).items():
        Console().print(player_table(player, scores, config.train.final_sequences))
    console.print(f"Run folder: {folder}", highlight=False, soft_wrap=True)
    return 0


@dataclass(frozen=True)
class Asked:
    """A command line, parsed: what to train, and every setting that was given.

    ``prog``      the command that it is of.
    ``defaults``  what a preset has, under the settings that were given (`RunConfig.compose`).
    """

    choice: Choice
    overrides: dict[str, Any]
    given: frozenset[str] = frozenset()
    prog: str = PROG
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def named_by(self) -> str:
        """The options that say which run it is."""
        return "--task and --model" if self.prog == PROG else "--data and --model"

    def compose(self) -> RunConfig:
        choice = self.choice
        require(choice.task is not None, f"--task is missing; see `{self.prog} --help`.")
        require(choice.model is not None or bool(choice.layers), f"--model is missing; see `{self.prog} --help`.")
        assert choice.task is not None
        layers = [layer_spec(text) for text in choice.layers] or None
        return RunConfig.compose(
            choice.task,
            choice.model,
            choice.scale,
            layers=layers,
            seed=choice.seed,
            defaults=self.defaults,
            **self.overrides,
        )


def parse_train(args: Sequence[str]) -> Asked:
    """One passage of the parser, once the names that decide which settings there are have been looked up."""
    names = peek(args)
    if not ({"-h", "--help", "--resume"} & set(args)):
        require(names.task is not None, f"--task is missing; see `{PROG} --help`.")
        require(names.model is not None or bool(names.layers), f"--model is missing; see `{PROG} --help`.")
    groups: list[tuple[str, Any] | tuple[str, Any, Any]] = [("choice", Choice)]
    named = ""
    if names.task is not None and (names.model is not None or names.layers):
        groups += settings_groups(names, {})
        named = f"--task {names.task} {model_words(names)}"
    everything = dataclasses.make_dataclass("Train", groups, frozen=True)
    parsed: Any = parse(everything, args, PROG, DESCRIPTION, named)
    given = given_flags(args)
    settings = {
        name: value for group in groups[1:] for name, value in vars(getattr(parsed, group[0])).items() if name in given
    }
    return Asked(parsed.choice, settings, frozenset(given))


def model_words(names: argparse.Namespace) -> str:
    """The model as it was named on the command line."""
    return f"--model {names.model}" if names.model is not None else f"--layers {' '.join(names.layers)}"


def settings_groups(names: argparse.Namespace, defaults: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """The settings that a task and a model bring with them; the task's suggestions, and ``defaults`` over them, as
    their values unless given."""
    settings = TASKS[names.task].settings
    unless_given = settings(**_of(settings, defaults))
    suggested = TASKS[names.task].build(unless_given)
    known = {**suggested.suggestions(), **defaults}
    scale = names.scale if names.scale in ("smoke", "cpu", "paper") else "cpu"
    groups: list[tuple[str, Any, Any]] = [
        ("task_settings", settings, unless_given),
        ("training", TrainConfig, TrainConfig(**{**suggested.training(scale), **_of(TrainConfig, defaults)})),
        ("backend", Backend, Backend(**_of(Backend, defaults))),
        ("sizes", Sizes, Sizes(**_of(Sizes, known))),
    ]
    if names.model is None:
        return groups
    options = LAYERS[names.model].options
    return [*groups, ("model_options", options, options(**_of(options, known)))]


def _of(config: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name in config.__dataclass_fields__}


def peek(args: Sequence[str]) -> argparse.Namespace:
    """The names on a command line that decide which other settings there are."""
    names = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    for name in ("--task", "--model", "--scale", "--preset"):
        names.add_argument(name, nargs="?")
    names.add_argument("--layers", nargs="*", default=[])
    return names.parse_known_args(list(args))[0]


def layer_spec(text: str) -> LayerSpec:
    """``mapwm:rank=4,learn_omega=false`` -> ("mapwm", {"rank": 4, "learn_omega": False})."""
    name, _, rest = text.partition(":")
    options: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        require(bool(equals), f"A layer of a hybrid is NAME or NAME:OPTION=VALUE, not {text!r}.")
        options[key.replace("-", "_")] = plain_value(value)
    return name, options


def plain_value(text: str) -> Any:
    """A word as the number, truth value, None or word that it spells."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def has_something_to_resume(folder: Path, asked: Asked) -> bool:
    """Whether a run is there to go on with; one without a checkpoint is started again by a command that names it."""
    run, choice = RunFolder(folder), asked.choice
    named = choice.task is not None and (choice.model is not None or bool(choice.layers))
    unnamed = f"{folder} is not a run folder yet: to start a run there, name its {asked.named_by}."
    require(named or run.config_file.exists(), unnamed)
    return run.has_checkpoint() or not named


def threads_of(folder: Path, choice: Choice) -> int | None:
    """As many as the run was computed on so far, unless the user says otherwise or the machine has fewer cores."""
    said = choice.threads is not None or "OMP_NUM_THREADS" in os.environ
    before = None if said else checkpoint.threads(folder / "checkpoints")
    return before if before is not None and before <= (os.cpu_count() or 1) else None


def check_same_run(folder: Path, asked: Asked) -> RunConfig:
    """A run goes on with the settings it was started with: others on the command line are refused, not ignored."""
    _, started = RunFolder.open(folder)
    choice = asked.choice
    same = choice.task in (None, started.task) and (choice.model in (None, started.model_name))
    seeded = choice.task is not None or "seed" in asked.given
    require(
        same and (not seeded or choice.seed == started.seed),
        f"{folder} holds a run of {started.model_name} on {started.task} with seed {started.seed}; "
        "name those to resume it.",
    )
    named = choice.task is not None and (choice.model is not None or bool(choice.layers))
    overrides = [name for name in asked.overrides if named or name != "data"]  # which says where a text is now
    decide = [*overrides, *(name for name in ("layers", "scale", "preset") if name in asked.given)]
    given = sorted(f"--{name.replace('_', '-')}" for name in decide)
    require(not given or named, f"A resumed run keeps its own settings; resume {folder} without {' '.join(given)}.")
    here = with_its_text(folder, started, asked.overrides.get("data"))
    other = differences(here, asked.compose()) if given else ""
    require(not other, f"{folder} was started with {other}; resume it with --resume --out {folder} alone.")
    if here != started:
        RunFolder(folder).replace_config(here)
    return here
