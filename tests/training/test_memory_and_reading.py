"""Activations computed twice, and batches read ahead: the same losses, gradients, batches and runs."""

import threading

import pytest
import torch

import mapformers as mf
from helpers import tiny_corpus
from mapformers.errors import UserError
from mapformers.lm import preset
from mapformers.runs.config import RunConfig
from mapformers.training.read_ahead import ReadAhead
from runs import assert_same_run, quiet, weights


@pytest.fixture(scope="module")
def data():
    return tiny_corpus()


@pytest.mark.parametrize("name", ["mapwm", "mapem", "mapwm-nc", "tape", "mamba", "path"])
@pytest.mark.parametrize("packed", [False, True])
def test_checkpointed_activations_give_the_same_loss_and_gradients(name, packed):
    torch.manual_seed(0)
    model = mf.build_model(name, vocab_size=21, d_model=32, n_heads=2, n_layers=3)
    tokens = torch.randint(21, (2, 30))
    reset = (torch.arange(30) % 11 == 0).expand(2, 30) if packed else None
    results, kept = [], []
    for again in (False, True):
        model.checkpoint_activations = again
        model.zero_grad()
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, sizes=sizes: sizes.append(t.numel()) or t, lambda t: t):
            loss = model(tokens, reset=reset).square().mean()
        loss.backward()
        results.append([loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
        kept.append(sum(sizes))
    assert len(results[0]) == len(results[1]) and all(map(torch.equal, *results))
    assert kept[1] < 0.5 * kept[0]
    model.eval()
    with torch.no_grad():
        assert model(tokens, reset=reset).square().mean() == results[0][0]


def test_activations_are_not_computed_twice_where_that_would_be_wrong():
    with pytest.raises(UserError, match="it goes with --zero-mean-steps 0 only"):
        RunConfig.compose("navigation", "mapwm", "cpu", checkpoint_activations=True)
    with pytest.raises(UserError, match="works for the models of this library only"):
        RunConfig.compose("selective-copy", torch.nn.Linear(1, 1), "cpu", checkpoint_activations=True)


def test_what_is_read_ahead_is_what_would_be_read():
    made: list[tuple[int, str]] = []

    def make(step):
        made.append((step, threading.current_thread().name))
        if step == 7:
            raise ValueError("no text")
        return [step]

    read = ReadAhead(make, last=10)
    assert [read(step) for step in (0, 1, 2, 5, 6)] == [[0], [1], [2], [5], [6]]
    with pytest.raises(ValueError, match="no text"):
        read(7)
    assert [read(step) for step in (8, 9)] == [[8], [9]]
    assert sorted(step for step, _ in made) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    ahead = {step for step, thread in made if thread.startswith("read-ahead")}
    assert ahead == {1, 2, 3, 6, 7, 9}


def test_a_run_is_the_same_however_it_is_read_and_kept(data, tmp_path):
    """Two settings of the backend that change nothing, a tied head, and a stop in the middle: the same weights."""
    settings = {"data": data, "sequences": 40, "checkpoint_every": 3, "log_every": 1, "tie_head": True}
    settings |= {"scale": "smoke", "console": quiet(), "defaults": preset("smoke")}
    plain = mf.train("text", "mapwm", out=tmp_path / "plain", read_ahead=False, **settings)
    fancy = mf.train("text", "mapwm", out=tmp_path / "fancy", checkpoint_activations=True, **settings)
    assert plain.config.backend != fancy.config.backend and fancy.config.backend.read_ahead
    for name, weight in weights(tmp_path / "plain").items():
        assert torch.equal(weight, weights(tmp_path / "fancy")[name]), name
    assert "head.weight" not in weights(tmp_path / "plain") and "embedding.weight" in weights(tmp_path / "plain")
    torch.testing.assert_close(mf.load(tmp_path / "fancy").model.state_dict(), plain.model.state_dict())


def test_a_run_that_reads_ahead_resumes_to_the_last_bit(data, tmp_path, monkeypatch):
    from mapformers.lm.text import Text

    settings = {"data": data, "sequences": 40, "checkpoint_every": 3, "log_every": 1, "tie_head": True}
    settings |= {"scale": "smoke", "console": quiet(), "defaults": preset("smoke")}
    mf.train("text", "mapwm", out=tmp_path / "whole", **settings)
    take = Text.training_batch

    def fail(self, batch_size, seed, step, part):
        if step == 7:
            raise KeyboardInterrupt
        return take(self, batch_size, seed, step, part)

    monkeypatch.setattr(Text, "training_batch", fail)
    with pytest.raises(KeyboardInterrupt):
        mf.train("text", "mapwm", out=tmp_path / "stopped", **settings)
    monkeypatch.undo()
    mf.train("text", "mapwm", out=tmp_path / "stopped", resume=True, **settings)
    assert_same_run(tmp_path / "stopped", tmp_path / "whole")
