"""A run leaves the same weights and figures whether or not it was stopped, and never writes over another."""

import io
import json
import math
import re
import shutil
from dataclasses import replace

import pytest
import torch
from rich.console import Console

import mapformers as mf
from mapformers.model import model_config
from mapformers.progress import TrainingProgress
from mapformers.runs.config import RunConfig, TrainConfig
from mapformers.runs.folder import RunFolder
from mapformers.seeding import generator
from mapformers.tasks.navigation import NavigationSettings
from mapformers.training import loop
from mapformers.training.loop import Trainer
from mapformers.training.train import resume_run as resume
from mapformers.training.train import start_run as train
from runs import assert_same_run, metrics, quiet, weights

TRAIN = TrainConfig(
    sequences=48, batch_size=4, warmup_steps=2, log_every=1, eval_every=4, eval_sequences=8, final_sequences=8,
    checkpoint_every=5,
)  # fmt: skip
STEPS = 12


def tiny(seed=0, model="mapwm", **train_settings):
    settings = NavigationSettings(steps=8, grid=4)
    decoder = model_config(model, vocab_size=21, d_model=16)
    return RunConfig("navigation", settings, decoder, replace(TRAIN, **train_settings), seed)


def tree(folder):
    """Every file of a folder with its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that went through without interruption."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    train(tiny(), folder, quiet())
    return folder


def test_the_run_folder(finished):
    names = {"config.json", "metrics.jsonl", "result.json", "checkpoints", ".lock"}
    assert {path.name for path in finished.iterdir()} == names
    assert (finished / ".lock").read_bytes() == b""
    assert {path.name for path in (finished / "checkpoints").iterdir()} == {"step-00000010", "step-00000012"}
    kinds = {path.suffix for path in finished.rglob("*") if path.is_file() and path.name != ".lock"}
    assert kinds == {".json", ".jsonl", ".safetensors"}


def test_the_config_of_a_run_is_read_back_as_it_was(finished):
    assert RunFolder.open(finished)[1] == tiny()


def test_metrics_have_a_line_per_logged_step_and_per_measurement(finished):
    lines = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    logged = [line for line in lines if "loss" in line]
    assert [line["step"] for line in logged] == list(range(1, STEPS + 1))
    for line in logged:
        assert {"step", "loss", "accuracy", "lr", "grad_norm", "sequences_per_second"} == set(line)
        assert 0 < line["loss"] < 10 and 0 <= line["accuracy"] <= 1 and line["grad_norm"] > 0
    measured = [line for line in lines if line.get("split") == "iid"]
    assert [line["step"] for line in measured] == [4, 8, 12]
    assert all({"accuracy", "accuracy_all_revisits"} <= set(line) for line in measured)
    assert len(logged) + len(measured) == len(lines)


def test_the_first_line_is_the_loss_before_any_step(finished):
    config = tiny()
    task, model = config.build_task(), config.build_model()
    batch = task.sample("iid", 4, generator(0, "train", 0))
    first = metrics(finished)[0]
    assert first["loss"] == pytest.approx(task.loss(model(batch.tokens), batch).item(), rel=1e-6)
    assert first["lr"] == pytest.approx(TRAIN.lr / 2)


def test_the_result_names_figures_seed_versions_time_and_machine(finished):
    result = json.loads((finished / "result.json").read_text())
    folder, config = RunFolder.open(finished)
    model, step, complaints = folder.load_model(config)
    assert (step, complaints) == (STEPS, [])
    assert set(result["splits"]) == {"iid", "ood-dense", "ood-sparse", "ood-sparse-32"}
    for split, scores in result["splits"].items():
        measured = mf.evaluate(model, config.build_task(), split, n_sequences=8)
        for name, metric in measured.items():
            assert scores[name]["count"] == metric.count
            assert scores[name]["value"] == pytest.approx(metric, rel=1e-6, nan_ok=True)
    assert result["seed"] == 0
    assert (result["steps"], result["sequences"]) == (12, 48)
    assert result["parameters"] == sum(p.numel() for p in model.parameters())
    assert result["wall_seconds"] >= 0
    assert result["versions"]["torch"] == torch.__version__
    assert {"python", "numpy", "safetensors", "mapformers"} <= set(result["versions"])
    assert {"device", "processor", "cores", "threads"} <= set(result["hardware"])


def test_training_twice_with_one_seed_gives_identical_weights(finished, tmp_path):
    torch.manual_seed(1234)  # the global stream has no say
    train(tiny(), tmp_path / "again", quiet())
    assert_same_run(tmp_path / "again", finished)


def test_another_seed_gives_other_weights_from_the_start(finished, tmp_path):
    train(tiny(seed=1), tmp_path / "other", quiet())
    assert metrics(tmp_path / "other")[0]["loss"] != metrics(finished)[0]["loss"]
    ours, others = weights(finished), weights(tmp_path / "other")
    assert all(not torch.equal(ours[name], others[name]) for name in ("embedding.weight", "head.weight"))


def test_training_never_sees_a_sequence_twice_and_is_measured_on_others(tmp_path, monkeypatch):
    trainer = Trainer(tiny(), RunFolder.create(tmp_path, tiny()), quiet())
    original, drawn = trainer.task.sample, {4: [], 8: []}

    def sample(split, batch_size, stream, **part):
        batch = original(split, batch_size, stream, **part)
        if batch_size in drawn:  # 4 to train on, 8 to measure
            drawn[batch_size].append([tuple(row) for row in batch.tokens.tolist()])
        return batch

    monkeypatch.setattr(trainer.task, "sample", sample)
    trainer.run()
    trained = [row for batch in drawn[4] for row in batch]
    assert len(trained) == len(set(trained)) == 48
    on_the_way, at_the_end = drawn[8][:3], drawn[8][3:]
    assert on_the_way[0] == on_the_way[1] == on_the_way[2]
    assert len(at_the_end) == len(trainer.task.splits)
    assert set(trained).isdisjoint(on_the_way[0]) and set(trained).isdisjoint(at_the_end[0])


def interrupt(monkeypatch, owner, name, call):
    """Ctrl-C at the n-th call of a function."""
    original, calls = getattr(owner, name), []

    def interrupted(*args, **kwargs):
        calls.append(name)
        if len(calls) == call:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, interrupted)


PLACES = {
    "before a step": lambda trainer: (loop, "set_learning_rate", 8),
    "in the first step": lambda trainer: (loop, "set_learning_rate", 1),
    "in the loss": lambda trainer: (trainer.task, "loss", 8),
    "before the update": lambda trainer: (trainer.optimizer, "step", 8),
    "while saving": lambda trainer: (loop.checkpoint, "save", 2),
    "in the last save": lambda trainer: (loop.checkpoint, "save", 3),
    "in the last measurement": lambda trainer: (loop, "evaluate_splits", 1),
}


@pytest.mark.parametrize("place", PLACES)
def test_an_interrupted_run_goes_on_bitwise(finished, tmp_path, monkeypatch, place):
    folder, console = tmp_path / "run", quiet()
    trainer = Trainer(tiny(), RunFolder.create(folder, tiny()), console)
    with monkeypatch.context() as patch:
        interrupt(patch, *PLACES[place](trainer))
        with pytest.raises(KeyboardInterrupt):
            trainer.run()
    assert not (folder / "result.json").exists()
    resume(folder, quiet())
    assert_same_run(folder, finished)


def kill_at(monkeypatch, trainer, step):
    """End the process during a step: unlike Ctrl-C, nothing is saved on the way out."""
    original = trainer.task.loss

    def killed(*args):
        if trainer.step + 1 == step:
            raise SystemExit
        return original(*args)

    monkeypatch.setattr(trainer.task, "loss", killed)


@pytest.mark.parametrize(("step", "saved"), [(8, ["step-00000005"]), (4, [])], ids=["after", "before"])
def test_resume_drops_metrics_after_the_checkpoint_and_measures_them_again(
    finished, tmp_path, monkeypatch, step, saved
):
    folder = tmp_path / "run"
    trainer = Trainer(tiny(), RunFolder.create(folder, tiny()), quiet())
    kill_at(monkeypatch, trainer, step)
    with pytest.raises(SystemExit):
        trainer.run()
    assert [path.name for path in (folder / "checkpoints").iterdir()] == saved
    assert max(line["step"] for line in metrics(folder)) == step - 1
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(f'{{"step": {step}, "lo')  # the line it was writing, cut short
    resume(folder, quiet())
    assert_same_run(folder, finished)


def test_resume_passes_over_a_damaged_checkpoint_and_says_so(finished, tmp_path):
    folder, console = tmp_path / "run", quiet()
    shutil.copytree(finished, folder)
    damaged = folder / "checkpoints/step-00000012"
    whole = (damaged / "weights.safetensors").read_bytes()
    (damaged / "weights.safetensors").write_bytes(whole[:-1])
    resume(folder, console)
    assert f"{damaged} is damaged" in console.file.getvalue()
    assert_same_run(folder, finished)


def test_resuming_a_finished_run_changes_no_figure(finished, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    resume(folder, quiet())
    assert_same_run(folder, finished)


def test_starting_where_a_run_is_leaves_every_file_untouched(finished):
    before = tree(finished)
    with pytest.raises(mf.UserError, match="already holds a run; continue it with --resume, start it anew"):
        train(tiny(seed=3), finished, quiet())
    assert tree(finished) == before


def test_resuming_where_no_run_is_writes_nothing(tmp_path):
    with pytest.raises(mf.UserError, match="There is no folder"):
        resume(tmp_path / "nothing", quiet())
    with pytest.raises(mf.UserError, match="is not a run folder"):
        resume(tmp_path, quiet())
    assert list(tmp_path.iterdir()) == []


def norms_at_update(monkeypatch, trainer):
    """The gradient norm that the optimiser gets to see, step by step."""
    original, norms = trainer.optimizer.step, []

    def step(*args):
        norms.append(math.sqrt(sum(float(p.grad.square().sum()) for p in trainer.model.parameters())))
        original(*args)

    monkeypatch.setattr(trainer.optimizer, "step", step)
    return norms


@pytest.mark.parametrize("clip", [0.125, 1e6], ids=["clipped", "free"])
def test_gradients_are_clipped_to_their_largest_norm(tmp_path, monkeypatch, clip):
    config = tiny(clip=clip)
    trainer = Trainer(config, RunFolder.create(tmp_path, config), quiet())
    seen = norms_at_update(monkeypatch, trainer)
    trainer.run()
    logged = [line["grad_norm"] for line in metrics(tmp_path) if "grad_norm" in line]
    assert min(logged) > 0.125
    assert seen == pytest.approx([min(norm, clip) for norm in logged], rel=1e-4)


def test_a_loss_that_is_not_a_number_ends_the_run_in_one_sentence(tmp_path, monkeypatch):
    trainer = Trainer(tiny(), RunFolder.create(tmp_path, tiny()), quiet())
    original = trainer.task.loss
    monkeypatch.setattr(trainer.task, "loss", lambda *args: original(*args) * (math.nan if trainer.step == 2 else 1))
    with pytest.raises(mf.UserError, match=r"The loss became nan at step 2; lower --lr \(now 0\.003\)"):
        trainer.run()
    assert not (tmp_path / "result.json").exists()
    assert {line["step"] for line in metrics(tmp_path)} == {1, 2}


def test_a_learning_rate_far_too_high_ends_in_that_sentence(tmp_path):
    with pytest.raises(mf.UserError, match="lower --lr"):
        train(tiny(lr=1e30), tmp_path, quiet())


def test_progress_is_plain_lines_where_there_is_no_terminal(tmp_path):
    console = quiet()
    train(tiny(), tmp_path / "run", console, title="mine")
    written = console.file.getvalue()
    where = r"Training on cpu, \d+ threads?, float32\.\n"
    line = r"mine: step 12/12, loss \d\.\d{3}, accuracy \d\.\d{3}, \d+ seq/s, 0:00 left\n"
    assert re.fullmatch(where + line, written), written


def test_a_run_that_is_all_warm_up_says_so_once_as_it_begins(tmp_path, monkeypatch):
    warm_up = r"The learning rate only rises: all 12 steps are within the 12 of the warm-up; choose fewer --warmup-st"
    console, config = quiet(), tiny(warmup_steps=12)
    trainer = Trainer(config, RunFolder.create(tmp_path / "run", config), console)
    kill_at(monkeypatch, trainer, 8)
    with pytest.raises(SystemExit):
        trainer.run()
    lines = console.file.getvalue().splitlines()
    assert lines[0].startswith("Training on cpu") and lines[1].startswith(warm_up)
    console = quiet()
    resume(tmp_path / "run", console)  # with the settings that it has
    assert "warm-up" not in console.file.getvalue()
    train(tiny(warmup_steps=11), tmp_path / "shorter", console)
    assert "warm-up" not in console.file.getvalue()
    train(tiny(sequences=4), tmp_path / "one", console)
    assert "only rises: the only step is within the 2 of the warm-up" in console.file.getvalue()


@pytest.mark.parametrize(("speed", "written"), [(0.0123456, 0.01235), (7.00049, 7.0), (123_456.7, 123_500)])
def test_the_speed_is_recorded_to_four_digits_however_slow_a_run_is(tmp_path, monkeypatch, speed, written):
    monkeypatch.setattr(TrainingProgress, "speed", speed)
    train(tiny(sequences=8), tmp_path / "run", quiet())
    logged = [line for line in RunFolder(tmp_path / "run").metrics() if "loss" in line]
    assert [line["sequences_per_second"] for line in logged] == [written] * 2


def test_progress_is_a_bar_on_a_terminal(tmp_path):
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    train(tiny(), tmp_path / "run", console, title="mine")
    written = console.file.getvalue()
    assert "\x1b[" in written and "━" in written
    assert "12/12" in written and "loss" in written and "seq/s" in written
    assert "step 12/12" not in written


def test_progress_lines_come_at_intervals_and_know_the_time_left(monkeypatch):
    now = 0.0
    monkeypatch.setattr("mapformers.progress.time.monotonic", lambda: now)
    progress = TrainingProgress("mine", steps=100, done=10, batch_size=8, console=quiet())
    now = 14.0
    progress.update(20, 1.75, 0.125)
    assert progress.console.file.getvalue() == ""
    now = 20.0
    progress.update(30, 1.5, 0.25)
    assert progress.console.file.getvalue() == "mine: step 30/100, loss 1.500, accuracy 0.250, 8 seq/s, 1:10 left\n"
