"""A run: what was asked for (config) and where it lives (folder)."""

import json
import math
import os
import platform
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from mapformers.config import ModelConfig, from_dict, to_dict
from mapformers.errors import UserError, require
from mapformers.model import Decoder
from mapformers.seeding import initialisation
from mapformers.tasks import TASKS, Task, build_task
from mapformers.training import checkpoint
from mapformers.training.backend import Backend
from mapformers.training.config import TrainConfig
from mapformers.training.files import clear_file_errors, read_json, unusable, write_atomically, write_json


@dataclass(frozen=True)
class RunConfig:
    """Everything a run depends on: task, model, training, seed, and what it is computed on."""

    task: str
    task_settings: Any
    model: ModelConfig
    train: TrainConfig
    seed: int = 0
    backend: Backend = field(default_factory=Backend)

    def __post_init__(self) -> None:
        require(self.seed >= 0, f"seed must not be negative, but is {self.seed}.")

    def build_task(self) -> Task[Any]:
        return build_task(self.task, **to_dict(self.task_settings))

    def build_model(self) -> Decoder:
        """The model at its start: parameters are a function of the seed."""
        with initialisation(self.seed):
            return Decoder(self.model)

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
        settings: Any = from_dict(TASKS[task].settings, data["task"]["settings"], f"setting of task {task!r}")
        model = ModelConfig.from_dict(data["model"])
        backend = from_dict(Backend, data.get("backend", {}))
        return cls(task, settings, model, from_dict(TrainConfig, data["train"]), data["seed"], backend)


class RunFolder:
    """config.json, metrics.jsonl, result.json and checkpoints/ of one run."""

    def __init__(self, path: Path):
        self.path = path
        self.config_file = path / "config.json"
        self.metrics_file = path / "metrics.jsonl"
        self.result_file = path / "result.json"
        self.checkpoints = path / "checkpoints"

    def require_new(self) -> None:
        """Refuse a folder that already holds a run: it is never overwritten."""
        with clear_file_errors("write to", self.path):
            held = any(file.exists() for file in (self.config_file, self.metrics_file, self.result_file))
        require(not held, f"{self.path} already holds a run; continue it with --resume or choose another --out.")

    @classmethod
    def create(cls, path: Path, config: RunConfig) -> "RunFolder":
        """Begin a new run."""
        folder = cls(path)
        folder.require_new()
        with clear_file_errors("write to", path):
            folder.checkpoints.mkdir(parents=True, exist_ok=True)
            write_json(folder.config_file, config.to_dict())
        return folder

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other runs out of the folder; the system lets go of it when the process ends, however it ends."""
        lock = FileLock(self.path / ".lock", blocking=False)
        is_file = self.path.exists() and not self.path.is_dir()
        require(not is_file, f"Cannot write to {self.path}: not a directory; choose another folder.")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except Timeout:
            raise UserError(
                f"Another process is training in {self.path}; wait for it, stop it, or choose another --out."
            ) from None
        except OSError as error:
            raise unusable("write to", self.path, error) from None
        try:
            yield
        finally:
            lock.release()

    @classmethod
    def open(cls, path: Path) -> tuple["RunFolder", RunConfig]:
        """A run that exists, with its config."""
        folder = cls(path)
        if not folder.config_file.exists():
            raise UserError(f"{path} is not a run folder: it has no config.json; give the folder that `train` wrote.")
        data = read_json(folder.config_file)
        try:
            return folder, RunConfig.from_dict(data)
        except UserError as error:
            raise UserError(f"{folder.config_file} is not the config of a run: {error}") from None
        except (LookupError, TypeError, AttributeError):
            raise UserError(
                f"{folder.config_file} is not the config of a run; give a folder that `train` wrote."
            ) from None

    def load_model(self, config: RunConfig) -> tuple[Decoder, int, list[str]]:
        """The model at its newest whole checkpoint, the step it is from, and what was wrong with newer ones."""
        path, complaints = checkpoint.latest(self.checkpoints)
        if path is None:
            why = " ".join(complaints) or f"{self.path} holds no checkpoint yet."
            raise UserError(f"{why} There is nothing to measure; train it first.")
        model = config.build_model()
        checkpoint.load_weights(path, model)
        return model, checkpoint.manifest(path)["step"], complaints

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        with self.metrics_file.open("a") as file:
            file.write(json.dumps({k: without_nan(v) for k, v in record.items()}, allow_nan=False) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """All whole lines of metrics.jsonl; a last line cut short is passed over."""
        if not self.metrics_file.exists():
            return []
        records = []
        for line in self.metrics_file.read_text().splitlines():
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return records

    def keep_metrics_up_to(self, step: int) -> None:
        """Drop what was measured after a checkpoint: the resumed run measures it again."""
        kept = [record for record in self.metrics() if record["step"] <= step]
        write_atomically(self.metrics_file, "".join(json.dumps(record) + "\n" for record in kept).encode())


def without_nan(value: Any) -> Any:
    """JSON has no NaN: a mean over no cases is null."""
    return None if isinstance(value, float) and math.isnan(value) else value


def provenance(hardware: Mapping[str, Any]) -> dict[str, Any]:
    """What a figure depends on besides its config: versions, machine, command."""
    versions = {name: metadata.version(name) for name in ("torch", "numpy", "safetensors", "accelerate")}
    try:
        versions["mapformers"] = metadata.version("mapformers")
    except metadata.PackageNotFoundError:
        versions["mapformers"] = "not installed"
    processor = platform.processor() or platform.machine()
    return {
        "command": shlex.join(["mapformers", *sys.argv[1:]]),
        "versions": {"python": platform.python_version(), **versions},
        "hardware": {"processor": processor, "cores": os.cpu_count(), **hardware},
    }
