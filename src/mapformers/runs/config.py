"""All that a run depends on, as typed settings, and the one way to compose them: `RunConfig.compose`."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

from mapformers.config import from_dict, to_dict
from mapformers.errors import UserError, require, require_finite, unknown
from mapformers.model import SIZES, Decoder, LayerSpec, ModelConfig, layer_spec, model_config, suggested_settings
from mapformers.modules.layer import LAYERS
from mapformers.seeding import initialisation
from mapformers.tasks import TASKS, Task, build_task

Scale = Literal["smoke", "cpu", "paper"]
Schedule = Literal["linear", "cosine", "constant"]
Device = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["float32", "bfloat16"]
Sharding = Literal["none", "full"]
RENAMED_SETTINGS = {"driftless_steps": "zero_mean_steps"}  # in run folders of version 0.1.0


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained. The budget is counted in sequences, so batch sizes can be compared."""

    sequences: int = 64_000
    """Training sequences in all."""
    batch_size: int = 128
    """Sequences in one step."""
    lr: float = 3e-3
    """Peak learning rate of AdamW."""
    schedule: Schedule = "linear"
    """How the learning rate falls after the warm-up."""
    final_lr: float = 0.0
    """Where it ends, as a share of the peak."""
    warmup_steps: int = 50
    """Steps over which the learning rate rises to its peak."""
    zero_mean_steps: int = 0
    """First steps in which the mean movement on the map is held at zero, so that no clock is learned first."""
    path_lr: float = 1.0
    """Learning rate of what makes a path of tokens (W_in, W_out, ω), as a share of lr; with 0 the path stays as it
    starts."""
    weight_decay: float = 0.05
    """On matrices only."""
    path_decay: float = 1.0
    """Weight decay of W_in and W_out of a path, as a share of weight_decay."""
    beta1: float = 0.9
    """AdamW's decay of the mean gradient."""
    beta2: float = 0.95
    """AdamW's decay of the squared gradient."""
    clip: float = 1.0
    """Largest gradient norm."""
    log_every: int = 10
    """Steps between lines of metrics.jsonl."""
    eval_every: int = 100
    """Steps between measurements on fresh sequences."""
    eval_sequences: int = 256
    """Sequences of each of those measurements."""
    final_sequences: int = 512
    """Sequences of every split for the metrics in result.json."""
    checkpoint_every: int = 200
    """Steps between checkpoints; there is always one at the end."""

    def __post_init__(self) -> None:
        require_finite(self)
        counts = "sequences batch_size log_every eval_every eval_sequences final_sequences checkpoint_every"
        for name in counts.split():
            require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}.")
        for name in ("lr", "clip"):
            require(getattr(self, name) > 0, f"{name} must be above 0, not {getattr(self, name)}.")
        for name in ("warmup_steps", "zero_mean_steps", "path_lr", "weight_decay", "path_decay"):
            require(getattr(self, name) >= 0, f"{name} must not be negative, but is {getattr(self, name)}.")
        for name in ("beta1", "beta2"):
            require(0 <= getattr(self, name) < 1, f"{name} must lie in [0, 1), not {getattr(self, name)}.")
        require(0 <= self.final_lr <= 1, f"final_lr is a share of lr between 0 and 1, not {self.final_lr}.")

    @property
    def steps(self) -> int:
        """Optimiser steps: the budget in whole batches, at least one."""
        return max(1, self.sequences // self.batch_size)


@dataclass(frozen=True)
class Backend:
    """On what a run is computed. None of it changes what is asked of the model, only speed, memory and rounding.

    One exception: in the first ``zero_mean_steps``, the mean is taken over each part of an accumulated batch.
    """

    device: Device = "auto"
    """Where to train (auto: an accelerator if there is one)."""
    precision: Precision = "float32"
    """Of the matrix products; the path on the map is summed in float64 whatever it is."""
    accumulate: int = 1
    """Parts in which a batch goes through the model, to save memory."""
    checkpoint_activations: bool = False
    """Keep only the input of each layer, recompute the rest in the backward pass: less memory, a third more time."""
    compile: bool = False
    """Compile the model with torch.compile."""
    read_ahead: bool = False
    """Make the next batch in a thread while the model learns from this one: the same batches in the same order."""
    sharding: Sharding = "none"
    """Of several processes each holds the whole model (none), or its share of weights and optimiser (full: FSDP2)."""
    track: tuple[str, ...] = ()
    """Trackers to log to besides metrics.jsonl: tensorboard, wandb, mlflow, … (whatever accelerate knows)."""

    def __post_init__(self) -> None:
        require(self.accumulate >= 1, f"accumulate must be at least 1, not {self.accumulate}.")
        require(isinstance(self.track, list | tuple), f"track must be a list of names, not {self.track!r}.")
        object.__setattr__(self, "track", tuple(self.track))
        if self.track:
            from accelerate.utils import LoggerType  # half a second, for the few who track

            known = [name for name in LoggerType.list() if name != "all"]
            for name in self.track:
                require(name in known, f"There is no tracker {name!r}; choose among {', '.join(known)}.")


@dataclass(frozen=True)
class ForeignModel:
    """A model that is not built here: any module from tokens (B, L) to logits (B, L, vocab)."""

    name: str

    def to_dict(self) -> dict[str, Any]:
        return {"foreign": self.name}


@dataclass(frozen=True)
class RunConfig:
    """Everything a run depends on: task, model, training, seed, and what it is computed on."""

    task: str
    task_settings: Any
    model: ModelConfig | ForeignModel
    train: TrainConfig
    seed: int = 0
    backend: Backend = field(default_factory=Backend)

    def __post_init__(self) -> None:
        whole = isinstance(self.seed, int) and not isinstance(self.seed, bool)
        require(whole, f"seed must be a whole number, not {self.seed!r}.")
        require(self.seed >= 0, f"seed must not be negative, but is {self.seed}.")
        if self.backend.checkpoint_activations:
            own = not isinstance(self.model, ForeignModel)
            require(own, "checkpoint_activations works for the models of this library only; leave it out for your own.")
            twice = "checkpoint_activations computes movements twice, and their running mean with them: "
            require(self.train.zero_mean_steps == 0, twice + "it goes with --zero-mean-steps 0 only.")

    @classmethod
    def compose(
        cls,
        task: str,
        model: "str | nn.Module | None" = None,
        scale: Scale = "cpu",
        *,
        layers: Sequence[LayerSpec] | None = None,
        seed: int = 0,
        defaults: Mapping[str, Any] | None = None,
        **overrides: Any,
    ) -> "RunConfig":
        """The run of a model on a task: the task's suggestions for a scale, and whatever is given over them.

        ``model`` is a registered name, or any module from tokens to logits; ``layers`` lists those of a hybrid.
        ``defaults`` go over the task's suggestions, where the task, the model or a layer has a use for them.
        ``overrides`` are settings of the task, of the model, of training (`TrainConfig`) and of what it is
        computed on (`Backend`), by name.

        Examples:
            >>> config = RunConfig.compose("navigation", "mapwm", "smoke", dims=1, rank=1, lr=1e-3)
        """
        require(isinstance(task, str), f"Name the task by its registered name, not {task!r}.")
        named = model is None or isinstance(model, str | nn.Module)
        require(named, f"A model is a registered name or a module (an instance, not its class), not {model!r}.")
        require(scale in ("smoke", "cpu", "paper"), f"scale must be one of smoke, cpu, paper, not {scale!r}.")
        require((model is None) != (layers is None), "Give either a model or a list of layers.")
        given = _by_owner(task, model, overrides)
        defaults = {} if defaults is None else defaults
        entry = TASKS[task]
        own = {**_those_of(entry.settings, defaults), **given["task"]}
        spelled = getattr(entry.settings, "spelled", dict)(own)  # what Python has objects for, as plain data
        settings: Any = from_dict(entry.settings, spelled, f"setting of task {task!r}")
        built = entry.build(settings)
        if isinstance(model, nn.Module):
            composed: ModelConfig | ForeignModel = ForeignModel(type(model).__name__)
        else:
            composed = _compose_model(built, model, layers, {**built.suggestions(), **defaults}, given["model"])
        training = {**built.training(scale), **_those_of(TrainConfig, defaults), **given["training"]}
        backend = from_dict(Backend, {**_those_of(Backend, defaults), **given["backend"]})
        config = cls(task, settings, composed, from_dict(TrainConfig, training), seed, backend)
        config.__dict__["_task"] = built
        return config

    @property
    def model_name(self) -> str:
        """What a person calls the model: its name, or the names of a hybrid's layers."""
        if isinstance(self.model, ForeignModel):
            return self.model.name
        return "+".join(dict.fromkeys(layer.name for layer in self.model.layers))

    def build_task(self) -> Task[Any]:
        """The task, built once and kept."""
        if "_task" not in self.__dict__:
            self.__dict__["_task"] = build_task(self.task, **to_dict(self.task_settings))
        task: Task[Any] = self.__dict__["_task"]
        return task

    def build_model(self) -> Decoder:
        """The model at its start: parameters are a function of the seed."""
        if isinstance(self.model, ForeignModel):
            raise UserError(f"The model of this run is your own {self.model.name}; pass it as model=….")
        with initialisation(self.seed):
            model = Decoder(self.model)
        model.checkpoint_activations = self.backend.checkpoint_activations
        return model

    def to_dict(self) -> dict[str, Any]:
        return {
            "task": {"name": self.task, "settings": to_dict(self.task_settings)},
            "model": self.model.to_dict(),
            "train": to_dict(self.train),
            "seed": self.seed,
            "backend": to_dict(self.backend),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "RunConfig":
        task = data["task"]["name"]
        kind = TASKS[task].settings
        recorded = {**getattr(kind, "unrecorded", {}), **data["task"]["settings"]}
        settings: Any = from_dict(kind, recorded, f"setting of task {task!r}")
        train = {RENAMED_SETTINGS.get(name, name): value for name, value in data["train"].items()}
        foreign = data["model"].get("foreign")
        model = ModelConfig.from_dict(data["model"]) if foreign is None else ForeignModel(str(foreign))
        backend = from_dict(Backend, data.get("backend", {}))
        return cls(task, settings, model, from_dict(TrainConfig, train), data["seed"], backend)


def setting_names(task: str, model: object) -> dict[str, list[str]]:
    """The names a run's settings go by, under who owns them: task, model, training, backend."""
    options = fields_of(LAYERS[model].options) if isinstance(model, str) else []
    return {
        "task": fields_of(TASKS[task].settings),
        "model": [] if isinstance(model, nn.Module) else [*SIZES, "n_layers", *options],
        "training": fields_of(TrainConfig),
        "backend": fields_of(Backend),
    }


def fields_of(config: type) -> list[str]:
    return [f.name for f in dataclasses.fields(config)]


def _those_of(config: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the settings that a config has."""
    return {name: value for name, value in settings.items() if name in fields_of(config)}


def _by_owner(task: str, model: object, overrides: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Settings sorted to who owns them; a name that nobody owns is refused."""
    owners = setting_names(task, model)
    known: dict[str, str] = {}
    for owner, names in owners.items():
        for name in names:
            taken = known.setdefault(name, owner)
            require(taken == owner, f"{name!r} is a setting of the {taken} and of the {owner}; rename yours.")
    sorted_out: dict[str, dict[str, Any]] = {owner: {} for owner in owners}
    for name, value in overrides.items():
        if name not in known:
            what = model if isinstance(model, str) else "this model"
            raise unknown(f"setting of a run of {what} on {task}", name, known)
        sorted_out[known[name]][name] = value
    return sorted_out


def _typical_length(task: Task[Any], options: Mapping[str, Any]) -> dict[str, int]:
    """With log n, nothing changes at the start for a query that sees a whole iid sequence."""
    if options.get("length_scaling") != "log":
        return {}
    return {"typical_length": max(2, task.sample("iid", 1, torch.Generator().manual_seed(0)).tokens.shape[1])}


def _compose_model(
    task: Task[Any],
    name: str | None,
    layers: Sequence[LayerSpec] | None,
    suggested: dict[str, Any],
    given: Mapping[str, Any],
) -> ModelConfig:
    if name is not None:
        suggested |= _typical_length(task, given)
        return model_config(name, vocab_size=task.vocab_size, **{**suggested_settings(name, suggested), **given})
    require(isinstance(layers, list | tuple), f"layers must be a list of names or (name, options), not {layers!r}.")
    assert layers is not None
    sizes = {key: value for key, value in suggested.items() if key in SIZES}
    stack = [layer_spec(spec) for spec in layers]
    own = [
        (layer, {**_those_of(LAYERS[layer].options, suggested), **_typical_length(task, options), **options})
        for layer, options in stack
    ]
    return model_config(vocab_size=task.vocab_size, layers=own, **{**sizes, **given})
