"""The folder of a run: config.json, metrics.jsonl, result.json and checkpoints/."""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from torch import nn

from mapformers.errors import UserError, require
from mapformers.files import clear_file_errors, errors_naming, hold_folder, read_json, write_atomically, write_json
from mapformers.runs import checkpoint, snapshots
from mapformers.runs.config import RunConfig
from mapformers.runs.metrics import read_metrics

ABOUT_A_RUN = ("cell.json", "measures.json")  # what `mapformers reproduce` says of it
OF_ITS_TASK = ("text.json", "tokenizer.json")  # what a task has to keep: `files_to_keep`
PREPARED = "manifest.json"  # a prepared text has one, and a run has none


class RunFolder:
    """config.json, metrics.jsonl, result.json and checkpoints/ of one run."""

    def __init__(self, path: Path):
        self.path = path
        self.config_file = path / "config.json"
        self.metrics_file = path / "metrics.jsonl"
        self.result_file = path / "result.json"
        self.checkpoints = path / "checkpoints"

    def require_free(self, overwrite: bool = False) -> None:
        """Refuse a folder in which a process trains, and one that holds a run with a checkpoint or a result.

        The latter may be overwritten, if that is wanted, and a run that has come to neither may be started again. What
        is no run of ours is never overwritten: a prepared text, and files that are called as those of a run are.
        """
        require(not self.is_locked(), self._in_use)
        self._require_no_run(overwrite)

    def _require_no_run(self, overwrite: bool) -> None:
        with clear_file_errors("write to", self.path):
            own = (self.config_file, self.metrics_file, self.result_file)
            others = (self.path / name for name in (*OF_ITS_TASK, PREPARED))
            held = any(file.exists() for file in (*own, *others))
            begun = self.result_file.exists() or self.has_checkpoint()
        if held or begun:
            foreign = f"{self.path} holds files of something else than a whole run; choose another --out."
            require(self._is_a_run(), foreign)
            remedy = "continue it with --resume, start it anew with --overwrite, or choose another --out."
            require(overwrite or not begun, f"{self.path} already holds a run; {remedy}")

    def has_checkpoint(self) -> bool:
        """Whether the run has saved a step, so that it can go on."""
        return checkpoint.is_there(self.checkpoints)

    def _is_a_run(self) -> bool:
        try:
            found = read_json(self.config_file)
        except UserError:
            return False
        return isinstance(found, dict) and {"task", "model", "train", "seed"} <= set(found)

    @classmethod
    def create(cls, path: Path, config: RunConfig, overwrite: bool = False) -> "RunFolder":
        """Begin a new run; what an earlier one left is removed, if it may be (`require_free`)."""
        folder = cls(path)
        folder._require_no_run(overwrite)
        with clear_file_errors("write to", path):
            folder._clear()
            folder.checkpoints.mkdir(parents=True, exist_ok=True)
            write_json(folder.config_file, config.to_dict())
        return folder

    def replace_config(self, config: RunConfig) -> None:
        """Write another config in the place of the old one; several processes may do so at once with the same one."""
        own = self.config_file.with_name(f"{self.config_file.name}.{os.getpid()}")
        with clear_file_errors("write to", self.path):
            write_json(own, config.to_dict())
            own.replace(self.config_file)

    def keep(self, files: Mapping[str, str]) -> None:
        """Write what a task has to keep with a run, by the name of the file."""
        assert set(files) <= set(OF_ITS_TASK)
        with clear_file_errors("write to", self.path):
            for name, content in files.items():
                write_atomically(self.path / name, content.encode())

    def kept(self) -> dict[str, str]:
        """What a task has kept with a run."""
        there = [name for name in OF_ITS_TASK if (self.path / name).is_file()]
        return {name: (self.path / name).read_text("utf-8") for name in there}

    def _clear(self) -> None:
        """Remove the files of a run and no others; config.json last, so that a kill leaves a run to start again."""
        if self.config_file.exists():
            checkpoint.clear(self.checkpoints)
            snapshots.clear(self.path)
            about = [self.path / name for name in (*ABOUT_A_RUN, *OF_ITS_TASK)]
            for file in (*about, self.result_file, self.metrics_file, self.config_file):
                file.unlink(missing_ok=True)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other runs out of the folder; the system lets go of it when the process ends, however it ends."""
        with hold_folder(self.path, self._in_use):
            yield

    @property
    def _in_use(self) -> str:
        return f"Another process is training in {self.path}; wait for it, stop it, or choose another --out."

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
        if not path.exists():
            raise UserError(f"There is no folder {path}; give the folder that `train` wrote.")
        if not folder.config_file.exists():
            raise UserError(f"{path} is not a run folder: it has no config.json; give the folder that `train` wrote.")
        data = read_json(folder.config_file)
        try:
            return folder, RunConfig.from_dict(data)
        except UserError as error:
            raise UserError(f"{folder.config_file} is not the config of a run: {error}") from None
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError):
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
            raise UserError(f"{why} So there is no model; train it first, or name another run.")
        model = config.build_model() if model is None else model
        checkpoint.load_weights(path, model)
        return model, checkpoint.manifest(path)["step"], complaints

    def whole_result(self, step: int, splits: Iterable[str]) -> dict[str, Any] | None:
        """result.json, if it has the metrics of a run of so many steps on every split."""
        try:
            result = read_json(self.result_file)
            whole = all(_are_scores(result["splits"][split]) for split in splits)
            return dict(result) if whole and result["steps"] == step else None
        except (UserError, LookupError, TypeError):
            return None

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        with errors_naming(self.metrics_file), self.metrics_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({k: without_nan(v) for k, v in record.items()}, allow_nan=False) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """Every whole line of metrics.jsonl."""
        return read_metrics(self.metrics_file)[0]

    def keep_metrics_up_to(self, step: int) -> list[str]:
        """Drop what was measured after a checkpoint: the resumed run measures it again. Broken lines go too.

        Returns a sentence that says which lines were broken, if any were.
        """
        records, complaints = read_metrics(self.metrics_file)
        kept = [record for record in records if record["step"] <= step]
        write_atomically(self.metrics_file, "".join(json.dumps(record) + "\n" for record in kept).encode())
        return complaints


def _are_scores(scores: Any) -> bool:
    """Metrics by name, each with its count."""
    return isinstance(scores, dict) and all(
        isinstance(score, dict) and {"value", "count"} <= set(score) for score in scores.values()
    )


def without_nan(value: Any) -> Any:
    """JSON has no NaN and no infinity: a mean over no cases is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
