"""The training loop: sample, predict, step; log, measure, save."""

import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from rich.console import Console
from torch import nn

from mapformers.errors import UserError
from mapformers.evaluation import evaluate
from mapformers.seeding import generator
from mapformers.tasks import Batch, Metric
from mapformers.training import checkpoint
from mapformers.training.files import write_json
from mapformers.training.optimizer import build_optimizer, set_learning_rate
from mapformers.training.progress import TrainingProgress
from mapformers.training.run import RunConfig, RunFolder, provenance, without_nan


class Trainer:
    """One run in a folder. Batch number n is a function of (seed, n), so a run can stop and go on anywhere."""

    def __init__(self, config: RunConfig, folder: RunFolder, console: Console | None = None, title: str = "training"):
        self.config, self.folder, self.title = config, folder, title
        self.console = console or Console(stderr=True)
        self.task = config.build_task()
        self.model = config.build_model()
        self.optimizer = build_optimizer(self.model, config.train)
        self.step = 0
        self.seconds = 0.0  # wall time of all processes that worked on the run, up to the last checkpoint

    def restore(self) -> None:
        """Go back to the newest whole checkpoint, or to the beginning if the run has not come to its first."""
        path, complaints = checkpoint.latest(self.folder.checkpoints)
        if path is None and complaints:
            raise UserError(f"{' '.join(complaints)} None is whole; start anew with another --out.")
        for complaint in complaints:
            self.console.print(complaint, highlight=False, soft_wrap=True)
        checkpoint.set_damaged_aside(self.folder.checkpoints)
        if path is not None:
            checkpoint.load_weights(path, self.model)
            checkpoint.load_optimizer(path, self.optimizer)
            facts = checkpoint.manifest(path)
            self.step, self.seconds = facts["step"], facts["seconds"]
        self.folder.keep_metrics_up_to(self.step)

    def run(self) -> dict[str, Any]:
        """Train to the end, measure every split, write result.json and return its content.

        Ctrl-C lets the step under way finish and saves before it stops; anything harsher leaves the newest checkpoint.
        """
        train = self.config.train
        started = time.monotonic() - self.seconds
        with (
            interruptible() as asked_to_stop,
            self._progress() as progress,
        ):
            while self.step < train.steps:
                self._one_step(progress)
                if asked_to_stop():
                    self._save(time.monotonic() - started)
                    progress.say(f"Stopped after step {self.step}; go on with: {self._resume_command()}")
                    raise KeyboardInterrupt
                if self.step % train.checkpoint_every == 0 and self.step < train.steps:
                    self._save(time.monotonic() - started)
        self._hold_paths_still(False)
        if not checkpoint.is_whole(self.folder.checkpoints, self.step):  # a finished run may be resumed
            self._save(time.monotonic() - started)
        result = {
            "splits": measure_splits(self.model, self.config, n_sequences=train.final_sequences),
            "steps": self.step,
            "sequences": self.step * train.batch_size,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "seed": self.config.seed,
            "wall_seconds": round(self.seconds, 1),
            **provenance(),
        }
        write_json(self.folder.result_file, result)
        return result

    def _progress(self) -> TrainingProgress:
        train = self.config.train
        return TrainingProgress(
            self.title, train.steps, self.step, train.batch_size, self.console, metric=self.task.main_metric
        )

    def _one_step(self, progress: TrainingProgress) -> None:
        train = self.config.train
        rate = set_learning_rate(self.optimizer, self.step, train)
        self._hold_paths_still(self.step < train.driftless_steps)
        batch = self.task.sample("iid", train.batch_size, generator(self.config.seed, "train", self.step))
        logits = self.model(batch.tokens)
        loss = self.task.loss(logits, batch)
        self._require_finite(loss, "loss")
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), train.clip)
        self._require_finite(norm, "gradient")
        self.optimizer.step()
        self.step += 1
        if self.step % train.log_every == 0 or self.step == train.steps:
            self._log(progress, batch, logits.detach(), loss.item(), norm.item(), rate)
        if self.step % train.eval_every == 0 or self.step == train.steps:
            scores = evaluate(self.model, self.task, "iid", n_sequences=train.eval_sequences, seed=self.config.seed + 1)
            self.folder.append_metrics({"step": self.step, "split": "iid", **{k: float(v) for k, v in scores.items()}})

    def _require_finite(self, value: torch.Tensor, name: str) -> None:
        """Stop before an update that would spoil the weights."""
        if not torch.isfinite(value):
            rate = self.config.train.lr
            raise UserError(f"The {name} became {value.item()} at step {self.step}; lower --lr (now {rate:g}).")

    def _hold_paths_still(self, still: bool) -> None:
        for module in self.model.modules():
            if hasattr(module, "driftless"):
                module.driftless = still  # type: ignore[assignment]

    def _log(
        self, progress: TrainingProgress, batch: Batch, logits: torch.Tensor, loss: float, norm: float, rate: float
    ) -> None:
        score = float(self.task.score(logits, batch)[self.task.main_metric])
        record = {"step": self.step, "loss": loss, self.task.main_metric: score, "lr": rate, "grad_norm": norm}
        progress.update(self.step, loss, score)
        self.folder.append_metrics({**record, "sequences_per_second": round(progress.speed, 1)})

    def _resume_command(self) -> str:
        names = f"--task {self.config.task} --model {self.config.model.layers[0].name} --seed {self.config.seed}"
        return f"mapformers train {names} --resume --out {shlex.quote(str(self.folder.path))}"

    def _save(self, seconds: float) -> None:
        self.seconds = seconds
        checkpoint.save(self.folder.checkpoints, self.step, self.model, self.optimizer, {"seconds": seconds})


def measure_splits(
    model: nn.Module, config: RunConfig, splits: list[str] | None = None, n_sequences: int = 512, seed: int = 0
) -> dict[str, dict[str, dict[str, Any]]]:
    """Every metric of every split, with its count, as plain data."""
    task = config.build_task()
    return {
        split: {
            name: _plain(metric)
            for name, metric in evaluate(model, task, split, n_sequences=n_sequences, seed=seed).items()
        }
        for split in splits or list(task.splits)
    }


def _plain(metric: Metric) -> dict[str, Any]:
    return {"value": without_nan(float(metric)), "count": metric.count}


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Within it the first Ctrl-C is only noted, for the loop to stop between two steps; the second one interrupts."""
    pressed: list[bool] = []

    def note(signum: int, frame: FrameType | None) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(True)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


def train(config: RunConfig, out: Path, console: Console | None = None, title: str = "training") -> dict[str, Any]:
    """Start a run in a new folder and train it to the end."""
    trainer = Trainer(config, RunFolder(out), console, title)  # a model that cannot be built leaves no folder
    RunFolder.create(out, config)
    return trainer.run()


def resume(out: Path, console: Console | None = None, title: str = "training") -> dict[str, Any]:
    """Go on with the run in a folder, from its newest whole checkpoint."""
    folder, config = RunFolder.open(out)
    trainer = Trainer(config, folder, console, title)
    trainer.restore()
    return trainer.run()
