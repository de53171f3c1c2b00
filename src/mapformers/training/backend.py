"""On what a run is computed: device, precision, processes, trackers. `accelerate` does the work."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.tracking import get_available_trackers
from accelerate.utils import DynamoBackend, GradientAccumulationPlugin, ProjectConfiguration
from torch import nn

from mapformers.errors import UserError, require
from mapformers.runs.config import Backend


def start(backend: Backend, folder: Path) -> Accelerator:
    """The accelerator of a run; trackers write to ``folder``."""
    available = [str(tracker) for tracker in get_available_trackers()]
    for name in backend.track:
        extra = " (or mapformers[track])" if name == "tensorboard" else ""
        require(name in available, f"{name} is not installed; pip install {name}{extra}, or leave out --track.")
    # One process may train several models, each in its own way; accelerate would keep the first one's settings.
    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        accelerator = Accelerator(
            cpu=backend.device == "cpu" or not torch.accelerator.is_available(),
            mixed_precision="bf16" if backend.precision == "bfloat16" else "no",
            gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=backend.accumulate),
            dynamo_backend=DynamoBackend.INDUCTOR if backend.compile else DynamoBackend.NO,
            log_with=list(backend.track) or None,
            project_config=ProjectConfiguration(project_dir=str(folder), logging_dir=str(folder / "tracking")),
        )
    except ValueError as error:
        raise UserError(f"This machine cannot train with these settings: {error}") from None
    # States of layers are views, but nothing is written into them while a model learns.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    # Of a weight whose first dimension is 1 (one head) the two strides differ in name only.
    warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
    found = accelerator.device.type
    require(
        backend.device in ("auto", found),
        f"There is no {backend.device} device here; leave out --device to use {found}.",
    )
    return accelerator


def prepare(
    accelerator: Accelerator, model: nn.Module, optimizer: torch.optim.Optimizer, sharded: bool
) -> tuple[nn.Module, Any]:
    """What a step calls: the model on its device, in its precision and compiled, and what steps the optimiser.

    Several processes synchronise gradients by DDP, unless the model is sharded and does it by itself.
    """
    if not sharded:
        parallel, stepper = accelerator.prepare(model, optimizer)
        return parallel, stepper
    return accelerator.prepare_model(model, evaluation_mode=True), accelerator.prepare_optimizer(optimizer)


@contextmanager
def lost_processes_told(remedy: str) -> Iterator[None]:
    """If another process of the run has ended, what was to be done together fails here: one sentence says so."""
    try:
        yield
    except RuntimeError as error:
        if not (isinstance(error, dist.DistError) or "gloo" in str(error)):
            raise
        raise UserError(f"Another process of this run has ended, so this one cannot continue; {remedy}") from None


def is_main_process() -> bool:
    """Whether this process speaks for the run: always, unless `torchrun` or `accelerate launch` started several."""
    return int(os.environ.get("RANK", "0")) == 0


def describe(accelerator: Accelerator, backend: Backend) -> dict[str, Any]:
    """What the run is computed on, as result.json keeps it."""
    device = accelerator.device
    return {
        "device": device.type,
        **({"instructions": torch.backends.cpu.get_cpu_capability()} if device.type == "cpu" else {}),
        **({"name": torch.cuda.get_device_name(device)} if device.type == "cuda" else {}),
        "processes": accelerator.num_processes,
        **({"sharding": backend.sharding} if backend.sharding != "none" else {}),
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
