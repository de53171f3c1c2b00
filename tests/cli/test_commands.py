"""Every command as a person types it: what it prints, what it writes, and that no two options share a name."""

import dataclasses
import json
import re
import shlex
import signal
import subprocess
import sys

import pytest
import torch

import mapformers as mf
from helpers import needed, thorough
from inline import Inline
from mapformers.cli import demo as demo_command
from mapformers.cli.main import COMMANDS, entry, main
from mapformers.cli.train import Choice, Sizes, parse_train
from mapformers.launch import local
from mapformers.modules.layer import LAYERS
from mapformers.runs.config import TrainConfig
from mapformers.seeding import generator
from mapformers.tasks import TASKS
from mapformers.tasks.navigation import Navigation

TRAIN = (
    "train --task navigation --model mapwm --scale smoke --steps 8 --grid 4 --d-model 16 "
    "--sequences 32 --eval-sequences 4 --final-sequences 8"
)


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    """Commands run in an empty folder, on a wide terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


@pytest.fixture
def run(capsys):
    """Run a command line that must succeed; what it printed."""

    def run(line):
        assert main(shlex.split(line)) == 0
        return capsys.readouterr().out

    return run


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


def at(config, path):
    """What stands at the end of a path of keys."""
    for key in path:
        config = config[key]
    return config


@pytest.mark.parametrize(
    ("kind", "names"),
    [("models", mf.list_models()), ("tasks", mf.list_tasks()), ("recipes", mf.list_recipes())],
)
def test_list(run, kind, names):
    one, everything = run(f"list {kind}"), run("list")
    for name in names:
        assert re.search(rf"^  {re.escape(name)} +\w", one, re.MULTILINE)
    assert one in everything


@pytest.mark.parametrize("options", ["", "--dims 1", "--dims 3", "--dims 2 --steps 5 --n-objects 30", "--p-empty 0"])
@pytest.mark.parametrize("split", ["iid", "ood-dense", "ood-sparse"])
def test_show_draws_the_sample_of_that_seed(run, options, split):
    settings = {name.strip("-").replace("-", "_"): int(value) for name, value in re.findall(r"(\S+) (\d+)", options)}
    if "p_empty" in settings:
        settings["p_empty"] = float(settings["p_empty"])
    task = mf.build_task("navigation", **settings)
    expected = task.show(split, generator(7, "show"))
    assert run(f"show navigation {options} --split {split} --seed 7").rstrip("\n") == expected.rstrip("\n")


def test_show_lists_every_step_and_brackets_what_is_scored(run):
    task = mf.build_task("navigation", dims=2, steps=20, grid=3, p_empty=0.5)
    batch = task.sample("iid", 1, generator(0, "show"))
    sequence = [*batch.tokens[0].tolist(), int(batch.targets[0, -1])]
    scored = batch.score_mask[0, 0::2].tolist()
    names = [task.token_names[token] for token in sequence]
    pairs = [f"{a} [{o}]" if s else f"{a} {o}" for a, o, s in zip(names[0::2], names[1::2], scored)]
    printed = run("show navigation --steps 20 --grid 3")
    words = [pair for line in printed.split("\n\n")[0].splitlines() for pair in line.split(", ")]
    assert words == pairs
    assert sum(scored) > 0


def test_show_marks_a_start_that_is_not_seen_again(run):
    *drawing, legend = run("show navigation --steps 5 --grid 8").rstrip().splitlines()
    assert any(" S" in line for line in drawing) and legend.startswith("S start")


def test_show_seeds_differ(run):
    assert run("show navigation") == run("show navigation --seed 0") != run("show navigation --seed 1")


def test_train_then_eval_gives_the_same_figures(run, scratch, monkeypatch):
    monkeypatch.setattr("sys.argv", ["mapformers", "train", "--out", "mine"])
    printed = run(f"{TRAIN} --out mine")
    result = json.loads((scratch / "mine/result.json").read_text())
    assert result["command"] == "mapformers train"
    measured = run("eval mine --n-sequences 8")
    for split, scores in result["splits"].items():
        row = [split]
        counts = [[each[name]["count"] for each in result["splits"].values()] for name in scores]
        for score, mine, following in zip(scores.values(), counts, [*counts[1:], None]):
            row += [f"{score['value']:.4f}", *([f"{score['count']}"] if mine != following else [])]  # shared: once
        for output in (printed, measured):
            assert row in [re.split(r"\s*│\s*", line.strip("│ ")) for line in output.splitlines()]


def test_eval_of_chosen_splits(run):
    run(f"{TRAIN} --out mine")
    measured = run("eval mine --splits ood-dense iid --n-sequences 4")
    assert re.findall(r"^│ (\S+)", measured, re.MULTILINE) == 2 * ["ood-dense", "iid"]  # and the player's


def test_train_without_out_goes_to_runs(run, scratch):
    run(f"{TRAIN} --seed 3")
    assert config_of(scratch / "runs/navigation-mapwm-seed3")["seed"] == 3
    assert (scratch / "runs/navigation-mapwm-seed3/result.json").exists()


def test_an_equals_sign_is_as_good_as_a_space(run, scratch):
    run(re.sub(r"(--\S+) ", r"\1=", TRAIN + " ") + "--out=mine")
    assert config_of(scratch / "mine")["task"]["settings"]["steps"] == 8


OVERRIDES = {
    "--rank 3": ("model", "layers", 0, "options", "rank", 3),
    "--no-self-key": ("model", "layers", 0, "options", "self_key", False),
    "--no-learn-omega": ("model", "layers", 0, "options", "learn_omega", False),
    "--attn-temperature 0.5": ("model", "layers", 0, "options", "attn_temperature", 0.5),
    "--n-heads 2": ("model", "n_heads", 2),
    "--head-dim 8": ("model", "head_dim", 8),
    "--d-model 32": ("model", "d_model", 32),
    "--dims 1": ("task", "settings", "dims", 1),
    "--steps 6": ("task", "settings", "steps", 6),
    "--p-empty 0.25": ("task", "settings", "p_empty", 0.25),
    "--max-run 2": ("task", "settings", "max_run", 2),
    "--lr 1e-4": ("train", "lr", 1e-4),
    "--schedule cosine": ("train", "schedule", "cosine"),
    "--batch-size 8": ("train", "batch_size", 8),
    "--weight-decay 0": ("train", "weight_decay", 0.0),
    "--seed 5": ("seed", 5),
}


@pytest.mark.parametrize("option", OVERRIDES)
def test_an_override_reaches_the_config(option):
    *path, expected = OVERRIDES[option]
    assert at(parse_train(shlex.split(f"{TRAIN} {option}")[1:]).compose().to_dict(), path) == expected
    assert at(parse_train(shlex.split(TRAIN)[1:]).compose().to_dict(), path) != expected


def test_overrides_reach_the_config_of_the_run(run, scratch):
    options = [option for option in OVERRIDES if option not in ("--rank 3", "--dims 1")]
    run(f"{TRAIN} --out mine {' '.join(options)}")
    for option in options:
        *path, expected = OVERRIDES[option]
        assert at(config_of(scratch / "mine"), path) == expected, option


def test_layers_and_what_the_task_suggests_reach_the_config(run, scratch):
    run(f"{TRAIN} --out mine --n-layers 3 --dims 3")
    layers = config_of(scratch / "mine")["model"]["layers"]
    assert [layer["name"] for layer in layers] == ["mapwm"] * 3
    assert layers[0]["options"]["rank"] == 3  # one inner dimension per axis
    assert layers[0]["options"]["base"] == 4  # the grid
    assert config_of(scratch / "mine")["model"]["vocab_size"] == 6 + 1 + 16


@pytest.mark.parametrize("model", mf.list_models())
def test_every_model_trains_from_the_command_line(run, scratch, model):
    run(f"{TRAIN} --out mine --model {model}")
    assert json.loads((scratch / "mine/result.json").read_text())["steps"] == 2


@pytest.mark.parametrize("task", mf.list_tasks())
def test_a_scale_is_the_tasks_own_and_budgets_grow(task):
    budgets = []
    for scale in ("smoke", "cpu", "paper"):
        flags = [word for name, value in needed(task).items() for word in (f"--{name}", value)]
        config = parse_train(["--task", task, "--model", "mapwm", "--scale", scale, *flags]).compose()
        assert config.train == TrainConfig(**mf.build_task(task).training(scale))
        budgets.append(config.train.sequences)
    assert budgets == sorted(set(budgets))


EVERY_PAIR = [(task, model) for task in mf.list_tasks() for model in mf.list_models()]


@pytest.mark.parametrize(
    ("task", "model"), [pair if "navigation" in pair or "mapwm" in pair else thorough(*pair) for pair in EVERY_PAIR]
)
def test_help_of_train_shows_the_settings_of_both(capsys, task, model):
    with pytest.raises(SystemExit) as stop:
        main(["train", "--task", task, "--model", model, "--help"])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    for cls in (Choice, Sizes, TASKS[task].settings, LAYERS[model].options, TrainConfig):
        for field in dataclasses.fields(cls):
            assert re.search(rf"--(no-)?{field.name.replace('_', '-')}\b", printed), field.name


@pytest.mark.parametrize("args", [[], ["--help"], ["-h"], ["help"]], ids=["nothing", "--help", "-h", "help"])
def test_help_lists_every_command(capsys, args):
    assert main(args) == 0
    printed = capsys.readouterr().out
    for command in COMMANDS:
        assert re.search(rf"^  {command} +\w", printed, re.MULTILINE)


@pytest.mark.parametrize(("task", "model"), EVERY_PAIR)
def test_flat_option_names_never_collide(task, model):
    classes = (Choice, Sizes, TASKS[task].settings, LAYERS[model].options, TrainConfig)
    names = [field.name for cls in classes for field in dataclasses.fields(cls)]
    assert len(names) == len(set(names)), {name for name in names if names.count(name) > 1}


@pytest.fixture
def _tiny_budget(monkeypatch):
    """Runs of recipes in navigation are tiny, whatever their scale."""
    budget = {"sequences": 16, "batch_size": 4, "eval_sequences": 4, "final_sequences": 8, "zero_mean_steps": 2}
    monkeypatch.setattr(Navigation, "training", lambda task, scale: dict(budget))


@pytest.mark.usefixtures("_tiny_budget")
def test_demo_draws_the_map_and_leaves_an_existing_demo_alone(run, scratch):
    (scratch / "demo").mkdir()
    (scratch / "demo/mine.txt").write_text("keep")
    printed = run("demo --scale smoke --threads 1 --out demo")
    assert [path.name for path in (scratch / "demo").iterdir()] == ["mine.txt"]
    assert {path.name for path in scratch.iterdir()} == {"demo", "demo-2"}
    assert (scratch / "demo-2/map.png").read_bytes().startswith(b"\x89PNG")
    record = json.loads((scratch / "demo-2/demo.json").read_text())
    assert [result["row"] for result in record["runs"]] == ["RoPE (1L)", "MapWM-r2"]
    for result in record["runs"]:
        assert f"{result['splits']['iid']['accuracy']['value']:.3f}" in printed
        assert result["row"] in printed
    assert "demo-2/map.png" in printed
    page = (scratch / "demo-2/explore.html").read_text(encoding="utf-8")  # the models are in it
    assert "demo-2/explore.html" in printed and page.startswith("<!doctype html>") and '"label":"MapWM-r2"' in page


def test_a_demo_in_a_new_place_goes_there(scratch):
    for expected in ("a/demo", "a/demo-2", "a/demo-3"):
        assert demo_command._free_folder(scratch / "a/demo") == scratch / expected
        assert (scratch / expected).is_dir()


def begun_with_two_threads(work):
    """In the place of a process, which begins with a thread for each core, however many it is told to use."""
    torch.set_num_threads(2)
    return Inline(work)


@pytest.mark.usefixtures("_tiny_budget")
def test_reproduce_then_nothing_to_do_then_report(capsys, scratch, monkeypatch):
    monkeypatch.setattr(local, "start_process", begun_with_two_threads)
    line = shlex.split("reproduce table2 --scale smoke --seeds 1 --rows MapWM-r1 --runs runs --results results")
    assert main(line) == 0
    first = capsys.readouterr()
    assert "2 runs to do, 0 done" in first.err
    written = (scratch / "results/table2-smoke.json").read_bytes()
    runs = json.loads(written)["runs"]
    assert [(run["row"], run["world"], run["seed"]) for run in runs] == [("MapWM-r1", "1D", 0), ("MapWM-r1", "2D", 0)]
    assert all(run["hardware"]["threads"] == 1 for run in runs)

    assert main(line) == 0
    second = capsys.readouterr()
    assert "0 runs to do, 2 done" in second.err
    assert (scratch / "results/table2-smoke.json").read_bytes() == written
    assert second.out == first.out

    (scratch / "results/table2.json").write_bytes(written)
    for line in (["report", "table2"], ["report"]):
        assert main(line) == 0
        assert capsys.readouterr().out == first.out
    figures = [
        f"{run['splits']['iid']['accuracy']['value']:.3f} ({paper})" for run, paper in zip(runs, ("1.00", "0.66"))
    ]
    assert all(figure in first.out for figure in figures)


def test_ctrl_c_is_exit_code_130(monkeypatch):
    def interrupted(args):
        raise KeyboardInterrupt

    monkeypatch.setattr("mapformers.cli.listing.main", interrupted)
    assert main(["list"]) == 130


@pytest.fixture
def _own_signals():
    """The console script answers signals in its own way to the end of its process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_own_signals")
def test_the_console_script_exits_with_the_code(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["mapformers", "trian"])
    with pytest.raises(SystemExit) as stop:
        entry()
    assert stop.value.code == 2
    assert capsys.readouterr().err == "mapformers: There is no command named 'trian'; did you mean 'train'?\n"


def test_python_m_mapformers():
    done = subprocess.run(
        [sys.executable, "-m", "mapformers", "list", "models"], capture_output=True, text=True, timeout=120, check=True
    )
    assert all(name in done.stdout for name in mf.list_models())
    assert done.stderr == ""
