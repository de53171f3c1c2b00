"""`mf.train`: start a run or go on with it, and return it."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn

from mapformers.errors import require
from mapformers.model import LayerSpec
from mapformers.runs import checkpoint
from mapformers.runs.config import RunConfig, Scale
from mapformers.runs.folder import RunFolder
from mapformers.runs.run import Run, load
from mapformers.training.backend import is_main_process, lost_processes_told
from mapformers.training.loop import Trainer


def train(
    task: str,
    model: str | nn.Module | None = None,
    *,
    scale: Scale = "cpu",
    seed: int = 0,
    out: str | Path | None = None,
    layers: Sequence[LayerSpec] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    snapshots: int = 0,
    console: Console | None = None,
    **overrides: Any,
) -> Run:
    """Train a model on a task, as `mapformers train` does, and return the run.

    ``model``      a registered name, or a module of your own from tokens (B, L) to logits (B, L, vocab).
    ``scale``      smoke (seconds), cpu (minutes on a laptop) or paper (the paper's own budget).
    ``out``        a folder for the run, runs/TASK-MODEL-seedN unless given; a run that has no checkpoint yet is
                   started again there.
    ``layers``     instead of a model: the layers of a hybrid.
    ``resume``     go on with the run in that folder if it has a checkpoint, and start it otherwise.
    ``overwrite``  start anew although the folder holds a run; its files are removed.
    ``snapshots``  at how many moments the weights are kept in the folder, for a film of the learning.
    ``console``    where progress is shown; standard error unless given.
    ``overrides``  settings of the task, the model, training and backend by name (`RunConfig.compose`).

    Examples:
        >>> run = train("navigation", "mapwm", scale="smoke", out="runs/mine", rank=2)  # doctest: +SKIP
    """
    config = RunConfig.compose(task, model, scale, layers=layers, seed=seed, **overrides)
    require(out != "", "out must name a folder; leave it out for runs/TASK-MODEL-seedN.")
    require(
        not (resume and overwrite),
        "Give resume or overwrite, not both: one continues the run, the other starts it anew.",
    )
    folder = default_folder(config) if out is None else Path(out)
    own = model if isinstance(model, nn.Module) else None
    if resume and RunFolder(folder).has_checkpoint():
        same = RunFolder.open(folder)[1] == config
        require(same, f"{folder} was started with other settings; give those, or choose another out.")
        resume_run(folder, console, model=own, snapshots=snapshots)
    else:
        start_run(config, folder, console, model=own, overwrite=overwrite, snapshots=snapshots)
    return load(folder, own)


def default_folder(config: RunConfig) -> Path:
    return Path("runs") / f"{config.task}-{config.model_name}-seed{config.seed}"


def start_run(
    config: RunConfig,
    out: Path,
    console: Console | None = None,
    title: str | None = None,
    model: nn.Module | None = None,
    overwrite: bool = False,
    snapshots: int = 0,
) -> dict[str, Any]:
    """Start a run in a folder, train it to the end, and return the content of result.json.

    The folder may hold a run that has no checkpoint yet, or any run if ``overwrite`` is given; its files are removed.
    ``snapshots``: at how many moments the weights are kept, for a film of the learning.
    """
    require_snapshots(config, snapshots)
    folder = RunFolder(out)
    if is_main_process():
        folder.require_free(overwrite)
    # Built before the folder is made: what cannot be built leaves none.
    trainer = Trainer(config, folder, console, title or title_of(config), model)
    trainer.snapshots = snapshots
    kept: dict[str, str] = getattr(trainer.task, "files_to_keep", dict)() if trainer.is_main else {}
    with _owned(folder), lost_processes_told(trainer.resumed_by):
        if trainer.is_main:
            RunFolder.create(out, config, overwrite).keep(kept)
        return trainer.run()


def require_snapshots(config: RunConfig, snapshots: int) -> None:
    require(snapshots >= 0, f"--snapshots must not be negative, but is {snapshots}.")
    shared = "A model that is shared out between processes keeps no snapshots; leave out --snapshots."
    require(snapshots == 0 or config.backend.sharding == "none", shared)


def resume_run(
    out: Path,
    console: Console | None = None,
    title: str | None = None,
    model: nn.Module | None = None,
    snapshots: int = 0,
) -> dict[str, Any]:
    """Go on with the run in a folder from its newest whole checkpoint; ``snapshots`` as for `start_run`."""
    folder, config = RunFolder.open(out)
    require_snapshots(config, snapshots)
    trainer = Trainer(config, folder, console, title or title_of(config), model)
    trainer.snapshots = snapshots
    with _owned(folder), lost_processes_told(trainer.resumed_by):
        trainer.restore()
        if trainer.is_main and trainer.accelerator.device.type == "cpu":
            _say_other_threads(trainer.console, checkpoint.threads(folder.checkpoints), trainer.step)
        return trainer.run()


def resume(run_dir: str | Path, model: nn.Module | None = None, console: Console | None = None) -> Run:
    """Go on with a run where it was, bit for bit, and return it; ``model`` as for `train`, at any state.

    A module of your own that draws random numbers as it runs (dropout) goes on, but with other numbers.
    """
    require(isinstance(run_dir, str | Path), f"A run is resumed by the path of its folder, not by {run_dir!r}.")
    resume_run(Path(run_dir), console, model=model)
    return load(run_dir, model)


def _say_other_threads(console: Console, before: int | None, step: int) -> None:
    """Sums are split between threads, so that another number of them rounds otherwise."""
    now = torch.get_num_threads()
    if before not in (None, now):
        console.print(
            f"Up to step {step} this run was computed on {_threads(before)} and goes on with {now}: its figures will "
            f"differ in their last digits from those of a run on either (--threads {before} avoids that).",
            highlight=False,
            soft_wrap=True,
        )


def _threads(number: int | None) -> str:
    return "1 thread" if number == 1 else f"{number} threads"


def title_of(config: RunConfig) -> str:
    return f"{config.model_name} on {config.task}"


def _owned(folder: RunFolder) -> AbstractContextManager[None]:
    """The folder to this run alone; of several processes the first one holds it for all."""
    return folder.lock() if is_main_process() else nullcontext()
