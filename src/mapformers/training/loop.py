"""The training loop: sample, predict, step; log, measure, save."""

import copy
import math
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from rich.console import Console
from torch import nn

from mapformers.errors import UserError, require
from mapformers.evaluation import check_logits, evaluate, evaluate_splits
from mapformers.files import write_json
from mapformers.progress import StageDisplay, TrainingProgress
from mapformers.runs import checkpoint, snapshots
from mapformers.runs.config import RunConfig, TrainConfig
from mapformers.runs.folder import RunFolder
from mapformers.runs.moments import is_shard
from mapformers.runs.provenance import provenance
from mapformers.seeding import generator
from mapformers.signals import Requests, noted
from mapformers.stages import watched_by
from mapformers.tasks import Batch, Metric
from mapformers.training.backend import describe, is_main_process, prepare, start, tracking
from mapformers.training.movement_log import movement_sizes
from mapformers.training.optimizer import build_optimizer, set_learning_rate
from mapformers.training.read_ahead import MakeBatches, ReadAhead
from mapformers.training.sharding import let_go, shard
from mapformers.training.zero_mean import zero_mean_movement


class CutShort(Exception):
    """A measurement was given up between two batches, because the run was asked to stop."""


class Trainer:
    """One run in a folder. Batch number n is a function of (seed, n), so a run can stop and resume at any step.

    Several processes (`torchrun`, `accelerate launch`) each take their part of every batch; the first of them
    speaks, measures and writes for all. If the model is sharded, all of them measure and write, since none has all of
    it. ``model``: a module of one's own from tokens to logits.
    """

    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder,
        console: Console | None = None,
        title: str = "training",
        model: nn.Module | None = None,
    ):
        self.config, self.folder, self.title = config, folder, title
        self.console = (console or Console(stderr=True)) if is_main_process() else Console(quiet=True)
        self.task = config.build_task()
        self.model = config.build_model() if model is None else self._checked(model)
        self.accelerator = start(config.backend, folder.path)
        self.sharded = config.backend.sharding == "full" and self.accelerator.num_processes > 1
        if self.sharded:
            self.model = shard(copy.deepcopy(self.model) if model is not None else self.model, self.accelerator.device)
        self.optimizer = build_optimizer(self.model, config.train)
        self.parallel, self.stepper = prepare(self.accelerator, self.model, self.optimizer, self.sharded)
        self.parts = self.accelerator.num_processes * config.backend.accumulate
        batch = config.train.batch_size
        require(
            batch % self.parts == 0,
            f"A batch of {batch} cannot be cut into {self.parts} equal parts (processes times --accumulate); choose a "
            f"--batch-size that {self.parts} divides.",
        )
        self.batches_of: MakeBatches = self._make_batches
        if config.backend.read_ahead:
            self.batches_of = ReadAhead(self._make_batches, config.train.steps)
        self.snapshots = 0  # moments at which the weights are kept for those who want to see it learn
        self.step = 0
        self.seconds = 0.0  # wall time of the run up to its last checkpoint, breaks left out
        self.started = time.monotonic()

    def _checked(self, model: nn.Module) -> nn.Module:
        """A module of the user's own, once it has shown that it answers tokens with logits and can learn."""
        require(any(p.requires_grad for p in model.parameters()), "The model has no parameter that could be trained.")
        batch = self.task.sample("iid", 1, generator(self.config.seed, "check"))
        device, training = next(model.parameters()).device, model.training
        model.eval()  # nothing that it counts or draws as it learns
        try:
            with torch.no_grad():
                output = batch.to(device).read_by(model)
        except Exception as error:  # whatever a user's module may do
            raise UserError(f"The model cannot read tokens {tuple(batch.tokens.shape)}: {error}") from error
        finally:
            model.train(training)
        check_logits(output, batch.tokens, self.task)
        return model

    @property
    def is_main(self) -> bool:
        return self.accelerator.is_main_process

    def restore(self) -> None:
        """Go back to the newest whole checkpoint, or to the beginning if the run has not come to its first."""
        path, complaints = self._from_main(lambda: checkpoint.latest(self.folder.checkpoints))
        if path is None and complaints:
            raise UserError(f"{' '.join(complaints)} None is whole; start anew with --overwrite or another --out.")
        for complaint in complaints:
            self._say(complaint)
        if path is not None:
            checkpoint.load_weights(path, self.model)
            checkpoint.load_optimizer(path, self.optimizer, self.model)
            facts = checkpoint.manifest(path)
            self.step, self.seconds = facts["step"], facts["seconds"]
        self.accelerator.wait_for_everyone()
        if self.is_main:
            checkpoint.tidy(self.folder.checkpoints)
            for complaint in self.folder.keep_metrics_up_to(self.step):
                self._say(complaint)

    def run(self) -> dict[str, Any]:
        """Train to the end, measure every split, write result.json and return its content.

        Ctrl-C and SIGTERM let the step under way finish and save before the run stops; a measurement is cut short, and
        made up when the run goes on. Anything harsher leaves the newest checkpoint. A run that was at its end keeps
        its result.json, unless figures are missing there.
        """
        began = self.step
        self.started = time.monotonic() - self.seconds
        hardware = describe(self.accelerator, self.config.backend)
        self.provenance = provenance(
            hardware, self.config
        )  # of the sources as they are now, whatever is edited meanwhile
        self.model.train()
        with noted() as requests:
            try:
                with (
                    tracking(self.accelerator, {"title": self.title, "seed": self.config.seed}, self.step),
                    self._progress() as progress,
                ):
                    progress.say(_in_words(hardware))
                    if began == 0 and self.config.train.steps <= self.config.train.warmup_steps:
                        progress.say(_only_warms_up(self.config.train))
                    self._learn(progress, requests)
            finally:
                zero_mean_movement(self.model, False)
            # A finished run may be resumed.
            if not self._from_main(lambda: checkpoint.is_whole(self.folder.checkpoints, self.step)):
                self._save()
            splits = self.task.splits
            there = self._from_main(lambda: self.folder.whole_result(self.step, splits)) if began == self.step else None
            with watched_by(StageDisplay(self.console) if self.is_main else None):
                measured = {} if there or not self._measures else self._measure(requests)
            result: dict[str, Any] = self._from_main(lambda: there or measured)
            if not result:
                self._say(f"Stopped at the last measurement; {self.resumed_by}")
                raise requests.stopped()
        return result

    def _learn(self, progress: TrainingProgress, requests: Requests) -> None:
        """Every step that is left, unless the run is asked to stop."""
        train = self.config.train
        if self._is_measured_at(self.step) and not self._from_main(self._has_measured):
            self._evaluate(requests)  # it was cut short
        asked = self._any(bool(requests))
        while self.step < train.steps and not asked:
            self._one_step(progress)
            if self.snapshots and self.is_main and self.step in snapshots.moments(train.steps, self.snapshots):
                snapshots.save(self.folder.path, self.step, self.model)
            if self._is_measured_at(self.step):
                self._evaluate(requests)
            asked = self._any(bool(requests))
            if self.step % train.checkpoint_every == 0 and self.step < train.steps and not asked:
                self._save()
        if asked:
            self._save()
            progress.say(f"Stopped after step {self.step}; {self.resumed_by}")
            raise requests.stopped()

    def _is_measured_at(self, step: int) -> bool:
        return step > 0 and (step % self.config.train.eval_every == 0 or step == self.config.train.steps)

    def _has_measured(self) -> bool:
        """Whether metrics.jsonl has the measurement of the step that the run is at."""
        return any(line["step"] == self.step and "split" in line for line in self.folder.metrics())

    def _measure(self, requests: Requests) -> dict[str, Any]:
        """The content of result.json, once it is written; empty if the run was asked to stop before."""
        train = self.config.train
        if self.config.backend.precision != "float32":  # `mapformers eval` and others read the weights as float32
            self.accelerator.unwrap_model(self.parallel, keep_fp32_wrapper=False)
        try:
            with self._until(requests):
                splits = evaluate_splits(self.model, self.task, n_sequences=train.final_sequences)
        except CutShort:
            return {}
        result = {
            "splits": splits,
            "steps": self.step,
            "sequences": self.step * train.batch_size,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "seed": self.config.seed,
            "wall_seconds": round(self.seconds, 1),
            **self.provenance,
        }
        if self.is_main:
            write_json(self.folder.result_file, result)
        return result

    def _progress(self) -> TrainingProgress:
        train = self.config.train
        return TrainingProgress(
            self.title,
            train.steps,
            self.step,
            train.batch_size,
            self.console,
            metric=self.task.main_metric,
            unit=self.task.unit,
        )

    def _one_step(self, progress: TrainingProgress) -> None:
        train = self.config.train
        rate = set_learning_rate(self.optimizer, self.step, train)
        zero_mean_movement(self.model, self.step < train.zero_mean_steps)
        self.optimizer.zero_grad(set_to_none=True)
        logged = (self.step + 1) % train.log_every == 0 or self.step + 1 == train.steps
        loss, scores = 0.0, []
        for batch, weight in self._parts_of_batch():
            with self.accelerator.accumulate(self.parallel):
                output = batch.read_by(self.parallel)
                logits = getattr(output, "logits", output)
                part = self.task.loss(logits, batch) * weight if weight else 0.0 * logits.sum()
                self.accelerator.backward(part)
                loss += part.item()
                if logged:
                    scores.append(self.task.score(logits.detach(), batch)[self.task.main_metric])
        norm = self._clipped_norm()
        self._require_finite(loss, "loss")
        self._require_finite(norm, "gradient")
        self.stepper.step()
        self.step += 1
        if logged:
            self._log(progress, loss / self.parts, Metric.join(scores), norm, rate)

    def _parts_of_batch(self) -> Iterator[tuple[Batch, float]]:
        """This process's parts of the batch, each with its weight: how many of the targets are in it, 1 on average.

        The mean over parts of loss × weight is then the mean over all targets, however they are distributed.
        """
        batches = self.batches_of(self.step)
        if self.parts == 1:
            yield batches[0].to(self.accelerator.device), 1.0
            return
        counts = [batch.loss_mask.sum() for batch in batches]
        total = self.accelerator.reduce(torch.stack(counts).sum().to(self.accelerator.device)).item()
        for batch, count in zip(batches, counts):
            yield batch.to(self.accelerator.device), count.item() * self.parts / max(1, total)

    def _clipped_norm(self) -> float:
        """The norm of the gradient, over all processes where each has its part of it, before it is clipped."""
        norm = self.accelerator.clip_grad_norm_(self.model.parameters(), self.config.train.clip)
        return float(norm.full_tensor() if is_shard(norm) else norm)

    def _make_batches(self, step: int) -> list[Batch]:
        """This process's parts of the batch of a step."""
        first, here = self.accelerator.process_index * self.config.backend.accumulate, self.config.backend.accumulate
        size, seed = self.config.train.batch_size, self.config.seed
        return [self.task.training_batch(size, seed, step, (part, self.parts)) for part in range(first, first + here)]

    def _require_finite(self, value: float, name: str) -> None:
        """Stop before an update that would spoil the weights."""
        if not math.isfinite(value):
            rate = self.config.train.lr
            raise UserError(f"The {name} became {value} at step {self.step}; lower --lr (now {rate:g}).")

    def _log(self, progress: TrainingProgress, loss: float, score: Metric, norm: float, rate: float) -> None:
        loss, score = self._over_processes(loss, score)
        record = {"step": self.step, "loss": loss, self.task.main_metric: float(score), "lr": rate, "grad_norm": norm}
        progress.update(self.step, loss, float(score))
        self._write({**record, "sequences_per_second": float(f"{progress.speed:.4g}")}, "train")

    def _over_processes(self, loss: float, score: Metric) -> tuple[float, Metric]:
        """The loss and the score of the whole batch, from those of each process's parts."""
        if self.accelerator.num_processes == 1:
            return loss, score
        right = float(score) * score.count if score.count else 0.0
        sums = torch.tensor([loss, right, score.count], device=self.accelerator.device)
        total, right, count = self.accelerator.reduce(sums).tolist()
        return total, Metric(right / count if count else float("nan"), int(count))

    @property
    def _measures(self) -> bool:
        """Whether this process takes part in measuring: the first one does, and all of them if none has all weights."""
        return self.is_main or self.sharded

    def _evaluate(self, requests: Requests) -> None:
        if self._measures:
            train, seed = self.config.train, self.config.seed + 1
            split = self.task.watched_split
            try:
                with self._until(requests):
                    scores = evaluate(self.model, self.task, split, n_sequences=train.eval_sequences, seed=seed)
            except CutShort:
                return
            figures = {name: float(value) for name, value in scores.items()}
            if not self.sharded:  # no process has the weights of a whole layer
                figures |= movement_sizes(self.model, self.task)
            self._write({"step": self.step, "split": split, **figures, "seconds": round(self._elapsed(), 1)}, split)

    @contextmanager
    def _until(self, requests: Requests) -> Iterator[None]:
        """A measurement within it is cut short before the next batch once the run is asked to stop."""

        def look(*_: object) -> None:
            if self._any(bool(requests)) if self.sharded else requests:
                raise CutShort

        handle = self.model.register_forward_pre_hook(look, prepend=True)  # before sharded weights are put together
        try:
            yield
        finally:
            handle.remove()
            if self.sharded:
                let_go(self.model)

    def _write(self, record: dict[str, Any], where: str) -> None:
        """One line of metrics.jsonl, and the same to the trackers."""
        if self.is_main:
            self.folder.append_metrics(record)
            figures = {f"{where}/{k}": v for k, v in record.items() if k not in ("step", "split")}
            self.accelerator.log(figures, step=self.step)

    def _any(self, asked: bool) -> bool:
        """Whether any of the processes was asked to stop: all of them must then."""
        if self.accelerator.num_processes == 1:
            return asked
        return bool(self.accelerator.reduce(torch.tensor(int(asked), device=self.accelerator.device)).item())

    def _from_main(self, find: Callable[[], Any]) -> Any:
        """What the first process finds, told to all of them."""
        found = [find() if self.is_main else None]
        if self.accelerator.num_processes > 1:
            broadcast_object_list(found)
        return found[0]

    @property
    def resumed_by(self) -> str:
        command = f"go on with: mapformers train --resume --out {shlex.quote(str(self.folder.path))}"
        several = " (with torchrun … -m before it for several processes)"
        return command + several if self.accelerator.num_processes > 1 else command

    def _say(self, message: str) -> None:
        self.console.print(message, highlight=False, soft_wrap=True)

    def _save(self) -> None:
        self.seconds = self._elapsed()
        what = self.folder.checkpoints, self.step, self.model, self.optimizer, {"seconds": self.seconds}
        if self.sharded:
            checkpoint.save_shards(*what, last=self.step == self.config.train.steps)
        elif self.is_main:
            checkpoint.save(*what)

    def _elapsed(self) -> float:
        return time.monotonic() - self.started


def _in_words(hardware: dict[str, Any]) -> str:
    """Training on cpu, 2 threads, float32."""
    shared = " that share out the model" if hardware.get("sharding") == "full" else ""
    processes = f"{hardware['processes']} processes{shared}, " if hardware["processes"] > 1 else ""
    plural = "s" if hardware["threads"] > 1 else ""
    threads = f"{hardware['threads']} thread{plural}, " if hardware["device"] == "cpu" else ""
    compiled = ", compiled" if hardware["compiled"] else ""
    name = hardware.get("name", hardware["device"])
    return f"Training on {name}, {processes}{threads}{hardware['precision']}{compiled}."


def _only_warms_up(train: TrainConfig) -> str:
    steps = f"all {train.steps:,} steps are" if train.steps > 1 else "the only step is"
    few = f"{steps} within the {train.warmup_steps:,} of the warm-up"
    return f"The learning rate only rises: {few}; choose fewer --warmup-steps, or a longer run."
