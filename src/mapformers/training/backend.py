"""On what a run is computed: device, precision, processes, trackers. `accelerate` does the work."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.tracking import get_available_trackers
from accelerate.utils import DynamoBackend, GradientAccumulationPlugin, LoggerType, ProjectConfiguration

from mapformers.errors import UserError, require

Device = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class Backend:
    """How a run is computed. None of it changes what is asked of the model, only speed, memory and rounding.

    One exception: while the path is held still (``driftless_steps``), its mean is taken over each part of the batch.
    """

    device: Device = "auto"
    """Where to train (auto: an accelerator if there is one)."""
    precision: Precision = "float32"
    """Of the matrix products; the path on the map is summed in float64 whatever it is."""
    accumulate: int = 1
    """Parts in which a batch goes through the model, to save memory."""
    compile: bool = False
    """Compile the model with torch.compile."""
    track: tuple[str, ...] = ()
    """Trackers to log to besides metrics.jsonl: tensorboard, wandb, mlflow, … (whatever accelerate knows)."""

    def __post_init__(self) -> None:
        require(self.accumulate >= 1, f"accumulate must be at least 1, not {self.accumulate}.")
        require(isinstance(self.track, list | tuple), f"track must be a list of names, not {self.track!r}.")
        object.__setattr__(self, "track", tuple(self.track))
        known = [name for name in LoggerType.list() if name != "all"]
        for name in self.track:
            require(name in known, f"There is no tracker {name!r}; choose among {', '.join(known)}.")

    def start(self, folder: Path) -> Accelerator:
        """The accelerator of a run; trackers write to ``folder``."""
        available = [str(tracker) for tracker in get_available_trackers()]
        for name in self.track:
            extra = " (or mapformers[track])" if name == "tensorboard" else ""
            require(name in available, f"{name} is not installed; pip install {name}{extra}, or leave out --track.")
        # One process may train several models, each in its own way; accelerate would keep the first one's settings.
        AcceleratorState._reset_state(reset_partial_state=True)
        try:
            accelerator = Accelerator(
                cpu=self.device == "cpu" or not torch.accelerator.is_available(),
                mixed_precision="bf16" if self.precision == "bfloat16" else "no",
                gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=self.accumulate),
                dynamo_backend=DynamoBackend.INDUCTOR if self.compile else DynamoBackend.NO,
                log_with=list(self.track) or None,
                project_config=ProjectConfiguration(project_dir=str(folder), logging_dir=str(folder / "tracking")),
            )
        except ValueError as error:
            raise UserError(f"This machine cannot train so: {error}") from None
        # Of a weight whose first dimension is 1 (one head) the two strides differ in name only.
        warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
        found = accelerator.device.type
        require(
            self.device in ("auto", found), f"There is no {self.device} device here; leave out --device to use {found}."
        )
        return accelerator


def is_main_process() -> bool:
    """Whether this process speaks for the run: always, unless `torchrun` or `accelerate launch` started several."""
    return int(os.environ.get("RANK", "0")) == 0


def describe(accelerator: Accelerator, backend: Backend) -> dict[str, Any]:
    """What the run is computed on, as result.json keeps it."""
    device = accelerator.device
    return {
        "device": device.type,
        **({"name": torch.cuda.get_device_name(device)} if device.type == "cuda" else {}),
        "processes": accelerator.num_processes,
        "precision": backend.precision,
        "compiled": backend.compile,
        "threads": torch.get_num_threads(),
    }


@contextmanager
def tracking(accelerator: Accelerator, config: dict[str, Any], step: int) -> Iterator[None]:
    """Trackers, closed whatever happens; what tensorboard has beyond the step a run goes on from is dropped."""
    if accelerator.log_with:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the trackers' own libraries
            accelerator.init_trackers("mapformers", config, {"tensorboard": {"purge_step": step + 1}})
    try:
        yield
    finally:
        for tracker in accelerator.trackers:
            tracker.finish()
