"""`mapformers lm train`: presets, a budget in tokens, hybrids, and what the paper's model is."""

import json
import math
import shlex
import shutil
import signal
from pathlib import Path

import pytest
import torch

import mapformers as mf
from helpers import tiny_corpus
from mapformers.cli.lm_train import parse_lm_train
from mapformers.cli.main import main
from mapformers.errors import UserError
from mapformers.lm import prepare, preset
from mapformers.lm.presets import PRESETS
from mapformers.lm.text import Text
from mapformers.runs.config import RunConfig
from runs import quiet


@pytest.fixture(scope="module")
def data():
    return tiny_corpus()


def asked(data, line):
    return parse_lm_train([*shlex.split(line), "--data", data]).compose()


def test_the_paper_preset_is_the_papers_table(data):
    config = asked(data, "--model mapwm --preset paper")
    model, train = config.model, config.train
    assert (len(model.layers), model.d_model, model.head_size, config.task_settings.context) == (12, 768, 64, 1024)
    options = model.layers[0].options
    assert (options.rank, options.base, options.omega_max, options.path_start) == (4, 1024, 1.0, "random")
    assert (train.lr, train.weight_decay, train.warmup_steps, train.batch_size) == (5e-4, 0.1, 4000, 12 * 4)
    assert train.sequences * 1024 == pytest.approx(1e11) and train.steps == pytest.approx(2.03e6, rel=0.01)
    nano = (train.schedule, train.final_lr, train.beta1, train.beta2, train.clip, model.tie_head, options.init)
    assert nano == ("cosine", 0.1, 0.9, 0.95, 1.0, True, "ordinary")
    assert (train.path_lr, train.path_decay) == (1.0, 1.0)
    assert asked(data, "--model rope --preset paper").train == train


def test_other_presets_start_as_rope(data):
    for name in ("cpu", "smoke"):
        config = asked(data, f"--model mapwm --preset {name}")
        assert config.model.layers[0].options.path_start == "rope"
        assert (config.train.path_lr, config.train.path_decay) == (0.1, 0.0)
        assert config.model.d_model == PRESETS[name]["d_model"] and config.backend.read_ahead
    assert asked(data, "--model mapwm") == asked(data, "--model mapwm --preset cpu")


def test_what_is_given_goes_over_the_preset(data):
    config = asked(data, "--model mapwm --preset paper --path-start rope --n-layers 2 --context 64 --lr 1e-3")
    assert config.model.layers[0].options.path_start == "rope" and len(config.model.layers) == 2
    assert (config.task_settings.context, config.train.lr, config.train.warmup_steps) == (64, 1e-3, 4000)
    in_python = RunConfig.compose("text", "mapwm", "paper", defaults=preset("paper"), data=data, lr=1e-3)
    assert in_python == asked(data, "--model mapwm --preset paper --lr 1e-3")


def test_the_budget_is_counted_in_tokens(data):
    config = asked(data, "--model rope --tokens 1000000")
    assert config.train.sequences == 1000000 // 256 and config.train.steps == 1000000 // (256 * 16)
    config = asked(data, "--model rope --tokens 100000 --context 100 --batch-size 10")
    assert (config.train.sequences, config.train.steps) == (1000, 100)


def test_layers_of_a_hybrid_take_what_they_have_a_use_for(data):
    config = asked(data, "--layers mapwm mapem:rank=1,path_start=rope rope --preset paper")
    options = [layer.options for layer in config.model.layers]
    assert [getattr(own, "rank", None) for own in options] == [4, 1, None]
    assert [getattr(own, "path_start", None) for own in options] == ["random", "rope", None]
    assert {own.init for own in options} == {"ordinary"} and config.model.d_model == 768


def test_a_run_and_its_continuation(data, tmp_path, capsys):
    out = tmp_path / "run"
    line = ["lm", "train", "--data", data, "--layers", "mapwm", "rope", "--preset", "smoke", "--out", str(out)]
    assert main([*line, "--tokens", "1024", "--reset-documents"]) == 0
    said = capsys.readouterr()
    assert "perplexity" in said.out and "tokens/s" in said.err and "perplexity" in said.err
    result = json.loads((out / "result.json").read_text())
    assert result["sequences"] * 32 == 1024 and math.isfinite(result["splits"]["val"]["perplexity"]["value"])
    assert main(["lm", "train", "--resume", "--out", str(out)]) == 0
    assert main(["lm", "train", "--resume", "--out", str(out), "--tokens", "9999"]) == 2
    assert "resume" in capsys.readouterr().err
    run = mf.load(out)
    assert run.model(torch.zeros(1, 4, dtype=torch.long)).shape == (1, 4, 257)


def test_a_budget_within_the_papers_warm_up_is_said_at_the_start(data, tmp_path, capsys):
    line = ["lm", "train", "--data", data, "--model", "rope", "--preset", "paper", "--batch-size", "1"]
    line += ["--d-model", "96", "--n-layers", "1", "--context", "16", "--tokens", "48", "--final-sequences", "2"]
    assert main([*line, "--out", str(tmp_path / "run")]) == 0
    said = "The learning rate only rises: all 3 steps are within the 4,000 of the warm-up; choose fewer --warmup-steps"
    assert said in capsys.readouterr().err
    assert main([*line, "--out", str(tmp_path / "other"), "--warmup-steps", "2"]) == 0
    assert "warm-up" not in capsys.readouterr().err


def test_the_papers_twelve_layers_are_stopped_and_go_on_exactly(data, tmp_path, monkeypatch):
    """Narrower than the paper's, but all layers of the preset, with its settings and one sequence a step."""
    line = ["lm", "train", "--data", data, "--model", "mapwm", "--preset", "paper", "--batch-size", "1"]
    line += ["--d-model", "96", "--context", "64", "--tokens", "256", "--final-sequences", "2"]
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert main([*line, "--out", str(whole)]) == 0
    original, calls = Text.loss, []

    def pressed(*args):
        calls.append(args)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        return original(*args)

    with monkeypatch.context() as patch:
        patch.setattr(Text, "loss", pressed)
        assert main([*line, "--out", str(stopped)]) == 130
    assert mf.load(stopped).step == 2
    assert main(["lm", "train", "--resume", "--out", str(stopped)]) == 0
    ends = mf.load(whole).model.state_dict(), mf.load(stopped).model.state_dict()
    assert len(mf.load(stopped).config.model.layers) == 12
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_a_run_follows_its_text_to_another_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_corpus(), "before")
    line = ["lm", "train", "--model", "mapwm", "--preset", "smoke", "--out", "run", "--data"]
    assert main([*line, "before"]) == 0
    Path("before").rename("now")
    capsys.readouterr()
    assert main(["lm", "train", "--resume", "--out", "run"]) == 2
    remedy = "resume it with `mapformers lm train --resume`, and name the folder that it is in now with --data."
    seen = f"is not there in {tmp_path.name}, the folder that you are in"
    assert capsys.readouterr().err.strip().endswith(f"The text of run, before, {seen}; {remedy}")
    assert main([*line, "now", "--resume", "--lr", "0.5"]) == 2  # refused, and nothing is written
    assert mf.load("run").config.task_settings.data == "before"
    assert main(["lm", "train", "--resume", "--out", "run", "--data", "now"]) == 0
    assert mf.load("run").config.task_settings.data == "now"
    Path("now").rename("before")
    assert main([*line, "before", "--resume"]) == 0
    Path("before").rename("now")
    assert main([*line, "now", "--resume"]) == 0
    assert mf.load("run").config.task_settings.data == "now"
    assert main(["lm", "train", "--resume", "--out", "run"]) == 0
    (tmp_path / "other.txt").write_text("Another text. " * 999)
    prepare("other.txt", "other", tokenizer="bytes", val=0.5, console=quiet())
    capsys.readouterr()
    for words_of_it in (line, ["lm", "train", "--out", "run", "--data"]):
        assert main([*words_of_it, "other", "--resume"]) == 2
        assert "other holds another text than the one run was started with; name that" in capsys.readouterr().err
    assert mf.load("run").config.task_settings.data == "now"


def test_a_run_resumed_from_elsewhere_says_from_which_folder_its_text_was_looked_for(tmp_path, capsys, monkeypatch):
    """The folder by its name alone: no sentence tells where on a machine it is."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_corpus(), "data")
    line = ["lm", "train", "--model", "rope", "--preset", "smoke", "--data"]
    assert main([*line, "data", "--out", "run"]) == 0
    assert main([*line, str(tmp_path / "data"), "--out", "absolute"]) == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    capsys.readouterr()
    assert main(["lm", "train", "--resume", "--out", "../run"]) == 2
    said = capsys.readouterr().err
    assert "The text of ../run, data, is not there in elsewhere, the folder that you are in; resume it" in said
    assert str(tmp_path) not in said
    assert main(["lm", "train", "--resume", "--out", "../run", "--data", "../data"]) == 0
    (tmp_path / "data").rename(tmp_path / "moved")
    capsys.readouterr()
    assert main(["lm", "train", "--resume", "--out", "../absolute"]) == 2
    assert f"The text of ../absolute, {tmp_path / 'data'}, is not there; resume it" in capsys.readouterr().err


def test_a_text_without_its_tokenizer_leaves_no_run(tmp_path, capsys):
    (tmp_path / "text.txt").write_text("A text for a tokenizer. " * 99)
    prepare(tmp_path / "text.txt", tmp_path / "data", tokenizer="bpe:270", val=0.5, console=quiet())
    (tmp_path / "data" / "tokenizer.json").unlink()
    line = ["lm", "train", "--model", "rope", "--preset", "smoke", "--data", str(tmp_path / "data")]
    assert main([*line, "--out", str(tmp_path / "run")]) == 2
    assert "tokenizer.json is missing or has changed since it was written" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_what_names_a_run_is_said_in_the_words_of_the_command(capsys):
    for more, message in (
        ([], "or its --data and --model with --resume"),
        (["--out", "none"], "its --data and --model"),
    ):
        assert main(["lm", "train", "--resume", *more]) == 2
        assert message in capsys.readouterr().err


def test_help_shows_the_values_of_the_preset(capsys):
    with pytest.raises(SystemExit):
        main(["lm", "train", "--model", "mapwm", "--preset", "paper", "--help"])
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "(default: 768)" in words and "(default: random)" in words and "--tokens" in words and "--task" not in words


def test_a_preset_that_there_is_not_is_refused():
    with pytest.raises(UserError, match="no preset named 'papre'; did you mean 'paper'"):
        preset("papre")
