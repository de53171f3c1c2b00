"""The base class of tasks. A task samples batches, names its tokens, and scores logits."""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mapformers import registry
from mapformers.config import from_dict, to_dict
from mapformers.errors import UserError, require, unknown
from mapformers.seeding import generator

MAX_UNIFORM_NUMBERS = 2**27  # in one batch; a batch takes about 50 bytes of memory for each of them
MAX_TOKENS_OF_A_KIND = 10**6  # such as objects or names


class Metric(float):
    """A mean that knows the number of its cases, so the means of several batches can be joined exactly."""

    count: int

    def __new__(cls, value: float, count: int) -> "Metric":
        metric = super().__new__(cls, value)
        metric.count = count
        return metric

    def __getnewargs__(self) -> tuple[float, int]:  # type: ignore[override]
        return float(self), self.count

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the value (None if it is no finite number) and the count."""
        return {"value": float(self) if math.isfinite(self) else None, "count": self.count}

    @classmethod
    def fraction(cls, right: Tensor, counted: Tensor) -> "Metric":
        """The fraction of ``counted`` cases that are ``right`` (bool tensors); NaN if nothing is counted."""
        count = int(counted.sum())
        return cls(int((right & counted).sum()) / count if count else float("nan"), count)

    @classmethod
    def join(cls, parts: list["Metric"]) -> "Metric":
        """One metric over the cases of all ``parts`` together."""
        count = sum(part.count for part in parts)
        total = sum(float(part) * part.count for part in parts if part.count)
        return cls(total / count if count else float("nan"), count)


@dataclass(frozen=True)
class Batch:
    """Sequences for next-token prediction: ``tokens = seq[:, :-1]`` and ``targets = seq[:, 1:]``, both (B, L).

    ``loss_mask``   (B, L) bool: the model learns from this target.
    ``score_mask``  (B, L) bool: this target is scored.
    ``info``        the ground truth by name, for players and analysis.
    ``reset``       (B, L) bool: a new document begins here, and the model starts a new map; None: one in each row.
    """

    tokens: Tensor
    targets: Tensor
    loss_mask: Tensor
    score_mask: Tensor
    info: dict[str, Tensor] = field(default_factory=dict)
    reset: Tensor | None = None

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device; ``info`` stays where it is."""
        moved = {name: getattr(self, name).to(device) for name in ("tokens", "targets", "loss_mask", "score_mask")}
        reset = None if self.reset is None else self.reset.to(device)
        return dataclasses.replace(self, **moved, reset=reset)

    def read_by(self, model: Callable[..., Any]) -> Any:
        """What a model answers to the tokens; it is told where documents begin if the batch says so."""
        return model(self.tokens) if self.reset is None else model(self.tokens, reset=self.reset)


Settings = TypeVar("Settings")


class Task(ABC, Generic[Settings]):
    """What training, evaluation and the command line use of a task.

    ``settings`` describe the iid split. Any other split is a dict of the settings that differ from it. A subclass draws
    sequences (`draw`) and lists the tokens that are actions; most other methods have defaults here.
    """

    name: str
    main_metric: str = "accuracy"
    token_names: Sequence[str]
    action_ids: list[int]
    splits: Mapping[str, dict[str, Any]]
    uniform_dtype: torch.dtype = torch.float32
    """The type of the random numbers that sequences are made from; float64 where steps of 2^-24 are too coarse."""
    reference_players: tuple[str, ...] = ()
    """Players (rule-based baselines) whose scores are printed with every result of this task."""
    needs: tuple[str, ...] = ()
    """Settings without which nothing can be sampled, such as a folder of data."""

    def __init__(self, settings: Settings):
        self.settings = settings

    @property
    def vocab_size(self) -> int:
        return len(self.token_names)

    @property
    def watched_split(self) -> str:
        """The split that is measured while a run trains."""
        return "iid"

    @property
    def unit(self) -> tuple[str, int]:
        """The unit in which the speed of training is shown, and how many of them a sequence has."""
        return "seq", 1

    def sample(
        self,
        split: "str | Mapping[str, Any] | Settings",
        batch_size: int,
        generator: torch.Generator,
        part: tuple[int, int] = (0, 1),
    ) -> Batch:
        """A batch of ``batch_size`` sequences.

        ``split``      the name of a split, a dict of settings that differ from iid, or full settings.
        ``generator``  gives one block of uniform random numbers. The batch is a function of that block, row by row,
                       so two batches of 64 equal one batch of 128.
        ``part``       (i, n): return only the i-th of n equal parts of the batch.
        """
        require_part(batch_size, part)
        settings = self.split_settings(split)
        index, parts = part
        numbers = self.numbers_per_sequence(settings)
        require(
            batch_size * numbers <= MAX_UNIFORM_NUMBERS,
            f"A batch of {batch_size} such sequences needs {batch_size * numbers:.0e} random numbers, but at most "
            f"{MAX_UNIFORM_NUMBERS:.0e} can be drawn at once: choose shorter sequences or a smaller batch.",
        )
        uniform = torch.rand(batch_size, numbers, generator=generator, dtype=self.uniform_dtype)
        return self.draw(uniform.tensor_split(parts)[index], settings)

    def training_batch(self, batch_size: int, seed: int, step: int, part: tuple[int, int] = (0, 1)) -> Batch:
        """Batch number ``step`` of the run of a seed, a function of the two: here fresh sequences of the iid split.

        A task with a limited number of sequences overrides it, so as to give each of them once before any comes again.
        """
        return self.sample(self.settings, batch_size, generator(seed, "train", step), part=part)

    def evaluation_batches(
        self,
        split: "str | Mapping[str, Any] | Settings",
        n_sequences: int,
        batch_size: int,
        generator: torch.Generator,
    ) -> Iterator[Batch]:
        """What a model is measured on: here ``n_sequences`` fresh ones, whatever ``batch_size`` they come in."""
        for start in range(0, n_sequences, batch_size):
            yield self.sample(split, min(batch_size, n_sequences - start), generator)

    def split_settings(self, split: "str | Mapping[str, Any] | Settings") -> Settings:
        """The full settings of a split. Full settings are returned as they are, so a loop can resolve a split once."""
        if isinstance(split, type(self.settings)):
            return split
        if isinstance(split, str):
            if split not in self.splits:
                raise unknown(f"split of task {self.name!r}", split, self.splits)
            split = self.splits[split]
        if not isinstance(split, Mapping):
            raise UserError(f"A split is a name or a dict of settings, not {split!r}.")
        return from_dict(type(self.settings), {**to_dict(self.settings), **split}, f"setting of task {self.name!r}")

    @abstractmethod
    def numbers_per_sequence(self, settings: Settings) -> int:
        """How many uniform random numbers one sequence needs."""

    @abstractmethod
    def draw(self, uniform: Tensor, settings: Settings) -> Batch:
        """Turn uniform random numbers (B, N) into a batch of B sequences."""

    @abstractmethod
    def show(self, split: str | Mapping[str, Any], generator: torch.Generator) -> str:
        """One sample as text for a person to read."""

    @abstractmethod
    def training(self, scale: str) -> dict[str, Any]:
        """The settings of `TrainConfig` for a scale (smoke, cpu or paper), by name."""

    def model_defaults(self) -> dict[str, Any]:
        """Model options that suit this task. They apply to layers that have them, unless the user gives others."""
        return {}

    def suggestions(self) -> dict[str, Any]:
        """All that a model may be told of this task: `model_defaults`, and which tokens are actions."""
        return {"action_ids": tuple(self.action_ids), **self.model_defaults()}

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """The mean cross-entropy over the targets in ``batch.loss_mask``."""
        if bool(batch.loss_mask.all()):
            return cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
        return cross_entropy(logits[batch.loss_mask], batch.targets[batch.loss_mask])

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Metric]:
        """Metrics by name; here the fraction of scored targets to which the model gives the highest logit."""
        return {"accuracy": Metric.fraction(logits.argmax(dim=-1) == batch.targets, batch.score_mask)}

    def conclude(self, scores: dict[str, Metric]) -> dict[str, Metric]:
        """The metrics over all batches, and those which follow from them but are no means, such as a perplexity."""
        return scores

    def score_freely(self, model: Callable[..., Any], batch: Batch) -> dict[str, Metric]:
        """Metrics of a free run, in which the model reads its own answers instead of the targets; none by default.

        `mf.evaluate` calls this for models with ``streams = True``, which take and return a state.
        """
        return {}


@dataclass(frozen=True)
class TaskEntry:
    """A registered task: its name, the class of its settings, and the class that is built from them."""

    name: str
    settings: type
    build: type[Task[Any]]

    @property
    def summary(self) -> str:
        """The first line of the class's docstring."""
        return (self.build.__doc__ or "").partition("\n")[0]


TASKS: registry.Registry[TaskEntry] = registry.TASKS


def require_count(name: str, value: Any) -> None:
    """Refuse a value that is not a whole number of at least 1."""
    require(isinstance(value, Integral), f"{name} must be a whole number, not {value!r}.")
    require(value >= 1, f"{name} must be at least 1, not {value}.")


def require_part(batch_size: Any, part: tuple[int, int]) -> None:
    """Refuse a batch size that is not a whole number of at least 1, and a part (i, n) that does not exist."""
    require_count("batch_size", batch_size)
    index, parts = part
    require(0 <= index < parts, f"Of {parts} parts there are 0 to {parts - 1}, but no part {index}.")
    require(batch_size % parts == 0, f"A batch of {batch_size} cannot be cut into {parts} equal parts.")


def require_names(setting: str, n: int) -> None:
    """Refuse a setting that would give the vocabulary too many tokens of one kind."""
    require(n <= MAX_TOKENS_OF_A_KIND, f"{setting} must be at most {MAX_TOKENS_OF_A_KIND}, not {n}.")


def register_task(name: str, *, settings: type, build: type[Task[Any]]) -> None:
    """Make a task known by name: ``build`` is a subclass of `Task` that takes a ``settings`` object."""
    build.name = name
    TASKS.add(name, TaskEntry(name, settings, build))


def build_task(name: str, **settings: Any) -> Task[Any]:
    """A task by name. ``settings`` change its iid split, and the OOD splits follow.

    A settings class may have a classmethod ``spelled``, which turns Python objects (a `GraphWorld`, a `Path`) into
    plain settings.

    Examples:
        >>> task = build_task("navigation", dims=2)
    """
    entry = TASKS[name]
    settings = getattr(entry.settings, "spelled", dict)(settings)
    return entry.build(from_dict(entry.settings, settings, f"setting of task {name!r}"))
