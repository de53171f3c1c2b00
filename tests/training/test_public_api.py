"""`mf.train`, `mf.load`, `mf.resume`, `RunConfig.compose`: one way to compose a run, from Python as from the shell."""

import json
import shlex
import sys
from hashlib import sha256

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import mapformers as mf
from mapformers.cli.main import main
from mapformers.cli.train import parse_train
from mapformers.errors import UserError
from mapformers.registry import LAYERS
from mapformers.runs.config import ForeignModel
from runs import assert_same_run, copy, quiet

TINY = {
    "dims": 1, "steps": 8, "grid": 4, "d_model": 16, "sequences": 48, "batch_size": 4, "warmup_steps": 2,
    "zero_mean_steps": 3, "log_every": 1, "eval_every": 4, "eval_sequences": 8, "final_sequences": 8,
}  # fmt: skip
BUDGET = {name: value for name, value in TINY.items() if name != "d_model"}


class Own(nn.Module):
    """Any module from tokens to logits; its head is tied, and it holds a layer of ours."""

    def __init__(self, vocab_size: int):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(vocab_size, 16)
        self.look = mf.layers.MapWM(16, 2)
        self.head = nn.Linear(16, vocab_size, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.look(self.embedding(tokens)))


def own() -> Own:
    return Own(mf.build_task("navigation", dims=1).vocab_size)


def words(settings: dict) -> list[str]:
    return [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def test_python_and_the_command_line_make_the_same_run(tmp_path):
    run = mf.train("navigation", "mapwm", scale="smoke", seed=3, out=tmp_path / "python", console=quiet(), **TINY)
    line = ["train", "--task", "navigation", "--model", "mapwm", "--scale", "smoke", "--seed", "3", *words(TINY)]
    assert main([*line, "--out", str(tmp_path / "shell")]) == 0
    assert_same_run(tmp_path / "python", tmp_path / "shell")
    configs = [json.loads((tmp_path / name / "config.json").read_text()) for name in ("python", "shell")]
    assert configs[0] == configs[1] == run.config.to_dict()


def test_a_run_can_be_loaded_measured_and_saved(tmp_path):
    run = mf.train("navigation", "rope", scale="smoke", out=str(tmp_path / "run"), console=quiet(), **TINY)
    assert run.step == 12 and run.result["steps"] == 12 and len(run.metrics) > 12
    again = mf.load(str(tmp_path / "run"))
    scores = mf.evaluate(again.model, again.task, "ood-dense", n_sequences=8)
    assert scores["accuracy"].to_dict() == run.result["splits"]["ood-dense"]["accuracy"]
    with torch.no_grad():
        again.model.head.weight.mul_(2)
    kept = mf.load(again.save(tmp_path / "kept"))
    assert torch.equal(kept.model.head.weight, again.model.head.weight)
    assert kept.result == run.result and kept.step == 12
    with pytest.raises(UserError, match="holds weights alone"):
        mf.resume(tmp_path / "kept", console=quiet())
    with pytest.raises(UserError, match="already holds a run"):
        again.save(tmp_path / "kept")


def test_what_is_no_folder_of_a_run_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match="not a run folder"):
        mf.load(tmp_path)
    with pytest.raises(UserError, match="path of its folder"):
        mf.load(3)


def test_a_module_of_ones_own_is_trained_resumed_and_loaded(tmp_path, monkeypatch):
    whole = mf.train("navigation", own(), scale="smoke", out=tmp_path / "whole", console=quiet(), **BUDGET)
    assert isinstance(whole.config.model, ForeignModel) and whole.config.model_name == "Own"
    assert whole.result["parameters"] == sum(p.numel() for p in own().parameters())

    from mapformers.training import loop

    steps = iter(range(100))
    monkeypatch.setattr(loop.Trainer, "_any", lambda self, asked: next(steps) == 4)
    with pytest.raises(KeyboardInterrupt):
        mf.train("navigation", own(), scale="smoke", out=tmp_path / "broken", console=quiet(), **BUDGET)
    monkeypatch.undo()
    with pytest.raises(UserError, match="pass it as model="):
        mf.resume(tmp_path / "broken", console=quiet())
    mf.resume(tmp_path / "broken", own(), console=quiet())
    assert_same_run(tmp_path / "broken", tmp_path / "whole")

    with pytest.raises(UserError, match="your own Own"):
        mf.load(tmp_path / "whole")
    loaded = mf.load(tmp_path / "whole", own())
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, loaded.model.state_dict()[name])
    assert loaded.model.look.path.mean.abs().max() > 0  # its movements were held at zero mean, as ours are


def test_a_module_handed_over_in_eval_mode_is_trained_all_the_same(tmp_path):
    runs = [
        mf.train("navigation", module, scale="smoke", out=tmp_path / name, console=quiet(), **BUDGET)
        for name, module in (("training", own()), ("eval", own().eval()))
    ]
    for name, weight in runs[0].model.state_dict().items():
        assert torch.equal(weight, runs[1].model.state_dict()[name])
    assert runs[1].model.look.path.adjust is None


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (nn.Identity(), "no parameter that could be trained"),
        (nn.Embedding(2, 9), "cannot read tokens"),
        (nn.Embedding(99, 5), "must answer tokens"),
        (nn.LSTM(3, 3), "cannot read tokens"),
    ],
)
def test_a_module_that_cannot_be_trained_is_refused_before_a_folder_is_made(tmp_path, module, sentence):
    with pytest.raises(UserError, match=sentence):
        mf.train("navigation", module, scale="smoke", out=tmp_path / "run", console=quiet(), **BUDGET)
    assert not (tmp_path / "run").exists()


def test_a_folder_of_the_version_before_is_read(tmp_path):
    """Then the mean movement was called drift."""
    run = mf.train("navigation", "mapwm", scale="smoke", out=tmp_path / "run", console=quiet(), **TINY)
    config = json.loads((tmp_path / "run/config.json").read_text())
    config["train"]["driftless_steps"] = config["train"].pop("zero_mean_steps")
    (tmp_path / "run/config.json").write_text(json.dumps(config))
    [checkpoint] = (tmp_path / "run/checkpoints").iterdir()
    weights = safetensors.torch.load_file(checkpoint / "weights.safetensors")
    old = {name.replace(".path.mean", ".path.drift"): tensor for name, tensor in weights.items()}
    safetensors.torch.save_file(old, checkpoint / "weights.safetensors")
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    manifest["sha256"]["weights.safetensors"] = sha256((checkpoint / "weights.safetensors").read_bytes()).hexdigest()
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))
    again = mf.load(tmp_path / "run")
    assert again.config == run.config
    assert torch.equal(again.model.layers[0].mixer.path.mean, run.model.layers[0].mixer.path.mean)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    mf.train("navigation", "mapwm", scale="smoke", out=folder, console=quiet(), **TINY)
    return folder


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("--layers rope", "A resumed run keeps its own settings; resume {} without --layers."),
        ("--task navigation --layers rope", " and --layers mapwm (not rope) and "),
        ("--seed 1", "{} holds a run of mapwm on navigation with seed 0; name those to resume it."),
        ("--scale paper", "A resumed run keeps its own settings; resume {} without --scale."),
    ],
)
def test_resuming_with_something_else_is_refused_and_not_ignored(trained, tmp_path, capsys, given, sentence):
    folder = copy(trained, tmp_path / "run")
    assert main(["train", "--resume", "--out", str(folder), *shlex.split(given)]) == 2
    told = capsys.readouterr().err
    assert sentence.format(folder) in told and told.count("\n") == 1
    assert main(["train", "--resume", "--out", str(folder)]) == 0


def test_overrides_go_to_who_owns_them():
    config = mf.RunConfig.compose("navigation", "mapwm", "smoke", dims=1, rank=1, n_layers=2, lr=0.5, device="cpu")
    assert config.task_settings.dims == 1 and config.train.lr == 0.5 and config.backend.device == "cpu"
    assert [layer.options.rank for layer in config.model.layers] == [1, 1]
    assert config.build_task() is config.build_task()
    assert mf.RunConfig.from_dict(config.to_dict()) == config


def test_suggestions_of_the_task_follow_its_settings_and_yield_to_what_is_given():
    three = mf.RunConfig.compose("navigation", "mapwm", dims=3)
    given = mf.RunConfig.compose("navigation", "mapwm", dims=3, rank=2)
    assert three.model.layers[0].options.rank == 3 and given.model.layers[0].options.rank == 2
    line = ["--task", "navigation", "--model", "mapwm", "--dims", "3"]
    assert parse_train(line).compose() == three
    assert (
        parse_train([*line, "--rank", "2"]).compose() == given
    )  # 2 is what 2D would suggest, and is given all the same


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"rnak": 2}, "did you mean 'rank'"),
        ({"scale": "huge"}, "scale must be one of"),
        ({"lr": "fast"}, "lr must be a number"),
        ({"model": None}, "either a model or a list of layers"),
        ({"layers": ["rope"]}, "either a model or a list of layers"),
        ({"seed": -1}, "seed must not be negative"),
        ({"seed": 0.5}, "seed must be a whole number"),
        ({"model": nn.Linear}, "an instance, not its class"),
        ({"model": None, "layers": [3]}, "name or \\(name, options\\)"),
        ({"model": None, "layers": [("mapwm",)]}, "name or \\(name, options\\)"),
    ],
)
def test_wrong_settings_are_one_sentence(settings, sentence):
    with pytest.raises(UserError, match=sentence):
        mf.RunConfig.compose(**{"task": "navigation", "model": "mapwm"} | settings)


def test_hybrids_by_layers_from_python_and_the_shell(tmp_path):
    layers = ["mapem", ("mapwm", {"rank": 1, "learn_omega": False})]
    config = mf.RunConfig.compose("navigation", layers=layers, scale="smoke", dims=1)
    line = "--task navigation --dims 1 --layers mapem mapwm:rank=1,learn-omega=false --scale smoke"
    asked = shlex.split(line)
    assert parse_train(asked).compose() == config
    assert config.model_name == "mapem+mapwm"
    assert (
        main(["train", *asked, *words({"d_model": 16, "sequences": 8, "batch_size": 4}), "--out", str(tmp_path / "h")])
        == 0
    )
    assert len(mf.load(tmp_path / "h").model.layers) == 2
    assert main(["train", *asked, "--layers", "mapem:rank"]) == 2


PLUGIN = '''
from dataclasses import dataclass
from mapformers.layers.nope import NoPE
from mapformers.modules.layer import register_layer
from mapformers.tasks.navigation import Navigation, NavigationSettings
from mapformers.tasks import register_task

class Mine(NoPE):
    """A layer of one's own."""

class Yard(Navigation):
    """A task of one's own."""

register_layer("{layer}", Mine)
register_task("{task}", settings=NavigationSettings, build=Yard)
'''


def test_files_of_ones_own_are_known_to_the_command_line(tmp_path, capsys):
    (tmp_path / "my_plugin.py").write_text(PLUGIN.format(layer="mine", task="yard"))
    named = ["--import", str(tmp_path / "my_plugin.py")]
    assert main(["list", *named]) == 0
    listed = capsys.readouterr().out
    assert "  mine " in listed and "A layer of one's own." in listed and "  yard " in listed
    line = [
        "train",
        "--task",
        "yard",
        "--model",
        "mine",
        "--scale",
        "smoke",
        *words(TINY),
        "--out",
        str(tmp_path / "run"),
    ]
    assert main([*line, *named]) == 0
    assert main(["eval", str(tmp_path / "run"), "--n-sequences", "4"]) == 0


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "There is no file"),
        ("1 / 0", "ZeroDivisionError"),
        ("import no_such_module", "No module named"),
        ("x = (", "was never closed"),
        ('from mapformers.modules.layer import register_layer\nfrom mapformers.layers.nope import NoPE\n'
         'register_layer("rope", NoPE)', "already a model named 'rope'"),
    ],
)  # fmt: skip
def test_a_plugin_that_cannot_be_imported_is_one_sentence(tmp_path, capsys, content, sentence):
    path = tmp_path / "broken_plugin.py"
    if content is not None:
        path.write_text(content)
    assert main(["list", "--import", str(path)]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1


def test_a_plugin_may_be_called_like_a_package(tmp_path):
    (tmp_path / "json.py").write_text("import json\nassert json.dumps([1]) == '[1]'\n")
    mf.import_plugins([str(tmp_path / "json.py")])
    assert sys.modules["json"] is json


def test_a_plugin_does_not_take_the_name_of_a_layer_of_ours(tmp_path):
    (tmp_path / "shadow.py").write_text(PLUGIN.format(layer="shadow", task="shadow-yard").replace("Mine", "MapWM"))
    mf.import_plugins([str(tmp_path / "shadow.py")])
    assert mf.layers.MapWM.__module__ == "mapformers.layers.mapwm"


def test_a_setting_with_two_owners_is_refused(tmp_path):
    (tmp_path / "clash.py").write_text(
        "from dataclasses import dataclass\nfrom mapformers.tasks import register_task\n"
        "from mapformers.tasks.navigation import Navigation, NavigationSettings\n"
        "@dataclass(frozen=True)\nclass Clash(NavigationSettings):\n    rank: int = 7\n"
        "class ClashingWorld(Navigation):\n    pass\n"  # the task gives its name to what builds it
        "register_task('clash', settings=Clash, build=ClashingWorld)\n"
    )
    mf.import_plugins([str(tmp_path / "clash.py")])
    with pytest.raises(UserError, match="a setting of the task and of the model"):
        mf.RunConfig.compose("clash", "mapwm", rank=3)
    assert mf.build_task("navigation").name == "navigation"


def test_entry_points_of_other_packages_are_listed_and_loaded(tmp_path, monkeypatch):
    (tmp_path / "their_package.py").write_text(PLUGIN.format(layer="theirs", task="their-yard"))
    distribution = tmp_path / "theirs-1.0.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (distribution / "entry_points.txt").write_text("[mapformers.layers]\ntheirs = their_package\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    LAYERS.names()
    monkeypatch.delitem(LAYERS.__dict__, "_listed")  # as in a process that begins with the package installed
    assert "theirs" in LAYERS.names() and "plug-in their_package" in LAYERS.summary("theirs")
    assert "their_package" not in sys.modules
    model = mf.build_model("theirs", vocab_size=5, d_model=16)
    assert type(model.layers[0].mixer).__module__ == "their_package"
    assert model(torch.tensor([[1, 2, 3]])).shape == (1, 3, 5)
    assert "their-yard" in mf.list_tasks()
    del sys.modules["their_package"]
