"""The training loop: sample, predict, step; log, measure, save."""

import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn

from mapformers.errors import UserError
from mapformers.evaluation import evaluate
from mapformers.mixers.path_integrator import PathIntegrator
from mapformers.seeding import generator
from mapformers.tasks import Batch, Metric
from mapformers.training import checkpoint
from mapformers.training.files import write_json
from mapformers.training.optimizer import build_optimizer, set_learning_rate
from mapformers.training.progress import TrainingProgress
from mapformers.training.run import RunConfig, RunFolder, provenance


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
        """Go back to the newest whole checkpoint, if there is one."""
        path, complaints = checkpoint.latest(self.folder.checkpoints)
        for complaint in complaints:
            self.console.print(complaint, highlight=False, soft_wrap=True)
        if path is not None:
            checkpoint.load_weights(path, self.model)
            checkpoint.load_optimizer(path, self.optimizer)
            facts = checkpoint.manifest(path)
            self.step, self.seconds = facts["step"], facts["seconds"]
        self.folder.keep_metrics_up_to(self.step)

    def run(self) -> dict[str, Any]:
        """Train to the end, measure every split, write result.json and return its content."""
        train = self.config.train
        started = time.monotonic() - self.seconds
        with TrainingProgress(self.title, train.steps, self.step, train.batch_size, self.console) as progress:
            try:
                while self.step < train.steps:
                    self._one_step(progress)
                    if self.step % train.checkpoint_every == 0 and self.step < train.steps:
                        self._save(time.monotonic() - started)
            except KeyboardInterrupt:
                self._save(time.monotonic() - started)
                progress.say(f"Stopped after step {self.step}; go on with --resume and --out {self.folder.path}.")
                raise
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

    def _one_step(self, progress: TrainingProgress) -> None:
        train = self.config.train
        rate = set_learning_rate(self.optimizer, self.step, train)
        for module in self.model.modules():
            if isinstance(module, PathIntegrator):
                module.driftless = self.step < train.driftless_steps
        batch = self.task.sample("iid", train.batch_size, generator(self.config.seed, "train", self.step))
        logits = self.model(batch.tokens)
        loss = self.task.loss(logits, batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), train.clip)
        self.optimizer.step()
        self.step += 1
        if self.step % train.log_every == 0 or self.step == train.steps:
            self._log(progress, batch, logits.detach(), loss.item(), norm.item(), rate)
        if self.step % train.eval_every == 0 or self.step == train.steps:
            scores = evaluate(self.model, self.task, "iid", n_sequences=train.eval_sequences, seed=self.config.seed + 1)
            self.folder.append_metrics({"step": self.step, "split": "iid", **{k: float(v) for k, v in scores.items()}})

    def _log(
        self, progress: TrainingProgress, batch: Batch, logits: torch.Tensor, loss: float, norm: float, rate: float
    ) -> None:
        if not loss < float("inf"):  # NaN too
            raise UserError(f"The loss became {loss} at step {self.step}; lower --lr (now {self.config.train.lr:g}).")
        accuracy = float(self.task.score(logits, batch)[self.task.main_metric])
        record = {"step": self.step, "loss": loss, "accuracy": accuracy, "lr": rate, "grad_norm": norm}
        self.folder.append_metrics({**record, "sequences_per_second": round(progress.speed, 1)})
        progress.update(self.step, loss, accuracy)

    def _save(self, seconds: float) -> None:
        self.seconds = seconds
        checkpoint.save(self.folder.checkpoints, self.step, self.model, self.optimizer, {"seconds": seconds})


def measure_splits(
    model: nn.Module, config: RunConfig, splits: list[str] | None = None, n_sequences: int = 512
) -> dict[str, dict[str, dict[str, float]]]:
    """Every metric of every split, with its count, as plain data."""
    task = config.build_task()
    return {
        split: {name: _plain(metric) for name, metric in evaluate(model, task, split, n_sequences=n_sequences).items()}
        for split in splits or list(task.splits)
    }


def _plain(metric: Metric) -> dict[str, float]:
    return {"value": float(metric), "count": metric.count}


def train(config: RunConfig, out: Path, console: Console | None = None, title: str = "training") -> dict[str, Any]:
    """Start a run in a new folder and train it to the end."""
    return Trainer(config, RunFolder.create(out, config), console, title).run()


def resume(out: Path, console: Console | None = None, title: str = "training") -> dict[str, Any]:
    """Go on with the run in a folder, from its newest whole checkpoint."""
    folder, config = RunFolder.open(out)
    trainer = Trainer(config, folder, console, title)
    trainer.restore()
    return trainer.run()
