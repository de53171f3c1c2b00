"""Checkpoints are whole or absent, hold no pickle, and a damaged one is named and passed over."""

import hashlib
import json

import pytest
import safetensors.torch
import torch

import mapformers as mf
from mapformers.runs import checkpoint
from mapformers.runs.config import TrainConfig
from mapformers.training.optimizer import build_optimizer

FILES = {"weights.safetensors", "optimizer.safetensors", "manifest.json"}


def model_and_optimizer(seed=0, **sizes):
    torch.manual_seed(seed)
    model = mf.build_model("mapwm", vocab_size=21, **{"d_model": 16, **sizes})
    return model, build_optimizer(model, TrainConfig(lr=0.01))


def take_steps(model, optimizer, n, seed=0):
    for step in range(n):
        tokens = torch.randint(21, (2, 12), generator=torch.Generator().manual_seed(seed + step))
        optimizer.zero_grad()
        model(tokens).square().mean().backward()
        optimizer.step()


def state_of(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


@pytest.fixture
def saved(tmp_path):
    """A folder with checkpoints at steps 3 and 6."""
    model, optimizer = model_and_optimizer()
    for step in (3, 6):
        take_steps(model, optimizer, 3, seed=step)
        checkpoint.save(tmp_path, step, model, optimizer, {"seconds": 1.5})
    return tmp_path


def test_a_checkpoint_is_safetensors_and_a_manifest(saved):
    path = saved / "step-00000006"
    assert {file.name for file in path.iterdir()} == FILES
    facts = json.loads((path / "manifest.json").read_text())
    assert (facts["step"], facts["seconds"]) == (6, 1.5)
    assert set(facts["sha256"]) == FILES - {"manifest.json"}
    for name, checksum in facts["sha256"].items():
        assert hashlib.sha256((path / name).read_bytes()).hexdigest() == checksum
        assert safetensors.torch.load_file(path / name)


def test_loading_gives_back_weights_and_moments_bitwise(saved):
    model, optimizer = model_and_optimizer()
    take_steps(model, optimizer, 3, seed=3)
    take_steps(model, optimizer, 3, seed=6)
    other, other_optimizer = model_and_optimizer(seed=1)
    path, _ = checkpoint.latest(saved)
    checkpoint.load_weights(path, other)
    checkpoint.load_optimizer(path, other_optimizer, other)
    assert_same(state_of(other), state_of(model))
    for pair in ((model, optimizer), (other, other_optimizer)):
        take_steps(*pair, 2, seed=9)
    assert_same(state_of(other), state_of(model))


def test_only_two_are_kept_and_no_other_file_is_left(tmp_path):
    model, optimizer = model_and_optimizer()
    for step in (1, 2, 30, 400):
        checkpoint.save(tmp_path, step, model, optimizer, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000030", "step-00000400"]


def test_saving_a_step_again_replaces_it(saved):
    model, optimizer = model_and_optimizer(seed=5)
    checkpoint.save(saved, 6, model, optimizer, {})
    other, _ = model_and_optimizer(seed=6)
    checkpoint.load_weights(saved / "step-00000006", other)
    assert_same(state_of(other), state_of(model))
    assert sorted(path.name for path in saved.iterdir()) == ["step-00000003", "step-00000006"]


def test_the_newest_whole_checkpoint_is_used_without_complaint(saved):
    assert checkpoint.latest(saved) == (saved / "step-00000006", [])


def test_no_checkpoint_is_no_error(tmp_path):
    assert checkpoint.latest(tmp_path / "nothing") == (None, [])


def truncate(file):
    file.write_bytes(file.read_bytes()[:-1])


def flip_a_bit(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def empty(file):
    file.write_bytes(b"")


def remove(file):
    file.unlink()


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, empty, remove])
@pytest.mark.parametrize("name", sorted(FILES - {"manifest.json"}))
def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_used(saved, name, damage):
    damage(saved / "step-00000006" / name)
    path, complaints = checkpoint.latest(saved)
    assert path == saved / "step-00000003"
    assert len(complaints) == 1
    assert str(saved / "step-00000006") in complaints[0] and "damaged" in complaints[0]


@pytest.mark.parametrize("damage", [truncate, empty, remove, lambda file: file.write_text('{"step": 6}')])
def test_a_damaged_manifest_is_noticed_too(saved, damage):
    manifest = saved / "step-00000006" / "manifest.json"
    manifest.write_text(manifest.read_text().rstrip())
    damage(manifest)
    path, complaints = checkpoint.latest(saved)
    assert path == saved / "step-00000003"
    assert "step-00000006" in complaints[0]


def test_an_unfinished_save_is_not_a_checkpoint(saved, monkeypatch):
    """A process killed while it wrote leaves a hidden folder, and the next save clears it away."""
    model, optimizer = model_and_optimizer()

    def killed(*_):
        raise SystemExit

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(checkpoint, "write_json", killed)
        checkpoint.save(saved, 9, model, optimizer, {})
    assert checkpoint.latest(saved) == (saved / "step-00000006", [])
    checkpoint.save(saved, 9, model, optimizer, {})
    assert sorted(path.name for path in saved.iterdir()) == ["step-00000006", "step-00000009"]


def test_when_all_are_damaged_each_is_named(saved):
    for path in saved.iterdir():
        truncate(path / "weights.safetensors")
    path, complaints = checkpoint.latest(saved)
    assert path is None
    assert ["step-00000006" in complaints[0], "step-00000003" in complaints[1]] == [True, True]


@pytest.mark.parametrize("sizes", [{"d_model": 32}, {"n_layers": 2}, {"rank": 1}], ids=str)
def test_weights_of_another_model_are_refused(saved, sizes):
    model, _ = model_and_optimizer(**sizes)
    with pytest.raises(mf.UserError, match=r"step-00000006 do not fit the model of its config.json: "):
        checkpoint.load_weights(saved / "step-00000006", model)
