"""What a run is computed on changes speed, memory and rounding, not the run.

Several processes or several parts to a batch, bfloat16, a compiled model, trackers: against the plain run of the
same config, on this machine's CPU.
"""

import importlib.util
import itertools
import os
import re
import shutil
import signal
import sys
import warnings
from functools import cache, partial
from types import SimpleNamespace

import pytest
import torch
from accelerate.utils import DynamoBackend
from torch._dynamo.utils import counters

import mapformers as mf
from helpers import thorough
from mapformers.cli.main import main
from mapformers.cli.train import parse_train
from mapformers.runs.folder import RunFolder
from mapformers.seeding import generator
from mapformers.tasks.navigation import Navigation
from mapformers.training.loop import Trainer
from runs import (
    assert_same_run,
    command,
    ended,
    free_port,
    largest_difference,
    launch,
    learn_from_some,
    losses,
    metrics,
    quiet,
    run,
    run_in_two_processes,
    splits,
    start_two,
    wait_for_step,
    weights,
)

# The paper's learning rate; for 20 of the 50 steps the path is held still, which is a mean over all processes.
PAPER = {"sequences": 400, "batch_size": 8, "lr": 3e-4, "zero_mean_steps": 20, "log_every": 5, "eval_every": 25}
FREE = PAPER | {"zero_mean_steps": 0}
LAUNCHERS = {
    "torchrun": ("mapwm", ["torch.distributed.run", "--nproc-per-node", "2"]),
    # --cpu would start one process: accelerate shares a CPU run over MPI only
    "accelerate": ("mapem", ["accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]),
}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Runs of one process that several tests compare theirs with, each run once."""

    @cache
    def once(**settings):
        return run(tmp_path_factory.mktemp("alone") / "run", **settings)

    return once


@pytest.mark.parametrize("name", ["torchrun", thorough("accelerate")])
def test_two_processes_train_the_model_that_one_trains(tmp_path, name):
    """`hold_still` included: its mean goes over the whole batch, wherever the parts of it are."""
    model, launcher = LAUNCHERS[name]
    port = ["--master-port" if name == "torchrun" else "--main_process_port", str(free_port())]
    one, two = run(tmp_path / "one", model=model, **PAPER), tmp_path / "two"
    shared = launch([*launcher, *port], command(out=two, model=model, **PAPER))
    assert shared.returncode == 0, shared.stderr
    assert largest_difference(one, two) < 1e-6
    assert shared.stderr.count("Training on cpu, 2 processes, 1 thread, float32.\n") == 1
    assert shared.stdout.count("ood-sparse-32") == 2  # one table of the model, one of the player beside it
    assert [(line["step"], line.get("split")) for line in metrics(two)] == [
        (line["step"], line.get("split")) for line in metrics(one)
    ]
    assert losses(two) == pytest.approx(losses(one), rel=1e-5)
    assert splits(two).keys() == splits(one).keys()


@pytest.mark.parametrize("model", ["mapwm", thorough("mapem")])
def test_two_processes_are_two_parts_of_one_process_bitwise(alone, tmp_path, model):
    two = run_in_two_processes(tmp_path / "two", model=model, **FREE)
    parts = alone(model=model, accumulate=2, **FREE)
    for name, tensor in weights(two).items():
        assert torch.equal(tensor, weights(parts)[name]), name
    assert losses(two) == pytest.approx(losses(parts), rel=1e-6)


def test_a_signal_to_one_of_two_processes_stops_both_and_they_resume_bitwise(tmp_path):
    whole, folder, log = run_in_two_processes(tmp_path / "whole", **PAPER), tmp_path / "run", tmp_path / "log"
    both = start_two(command(out=folder, **PAPER), log)
    wait_for_step(both[0], folder, 5)
    os.kill(both[1].pid, signal.SIGTERM)
    assert [ended(process) for process in both] == [143, 143]
    assert log.read_text().count("Stopped after step") == 1
    assert_same_run(run_in_two_processes(folder, resume=True, **PAPER), whole)


@pytest.mark.parametrize("accumulate", [2, thorough(4)])
def test_a_batch_in_parts_trains_the_same_model(alone, accumulate):
    whole = alone(model="mapwm", **FREE)
    parts = alone(model="mapwm", accumulate=accumulate, **FREE)
    assert 0 < largest_difference(whole, parts) < 2e-6
    assert losses(parts) == pytest.approx(losses(whole), rel=1e-5)


@pytest.fixture
def fewer_targets(monkeypatch):
    """`learn_from_some` for the length of a test."""
    monkeypatch.setattr(Navigation, "draw", Navigation.draw)
    return learn_from_some


def first_gradient(folder, **settings):
    """The gradient of the first step, before it is clipped, and the number of targets in each part of the batch."""
    config = parse_train(command(out=folder, batch_size=8, clip=1e6, **settings)[1:]).compose()
    trainer = Trainer(config, RunFolder.create(folder, config), quiet())
    gradient = {}
    trainer.optimizer.step = lambda *_: gradient.update(
        {n: p.grad.clone() for n, p in trainer.model.named_parameters()}
    )
    counts = [int(batch.loss_mask.sum()) for batch, _ in trainer._parts_of_batch()]
    with trainer._progress() as progress:
        trainer._one_step(progress)
    return gradient, counts


def assert_same_gradient(one, other):
    for name, gradient in one.items():
        torch.testing.assert_close(other[name], gradient, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("accumulate", [4, thorough(2), thorough(8)])
def test_parts_count_by_the_targets_they_have(tmp_path, fewer_targets, accumulate):
    fewer_targets(torch.sqrt)
    whole, (total,) = first_gradient(tmp_path / "whole")
    parts, counts = first_gradient(tmp_path / "parts", accumulate=accumulate)
    assert sum(counts) == total and len(set(counts)) > 1 and 0 not in counts
    assert_same_gradient(whole, parts)


def test_processes_count_by_the_targets_they_have(alone, tmp_path, fewer_targets):
    two = run_in_two_processes(tmp_path / "two", partial(learn_from_some, torch.sqrt), **FREE)
    full = alone(model="mapwm", **FREE)
    fewer_targets(torch.sqrt)
    one = run(tmp_path / "one", **FREE)
    assert largest_difference(one, two) < 1e-6 < 1e-3 < largest_difference(one, full)
    assert losses(two) == pytest.approx(losses(one), rel=1e-5)


def test_a_part_without_targets_counts_for_nothing(tmp_path, fewer_targets):
    fewer_targets(lambda first: (first > 0.8).to(first))
    whole, _ = first_gradient(tmp_path / "whole")
    parts, counts = first_gradient(tmp_path / "parts", accumulate=8)
    assert 0 in counts and 15 in counts
    assert_same_gradient(whole, parts)


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_the_parts_of_a_batch_are_the_batch(parts):
    task = mf.build_task("navigation", steps=9, grid=4)
    whole = task.sample("iid", 8, generator(3, "train"))
    pieces = [task.sample("iid", 8, generator(3, "train"), part=(index, parts)) for index in range(parts)]
    for name in ("tokens", "targets", "loss_mask", "score_mask"):
        assert torch.equal(torch.cat([getattr(piece, name) for piece in pieces]), getattr(whole, name)), name
    for name, tensor in whole.info.items():
        assert torch.equal(torch.cat([piece.info[name] for piece in pieces]), tensor), name


def test_a_batch_that_cannot_be_shared_out_is_refused(tmp_path, capsys):
    assert main(command(out=tmp_path / "run", accumulate=3)) == 2
    assert re.fullmatch(
        r"mapformers: A batch of 4 cannot .* choose a --batch-size that 3 divides\.\n", capsys.readouterr().err
    )
    assert not (tmp_path / "run").exists()
    with pytest.raises(mf.UserError, match="A batch of 8 cannot be cut into 3 equal parts"):
        mf.build_task("navigation").sample("iid", 8, torch.Generator(), part=(0, 3))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The tiny run on the CPU, in the plain way."""
    return run(tmp_path_factory.mktemp("plain") / "run")


def at_call(patch, number, act):
    """Do something when a loss is computed for the n-th time."""
    loss, calls = Navigation.loss, itertools.count(1)

    def watched(self, *args):
        if next(calls) == number:
            act()
        return loss(self, *args)

    patch.setattr(Navigation, "loss", watched)


def run_in_two_goes(folder, monkeypatch, **settings):
    """Stopped by Ctrl-C within a step, then resumed."""
    with monkeypatch.context() as patch:
        at_call(patch, 7, partial(signal.raise_signal, signal.SIGINT))
        assert main(command(out=folder, **settings)) == 130
    assert not (folder / "result.json").exists()
    return run(folder, resume=True, **settings)


def test_bfloat16_trains_float32_weights(plain, tmp_path):
    half = run(tmp_path / "half", precision="bfloat16")
    assert {tensor.dtype for tensor in weights(half).values()} == {torch.float32}
    assert 0 < largest_difference(plain, half) < 0.02
    assert losses(half) != losses(plain)
    assert losses(half) == pytest.approx(losses(plain), rel=0.03)


@pytest.mark.parametrize("settings", [{"precision": "bfloat16"}, {"accumulate": 2}], ids=str)
def test_every_way_resumes_bitwise(tmp_path, monkeypatch, settings):
    whole = run(tmp_path / "whole", **settings)
    assert_same_run(run_in_two_goes(tmp_path / "run", monkeypatch, **settings), whole)


@pytest.fixture
def compiler(monkeypatch):
    """Have `--compile` use a backend of torch.compile, and forget what was compiled."""

    def use(name):
        kinds = SimpleNamespace(INDUCTOR=DynamoBackend(name), NO=DynamoBackend.NO)
        monkeypatch.setattr("mapformers.training.backend.DynamoBackend", kinds)
        torch._dynamo.reset()
        counters.clear()

    with torch._inductor.config.patch(compile_threads=1):
        yield use
    torch._dynamo.reset()


FEW = {"sequences": 32, "lr": 3e-4}


@pytest.mark.skipif(not any(map(shutil.which, ("g++", "gcc", "cc"))), reason="inductor needs a C compiler")
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_a_compiled_run_is_the_plain_one_to_rounding(tmp_path, compiler):
    compiler("INDUCTOR")
    plain = run(tmp_path / "plain", **FEW)
    assert not counters["stats"]
    compiled = run(tmp_path / "compiled", compile=True, **FEW)
    assert counters["stats"]["unique_graphs"] > 0
    assert largest_difference(plain, compiled) < 1e-4
    assert losses(compiled) == pytest.approx(losses(plain), rel=1e-4)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_a_compiled_run_with_the_path_held_still_resumes(tmp_path, monkeypatch, compiler):
    """Without inductor, whose compiling takes long: what is compiled, in how many pieces, and again on resuming."""
    compiler("AOT_EAGER")
    plain = run(tmp_path / "plain", zero_mean_steps=3, **FEW)
    assert not counters["stats"]
    whole = run(tmp_path / "whole", compile=True, zero_mean_steps=3, **FEW)
    assert counters["stats"]["unique_graphs"] > 0
    assert_same_run(run_in_two_goes(tmp_path / "run", monkeypatch, compile=True, zero_mean_steps=3, **FEW), whole)
    assert largest_difference(plain, whole) < 1e-4


def test_a_device_that_is_not_there_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert main(command(out=tmp_path / "run", device="cuda")) == 2
    assert capsys.readouterr().err == "mapformers: There is no cuda device here; leave out --device to use cpu.\n"
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(torch.accelerator.is_available(), reason="auto is not the CPU here")
def test_auto_is_the_cpu_where_there_is_nothing_else(plain, tmp_path):
    assert_same_run(run(tmp_path / "run", device="auto"), plain)


def test_runs_in_one_process_do_not_disturb_each_other(plain, tmp_path):
    other = {"precision": "bfloat16", "accumulate": 2}
    halves = [run(tmp_path / "half", **other)]
    assert_same_run(run(tmp_path / "plain"), plain)
    halves.append(run(tmp_path / "again", **other))
    assert_same_run(*halves)


@pytest.mark.parametrize("name", ["ACCELERATE_GRADIENT_ACCUMULATION_STEPS=2", "ACCELERATE_MIXED_PRECISION=bf16"])
def test_the_environment_has_no_say(plain, tmp_path, monkeypatch, name):
    """Settings that `accelerate config` or another launcher has left are not those of the run."""
    monkeypatch.setenv(*name.split("="))
    assert_same_run(run(tmp_path / "run"), plain)


def events(folder, tag):
    """(step, value) of everything that tensorboard would show under a name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    (place,) = {file.parent for file in folder.rglob("*tfevents*") if file.parent.name == "mapformers"}
    reader = EventAccumulator(str(place)).Reload()
    return [(event.step, event.value) for event in reader.Scalars(tag)]


def test_tensorboard_has_every_loss_once_though_steps_were_taken_twice(plain, tmp_path, monkeypatch):
    """The run ends in step 8 with nothing saved since step 5, and is resumed from there."""
    pytest.importorskip("tensorboard")
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        at_call(patch, 8, sys.exit)
        main(command(out=tmp_path / "run", track="tensorboard"))
    folder = run(tmp_path / "run", resume=True, track="tensorboard")
    assert_same_run(folder, plain)
    steps, values = zip(*events(folder, "train/loss"))
    assert steps == tuple(range(1, 13))
    assert values == pytest.approx(losses(plain), rel=1e-6)
    assert [step for step, _ in events(folder, "iid/accuracy_all_revisits")] == [4, 8, 12]


@pytest.mark.skipif(importlib.util.find_spec("wandb") is not None, reason="wandb is installed")
def test_a_tracker_that_is_not_installed_is_refused(tmp_path, capsys):
    assert main(command(out=tmp_path / "run", track="wandb")) == 2
    assert capsys.readouterr().err == "mapformers: wandb is not installed; pip install wandb, or leave out --track.\n"
    assert not (tmp_path / "run").exists()


def test_a_tracker_that_does_not_exist_is_refused(tmp_path, capsys):
    assert main(command(out=tmp_path / "run", track="nonsense")) == 2
    assert re.fullmatch(r"mapformers: There is no tracker 'nonsense'; choose among .*\.\n", capsys.readouterr().err)
    assert not (tmp_path / "run").exists()
