"""Edges that were once wrong: resuming, interrupting, damaged files, odd logits, splits that leave the vocabulary."""

import io
import json
import math
import shlex
import signal
from dataclasses import replace

import pytest
import torch
from rich.console import Console

import mapformers as mf
from mapformers.cli.main import main
from mapformers.model import model_config
from mapformers.runs import checkpoint
from mapformers.runs.config import RunConfig, TrainConfig
from mapformers.runs.folder import RunFolder
from mapformers.tasks.navigation import NavigationSettings
from mapformers.training import loop
from mapformers.training.loop import Trainer
from mapformers.training.optimizer import build_optimizer
from mapformers.training.train import resume_run as resume
from mapformers.training.train import start_run as train

TRAIN = TrainConfig(
    sequences=48,
    batch_size=4,
    warmup_steps=2,
    log_every=1,
    eval_every=4,
    eval_sequences=8,
    final_sequences=8,
    checkpoint_every=5,
)


def tiny(**k):
    return RunConfig(
        "navigation",
        NavigationSettings(steps=8, grid=4),
        model_config("mapwm", vocab_size=21, d_model=16),
        replace(TRAIN, **k),
        0,
    )


def quiet():
    return Console(file=io.StringIO())


def generator():
    return torch.Generator().manual_seed(0)


def test_cli_resume(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sizes = "--steps 8 --grid 4 --d-model 16 --sequences 32 --eval-sequences 4 --final-sequences 8"
    line = f"train --task navigation --model mapwm --scale smoke {sizes} --out mine"
    assert main(shlex.split(line)) == 0
    first = capsys.readouterr().out
    assert main(shlex.split("train --task navigation --model mapwm --resume --out mine")) == 0
    assert capsys.readouterr().out == first


def test_options_of_show_may_come_first(capsys):
    printed = []
    for line in ("show --seed 3 navigation", "show navigation --seed 3", "show --seed 4 navigation"):
        assert main(shlex.split(line)) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != printed[2]


def weights(folder):
    return (folder / "checkpoints/step-00000012/weights.safetensors").read_bytes()


def measured(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    times = ("sequences_per_second", "seconds")
    return [{key: value for key, value in line.items() if key not in times} for line in lines]


PLACES = {
    "after optimizer.step": lambda trainer: (trainer.optimizer, "step", 8, True),
    "in evaluate": lambda trainer: (loop, "evaluate", 2, False),
    "in append_metrics": lambda trainer: (trainer.folder, "append_metrics", 8, False),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(tiny(), folder, quiet())
    return folder


@pytest.mark.parametrize("place", PLACES)
def test_an_interruption_anywhere_in_a_step_is_exact(tmp_path, monkeypatch, whole, place):
    trainer = Trainer(tiny(), RunFolder.create(tmp_path / "stopped", tiny()), quiet())
    owner, name, at, afterwards = PLACES[place](trainer)
    original, calls = getattr(owner, name), []

    def interrupted(*args, **kwargs):
        calls.append(name)
        if len(calls) == at and not afterwards:
            raise KeyboardInterrupt
        result = original(*args, **kwargs)
        if len(calls) == at:
            raise KeyboardInterrupt
        return result

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            trainer.run()
    resume(tmp_path / "stopped", quiet())
    assert weights(whole) == weights(tmp_path / "stopped")
    assert measured(whole) == measured(tmp_path / "stopped")


def test_ctrl_c_finishes_the_step_saves_and_says_how_to_go_on(tmp_path, monkeypatch, whole):
    folder, console = tmp_path / "stopped", quiet()
    trainer = Trainer(tiny(), RunFolder.create(folder, tiny()), console)
    original = trainer.task.loss

    def pressed(*args):
        if trainer.step == 7:
            signal.raise_signal(signal.SIGINT)
        return original(*args)

    monkeypatch.setattr(trainer.task, "loss", pressed)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    assert signal.getsignal(signal.SIGINT) is before
    assert (folder / "checkpoints/step-00000008").is_dir()
    assert "--resume" in console.file.getvalue()
    resume(folder, quiet())
    assert weights(whole) == weights(folder)
    assert measured(whole) == measured(folder)


def test_save_survives_damaged_newer_ones(tmp_path):
    model = mf.build_model("mapwm", vocab_size=21, d_model=16)
    opt = build_optimizer(model, TRAIN)
    for step in (10, 20):
        checkpoint.save(tmp_path, step, model, opt, {})
    for step in (10, 20):
        (tmp_path / f"step-{step:08d}/weights.safetensors").write_bytes(b"")
    path = checkpoint.save(tmp_path, 5, model, opt, {"seconds": 0})
    assert path.exists()
    assert checkpoint.latest(tmp_path)[0] == path


def test_nan_weights_do_not_replace_good_checkpoints(tmp_path, monkeypatch):
    c = tiny(log_every=10, eval_every=100, checkpoint_every=2)
    t = Trainer(c, RunFolder.create(tmp_path, c), quiet())
    original = t.task.loss
    monkeypatch.setattr(t.task, "loss", lambda *a: original(*a) * (math.nan if t.step == 4 else 1))
    with pytest.raises(mf.UserError):
        t.run()
    folder, config = RunFolder.open(tmp_path)
    model, step, _ = folder.load_model(config)
    assert all(bool(p.isfinite().all()) for p in model.parameters()), step


@pytest.mark.parametrize("split", [{"dims": 3}, {"n_objects": 40}], ids=str)
def test_a_split_may_not_leave_the_vocabulary(split):
    with pytest.raises(mf.UserError, match="keep dims and n_objects"):
        mf.build_task("navigation", dims=2).sample(split, 4, generator())


def test_a_world_with_more_cells_than_numbers_is_refused():
    with pytest.raises(mf.UserError, match="too many cells"):
        mf.build_task("navigation", dims=5, grid=65536)


@pytest.fixture
def task():
    return mf.build_task("navigation", steps=16, grid=4)


def test_logits_of_two_or_four_dimensions_are_refused(task):
    with pytest.raises(mf.UserError, match=r"with logits \(2, 31, 21\), not \(2, 31\)"):
        mf.evaluate(lambda t: t.float(), task, n_sequences=2)
    with pytest.raises(mf.UserError, match=r"with logits \(2, 31, 21\), not \(2, 31, 1, 21\)"):
        mf.evaluate(lambda t: torch.zeros(*t.shape, 1, 21), task, n_sequences=2)


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_of_no_sequences_is_refused(task, size):
    with pytest.raises(mf.UserError, match=f"batch_size must be at least 1, not {size}"):
        mf.evaluate(lambda t: torch.zeros(*t.shape, 21), task, n_sequences=2, batch_size=size)


def test_a_negative_seed_is_refused(task):
    with pytest.raises(mf.UserError, match="seed must not be negative"):
        mf.evaluate(lambda t: torch.zeros(*t.shape, 21), task, n_sequences=2, seed=-1)


def test_submodule_modes(task):
    m = torch.nn.Sequential(torch.nn.Embedding(21, 21), torch.nn.Dropout())
    m.train()
    m[1].eval()
    mf.evaluate(m, task, n_sequences=2)
    assert m.training and not m[1].training


def test_json_is_json(tmp_path):
    c = replace(tiny(), task_settings=NavigationSettings(steps=4, grid=4, p_empty=1.0))
    train(c, tmp_path, quiet())
    for name in ("result.json",):
        json.loads((tmp_path / name).read_text(), parse_constant=lambda x: pytest.fail(x))


def test_first_speed(whole):
    assert json.loads((whole / "metrics.jsonl").read_text().splitlines()[0])["sequences_per_second"] > 0
