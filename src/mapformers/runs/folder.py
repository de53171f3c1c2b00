"""The folder of a run: config.json, metrics.jsonl, result.json and checkpoints/."""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from torch import nn

from mapformers.errors import UserError, require
from mapformers.files import clear_file_errors, hold_folder, read_json, write_atomically, write_json
from mapformers.runs import checkpoint
from mapformers.runs.config import RunConfig


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
        busy = "Another process is training in {}; wait for it, stop it, or choose another --out."
        with hold_folder(self.path, busy):
            yield

    def is_locked(self) -> bool:
        """Whether another process is training in it."""
        if not (self.path / ".lock").exists():
            return False
        try:
            with FileLock(self.path / ".lock", blocking=False):
                return False
        except (Timeout, OSError):
            return True

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

    def load_model(self, config: RunConfig, model: nn.Module | None = None) -> tuple[nn.Module, int, list[str]]:
        """The model at its newest whole checkpoint, the step it is from, and what was wrong with newer ones.

        ``model``: a module of one's own to load into, where the run trained one.
        """
        path, complaints = checkpoint.latest(self.checkpoints)
        if path is None:
            why = " ".join(complaints) or f"{self.path} holds no checkpoint yet."
            raise UserError(f"{why} There is nothing to measure; train it first.")
        model = config.build_model() if model is None else model
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
    """JSON has no NaN and no infinity: a mean over no cases is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
