"""`mapformers lm train`: a language model on a prepared text. The same composer, trainer and run folder as `train`."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mapformers.cli.parse import given_flags, parse
from mapformers.cli.threads import use_threads
from mapformers.cli.train import Asked, Choice, model_words, peek, settings_groups, train_asked
from mapformers.errors import require
from mapformers.lm.presets import PRESETS, preset
from mapformers.runs.config import Scale

PROG = "mapformers lm train"
TASK = "text"
DESCRIPTION = """Train a language model on a text that `mapformers lm prepare` made.

  mapformers lm train --data data/books --model mapwm --tokens 2000000
  mapformers lm train --data data/books --layers mapwm mapem mapwm:rank=1 rope --preset cpu
  mapformers lm train --data data/openwebtext --model mapwm --preset paper --precision bfloat16 --compile
  mapformers lm train --resume --out runs/text-mapwm-seed0

Name a model (or layers), then --help, to see its settings with the preset's values.
"""


@dataclass(frozen=True)
class LanguageChoice:
    """What to train, how much, and where to."""

    model: str | None = None
    """A name from `mapformers list models`."""
    layers: tuple[str, ...] = ()
    """Instead of a model: the layers of a hybrid, each NAME or NAME:OPTION=VALUE,OPTION=VALUE."""
    preset: Scale = "cpu"
    """smoke: seconds, to see that it runs; cpu: 4 layers of 128; paper: 12 layers of 768 and the paper's settings."""
    tokens: int | None = None
    """Tokens to train on in all, whole batches of them (instead of --sequences)."""
    seed: int = 0
    """Seed of the initialisation and of the order of the text."""
    out: Path | None = None
    """Run folder (runs/text-MODEL-seedN unless given)."""
    resume: bool = False
    """Go on with the run in that folder from its newest checkpoint; where there is none yet, start it."""
    overwrite: bool = False
    """Start anew although the folder holds a run; its files are removed, and no others."""
    threads: int | None = None
    """Threads to compute on (one per core unless given); fewer are faster where the cores are busy."""


@dataclass(frozen=True)
class Moved:
    """With --resume, of a run whose model need not be named."""

    data: str | None = None
    """Where the text of the run is now, if it has been moved."""


def main(args: Sequence[str]) -> int:
    asked = parse_lm_train(args)
    with use_threads(asked.choice.threads):
        return train_asked(asked)


def parse_lm_train(args: Sequence[str]) -> Asked:
    """The command line as `mapformers train` would have it, with the preset's settings under those that are given."""
    names = peek(args)
    named = names.model is not None or bool(names.layers)
    given = given_flags(args)
    if not ({"-h", "--help", "--resume"} & set(args)):
        require(named, f"--model is missing; see `{PROG} --help`.")
        require("data" in given, f"--data is missing: a folder that `mapformers lm prepare` made; see `{PROG} --help`.")
    chosen = names.preset if names.preset in PRESETS else "cpu"
    defaults = preset(chosen)
    names.task, names.scale = TASK, chosen
    groups: list[Any] = [("choice", LanguageChoice)]
    groups += settings_groups(names, defaults) if named else [("moved", Moved)]
    everything = dataclasses.make_dataclass("Train", groups, frozen=True)
    parsed: Any = parse(everything, args, PROG, DESCRIPTION, model_words(names) if named else "")
    settings = {
        name: value for group in groups[1:] for name, value in vars(getattr(parsed, group[0])).items() if name in given
    }
    choice = parsed.choice
    if choice.tokens is not None:
        settings |= sequences_for(choice.tokens, parsed, given) if named else {"tokens": choice.tokens}
    as_train = {f.name: getattr(choice, f.name) for f in dataclasses.fields(Choice) if hasattr(choice, f.name)}
    plain = Choice(**as_train, task=TASK if named else None, scale=choice.preset)
    return Asked(plain, settings, frozenset(given), PROG, defaults if named else {})


def sequences_for(tokens: int, parsed: Any, given: set[str]) -> dict[str, int]:
    """A budget in tokens as one in sequences; refused if it is not enough for one step."""
    require("sequences" not in given, "--tokens and --sequences are two ways to say the same; give one of them.")
    batch, context = parsed.training.batch_size, parsed.task_settings.context
    require(
        tokens >= batch * context,
        f"--tokens {tokens} is less than one step: a batch of {batch} × {context} has {batch * context} tokens.",
    )
    return {"sequences": tokens // context}
