"""What a task is: it samples batches, names its tokens, and scores logits."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mapformers.config import from_dict, to_dict
from mapformers.errors import require, unknown
from mapformers.registry import Registry
from mapformers.training.config import TrainConfig

MOST_NUMBERS = 2**27  # uniform numbers of one batch: what is made of them takes some 50 bytes for each
MOST_NAMES = 10**6  # tokens of one kind, such as objects


class Metric(float):
    """A mean that knows over how many cases it was taken, so that the means of batches can be joined exactly."""

    count: int

    def __new__(cls, value: float, count: int) -> "Metric":
        metric = super().__new__(cls, value)
        metric.count = count
        return metric

    def __getnewargs__(self) -> tuple[float, int]:  # type: ignore[override]
        return float(self), self.count

    @classmethod
    def share(cls, right: Tensor, counted: Tensor) -> "Metric":
        """The share of ``right`` among ``counted`` (bool tensors); NaN where nothing is counted."""
        count = int(counted.sum())
        return cls(int((right & counted).sum()) / count if count else float("nan"), count)

    @classmethod
    def join(cls, parts: list["Metric"]) -> "Metric":
        """One metric over all the cases of several."""
        count = sum(part.count for part in parts)
        total = sum(float(part) * part.count for part in parts if part.count)
        return cls(total / count if count else float("nan"), count)


@dataclass(frozen=True)
class Batch:
    """Sequences for next-token prediction: ``tokens = seq[:, :-1]``, ``targets = seq[:, 1:]``; all (B, L).

    ``loss_mask`` and ``score_mask`` say which targets are learned from and which are scored; ``info`` has the
    ground truth by name.
    """

    tokens: Tensor
    targets: Tensor
    loss_mask: Tensor
    score_mask: Tensor
    info: dict[str, Tensor] = field(default_factory=dict)

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device; ``info`` stays where it is, for analysis."""
        moved = {name: getattr(self, name).to(device) for name in ("tokens", "targets", "loss_mask", "score_mask")}
        return dataclasses.replace(self, **moved)


World = TypeVar("World")


class Task(ABC, Generic[World]):
    """The face every task shows to training, evaluation and the command line.

    ``settings`` describe the iid world; a split is a dict of settings over them. A task is one file: it draws
    sequences (:meth:`draw`) and says which tokens act; the rest has sensible defaults here.
    """

    name: str
    main_metric: str = "accuracy"
    token_names: list[str]
    action_ids: list[int]
    splits: Mapping[str, dict[str, Any]]
    uniform_dtype: torch.dtype = torch.float32
    """Of the numbers a sequence is made from; float64 where 2^-24 is too coarse a chance."""
    beside: tuple[str, ...] = ()
    """Players whose scores are printed beside every result: what is possible, or what comes without a map."""

    def __init__(self, settings: World):
        self.settings = settings

    @property
    def vocab_size(self) -> int:
        return len(self.token_names)

    def sample(
        self,
        split: str | Mapping[str, Any],
        batch_size: int,
        generator: torch.Generator,
        part: tuple[int, int] = (0, 1),
    ) -> Batch:
        """A batch of a split, by its name or as a dict of settings over the iid ones.

        It is a deterministic function of one block of uniform numbers drawn from ``generator``, row by row:
        two batches of 64 are one of 128. ``part`` (i, n) makes only the i-th of n equal parts of it.
        """
        require_count("batch_size", batch_size)
        settings = self.split_settings(split)
        index, parts = part
        require(0 <= index < parts, f"Of {parts} parts there are 0 to {parts - 1}, but no part {index}.")
        require(batch_size % parts == 0, f"A batch of {batch_size} cannot be cut into {parts} equal parts.")
        numbers = self.numbers_per_sequence(settings)
        require(
            batch_size * numbers <= MOST_NUMBERS,
            f"A batch of {batch_size} such sequences takes {batch_size * numbers:.0e} random numbers and at most "
            f"{MOST_NUMBERS:.0e} are drawn at once: choose shorter sequences or a smaller batch.",
        )
        uniform = torch.rand(batch_size, numbers, generator=generator, dtype=self.uniform_dtype)
        return self.draw(uniform.tensor_split(parts)[index], settings)

    def split_settings(self, split: str | Mapping[str, Any]) -> World:
        """The full settings of a split."""
        if isinstance(split, str):
            if split not in self.splits:
                raise unknown(f"split of task {self.name!r}", split, self.splits)
            split = self.splits[split]
        require(isinstance(split, Mapping), f"A split is a name or a dict of settings, not {split!r}.")
        return from_dict(type(self.settings), {**to_dict(self.settings), **split}, f"setting of task {self.name!r}")

    @abstractmethod
    def numbers_per_sequence(self, settings: World) -> int:
        """How many uniform numbers one sequence needs."""

    @abstractmethod
    def draw(self, uniform: Tensor, settings: World) -> Batch:
        """Turn uniform numbers (B, N) into a batch of B sequences."""

    @abstractmethod
    def show(self, split: str | Mapping[str, Any], generator: torch.Generator) -> str:
        """One sample as a person would read it."""

    @abstractmethod
    def training(self, scale: str) -> TrainConfig:
        """How long and how fast to train at a scale (smoke, cpu, paper)."""

    def model_defaults(self) -> dict[str, Any]:
        """Model options this task suggests (used where a mixer has them and the user says nothing)."""
        return {}

    def suggestions(self) -> dict[str, Any]:
        """What a model may be told of this task: the defaults for it, and which tokens act."""
        return {"action_ids": tuple(self.action_ids), **self.model_defaults()}

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Mean cross-entropy over the targets that count for the loss, those of ``batch.loss_mask``."""
        if bool(batch.loss_mask.all()):
            return cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
        return cross_entropy(logits[batch.loss_mask], batch.targets[batch.loss_mask])

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Metric]:
        """Named metrics with their counts: the share of scored targets that are the most likely token."""
        return {"accuracy": Metric.share(logits.argmax(dim=-1) == batch.targets, batch.score_mask)}

    def score_freely(self, model: Callable[..., Any], batch: Batch) -> dict[str, Metric]:
        """Metrics for which the model must act on its own, such as answering from its own answers; none by default.

        Asked of our own models alone, which stream.
        """
        return {}


@dataclass(frozen=True)
class TaskEntry:
    name: str
    summary: str
    settings: type
    build: type[Task[Any]]


TASKS: Registry[TaskEntry] = Registry("task")


def require_count(name: str, value: Any) -> None:
    """Refuse what is not a number of things."""
    require(isinstance(value, Integral), f"{name} must be a whole number, not {value!r}.")
    require(value >= 1, f"{name} must be at least 1, not {value}.")


def require_names(setting: str, n: int) -> None:
    """Refuse a setting that would give the vocabulary absurdly many tokens of one kind."""
    require(n <= MOST_NAMES, f"{setting} must be at most {MOST_NAMES}, not {n}.")


def register_task(name: str, *, settings: type, build: type[Task[Any]], summary: str) -> None:
    """Make a task known by name."""
    build.name = name
    TASKS.add(name, TaskEntry(name, summary, settings, build))


def build_task(name: str, **settings: Any) -> Task[Any]:
    """A task by name; ``settings`` change its iid split, and the OOD splits follow.

    A settings class may have a classmethod ``spelled``, which puts what Python has objects for into plain settings.

    >>> task = build_task("navigation", dims=2)
    """
    entry = TASKS[name]
    settings = getattr(entry.settings, "spelled", dict)(settings)
    return entry.build(from_dict(entry.settings, settings, f"setting of task {name!r}"))
