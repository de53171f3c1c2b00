"""A model that is shared out between processes (FSDP2) is trained, measured and saved as one that is whole.

Two real processes on this machine's CPU, against the run of one.
"""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from accelerate.utils import DynamoBackend
from torch._dynamo.utils import counters
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import mapformers as mf
from helpers import FIRST_CASES, thorough, tiny_corpus
from mapformers.cli.main import main
from mapformers.lm.generation import generate
from mapformers.starts import reset_parameters
from mapformers.training import backend
from mapformers.training.loop import Trainer
from mapformers.training.sharding import layers_of, shard
from runs import (
    SERVER,
    assert_same_run,
    command,
    copy,
    ended,
    free_port,
    largest_difference,
    launch,
    losses,
    metrics,
    newest,
    quiet,
    run,
    run_in_two_processes,
    splits,
    start_two,
    weights,
)

# The paper's learning rate, at which rounding is not amplified; 50 steps, the mean movement is held at zero in 20.
FIFTY = {"sequences": 400, "batch_size": 8, "lr": 3e-4, "log_every": 1, "eval_every": 25, "n_layers": 2}
NAVIGATION = FIFTY | {"zero_mean_steps": 20, "checkpoint_every": 20}
FULL = {"sharding": "full"}


def text():
    return FIFTY | {"task": "text", "data": tiny_corpus(), "context": 16, "final_sequences": 8}


def text_command(**settings):
    """A tiny run on text, which has no walks."""
    line = command(**settings)
    for name in ("--steps", "--grid"):
        at = line.index(name)
        del line[at : at + 2]
    return line


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    return run(tmp_path_factory.mktemp("one") / "run", **NAVIGATION)


def require_shards():
    """From now on a run is refused unless this process holds about half of every parameter."""
    begin = Trainer.run

    def watched(self):
        for name, parameter in self.model.named_parameters():
            assert type(parameter.data).__name__ == "DTensor" or type(parameter).__name__ == "DTensor", name
            assert parameter.to_local().shape[0] <= -(-parameter.shape[0] // 2), name
        return begin(self)

    Trainer.run = watched


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    return run_in_two_processes(tmp_path_factory.mktemp("full") / "run", require_shards, **NAVIGATION, **FULL)


def assert_same_curve(folder, one):
    """The losses of every step to 1e-5, and the figures of every measurement."""
    curve, wanted = ([line["loss"] for line in metrics(each) if "lr" in line] for each in (folder, one))
    assert len(curve) == 50
    assert curve == pytest.approx(wanted, rel=0, abs=1e-5)
    assert largest_difference(folder, one) < 1e-6
    assert [line["step"] for line in metrics(folder)] == [line["step"] for line in metrics(one)]


def scores(folder: Path) -> list[dict[str, Any]]:
    """What was measured along the way, without the sizes of movements: no process has the weights of a whole layer."""
    lines = [line for line in metrics(folder) if "split" in line]
    return [{name: value for name, value in line.items() if not name.startswith("delta_")} for line in lines]


def test_two_processes_that_share_a_model_have_the_losses_of_one(one, full):
    assert_same_curve(full, one)
    assert splits(full) == splits(one)
    assert scores(full) == scores(one)
    assert json.loads((full / "result.json").read_text())["hardware"]["sharding"] == "full"
    norms = [[line["grad_norm"] for line in metrics(folder) if "loss" in line] for folder in (one, full)]
    assert norms[1] == pytest.approx(norms[0], rel=1e-5)


@pytest.mark.thorough  # test_backends.py has the same with torchrun
def test_two_processes_that_each_hold_the_model_have_the_losses_of_one(one, tmp_path):
    assert_same_curve(run_in_two_processes(tmp_path / "ddp", **NAVIGATION), one)


@pytest.mark.parametrize("sharding", ["full", thorough("none")])
def test_the_same_on_text(tmp_path, sharding):
    settings = text()
    one, two = tmp_path / "one", tmp_path / "two"
    assert main(text_command(out=one, **settings)) == 0
    both = start_two(text_command(out=two, sharding=sharding, **settings), tmp_path / "log")
    assert [ended(process) for process in both] == [0, 0], (tmp_path / "log").read_text()
    assert_same_curve(two, one)
    for split, figures in splits(one).items():
        assert splits(two)[split]["loss"]["value"] == pytest.approx(figures["loss"]["value"], abs=1e-5)
        assert splits(two)[split]["loss"]["count"] == figures["loss"]["count"]


def test_accelerate_starts_such_a_run_too(one, tmp_path):
    launcher = ["accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    port = ["--main_process_port", str(free_port())]
    shared = launch([*launcher, *port], command(out=tmp_path / "run", **NAVIGATION, **FULL))
    assert shared.returncode == 0, shared.stderr
    assert_same_curve(tmp_path / "run", one)
    told = "Training on cpu, 2 processes that share out the model, 1 thread, float32.\n"
    assert shared.stderr.count(told) == 1
    assert "Warning" not in shared.stderr


def unfinished(folder, to):
    """A run that ended after its last checkpoint before the end."""
    folder = copy(folder, to)
    (folder / "result.json").unlink()
    for file in sorted(newest(folder).rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    newest(folder).rmdir()
    return folder


def test_a_run_goes_on_exactly_with_as_many_processes(full, tmp_path):
    folder = unfinished(full, tmp_path / "run")
    assert_same_run(run_in_two_processes(folder, resume=True, **NAVIGATION, **FULL), full)


def test_two_processes_begin_and_one_goes_on(full, tmp_path):
    folder = run(unfinished(full, tmp_path / "run"), resume=True, **NAVIGATION, **FULL)
    assert_same_curve(folder, full)
    assert {path.name for path in newest(folder).iterdir()} == {
        "manifest.json", "weights.safetensors", "optimizer.safetensors",
    }  # fmt: skip


def test_one_process_begins_and_two_go_on(tmp_path, one):
    alone = run(tmp_path / "alone", **NAVIGATION, **FULL)
    assert weights(alone).keys() == weights(one).keys()
    folder = unfinished(alone, tmp_path / "run")
    assert_same_curve(run_in_two_processes(folder, resume=True, **NAVIGATION, **FULL), one)


def test_the_end_of_a_run_leaves_ordinary_weights_and_its_beginning_can_be_read_too(full, tmp_path):
    assert {path.name for path in newest(full).iterdir()} == {"manifest.json", "weights.safetensors", "optimizer"}
    assert mf.load(full).step == 50
    before = unfinished(full, tmp_path / "run")
    assert {path.name for path in newest(before).iterdir()} == {"manifest.json", "weights", "optimizer"}
    assert mf.load(before).step == 40
    task = mf.load(full).task
    scores = mf.evaluate(mf.load(full).model, task, "iid", n_sequences=8)
    assert {name: score.to_dict() for name, score in scores.items()} == splits(full)["iid"]


def test_bfloat16_and_parts_of_a_batch(tmp_path):
    """Autocast and accumulation do to a shared model what they do to a whole one."""
    settings = NAVIGATION | {"sequences": 80, "precision": "bfloat16", "accumulate": 2}
    whole = run(tmp_path / "whole", **settings | {"accumulate": 4})
    shared = run_in_two_processes(tmp_path / "shared", **settings, **FULL)
    assert losses(shared) == pytest.approx(losses(whole), rel=0.003)
    assert {tensor.dtype for tensor in weights(shared).values()} == {torch.float32}
    assert (
        mf.evaluate(mf.load(shared).model, mf.load(shared).task, n_sequences=8)["accuracy"].to_dict()
        == (splits(shared)["iid"]["accuracy"])
    )


def share_every_layer(rank, port, faults):
    """In two processes: the gradient of a whole model, and of the same model shared out, for every layer there is."""
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    tokens = torch.randint(11, (4, 12), generator=torch.Generator().manual_seed(3))
    for case in FIRST_CASES:
        whole, shared = case.build(dtype=torch.float32), shard(case.build(dtype=torch.float32), torch.device("cpu"))
        whole(tokens).square().mean().backward()
        shared(tokens[2 * rank : 2 * rank + 2]).square().mean().backward()
        for (name, parameter), other in zip(whole.named_parameters(), shared.parameters()):
            if (parameter.grad is None) != (other.grad is None):
                faults.put(f"{case} {name}: one has a gradient, the other has none")
            elif parameter.grad is not None:
                found, wanted = other.grad.full_tensor(), parameter.grad
                if float((found - wanted).norm()) > 1e-4 * float(wanted.norm()) + 1e-6:
                    faults.put(f"{case} {name}: {float((found - wanted).norm())} of {float(wanted.norm())}")
        with torch.device("meta"):
            empty = case.build(dtype=torch.float32)
        for part in [*layers_of(empty), empty]:
            fully_shard(part, mesh=init_device_mesh("cpu", (2,)))
        shared = empty.to_empty(device="cpu")
        for model in (whole, shared):  # the shares are of what the first process has drawn
            torch.manual_seed(rank if model is shared else 0)
            reset_parameters(model)
        for (name, parameter), other in zip(whole.named_parameters(), shared.parameters()):
            if not torch.equal(other.full_tensor(), parameter):
                faults.put(f"{case} {name} starts otherwise when it is shared out")
        if generate(shared, [[1, 2]], 3) != generate(whole, [[1, 2]], 3):
            faults.put(f"{case} generates otherwise when it is shared out")
    faults.put(None)
    dist.barrier()
    os._exit(0)


def test_every_layer_can_be_shared_out():
    faults, port = SERVER.SimpleQueue(), free_port()
    both = [SERVER.Process(target=share_every_layer, args=(rank, port, faults), daemon=True) for rank in range(2)]
    for process in both:
        process.start()
    assert [ended(process) for process in both] == [0, 0]
    assert [faults.get(), faults.get()] == [None, None]


def test_layers_are_the_elements_of_the_outermost_lists():
    model = mf.build_model(layers=["mapem", "mapwm"], vocab_size=7, d_model=16)
    assert list(layers_of(model)) == list(model.layers)
    nested = torch.nn.Sequential(torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.GELU()]), torch.nn.Linear(2, 2))
    assert list(layers_of(nested)) == [nested[0][0]]


def compile_without_inductor():
    """From now on `--compile` uses a backend that compiles fast, and a run is refused if nothing was compiled."""
    backend.DynamoBackend = SimpleNamespace(INDUCTOR=DynamoBackend.AOT_EAGER, NO=DynamoBackend.NO)
    begin = Trainer.run

    def watched(self):
        result = begin(self)
        assert counters["stats"]["unique_graphs"] > 0
        return result

    Trainer.run = watched
    require_shards()


def test_a_shared_model_can_be_compiled(one, tmp_path):
    settings = {**NAVIGATION, **FULL, "compile": True}
    assert_same_curve(run_in_two_processes(tmp_path / "run", compile_without_inductor, **settings), one)


def test_a_parameter_that_is_a_single_number_is_refused():
    model = torch.nn.Module()
    model.gain = torch.nn.Parameter(torch.tensor(1.0))
    with pytest.raises(mf.UserError, match="gain is a single number, which cannot be shared out; give it the shape"):
        shard(model, torch.device("cpu"))


def test_a_shared_run_of_ones_own_module_fills_it_at_the_end(tmp_path):
    """The module that was handed over is not taken apart."""
    place, port = tmp_path / "run", free_port()
    both = [SERVER.Process(target=train_own, args=(rank, port, place), daemon=True) for rank in range(2)]
    for process in both:
        process.start()
    assert [ended(process) for process in both] == [0, 0]
    alone = mf.train("navigation", own_module(), out=tmp_path / "alone", console=quiet(), **OWN)
    for name, tensor in alone.model.state_dict().items():
        torch.testing.assert_close(weights(place)[name], tensor, rtol=0, atol=1e-6)


OWN = {"scale": "smoke", "steps": 8, "grid": 4, "sequences": 32, "batch_size": 8, "lr": 3e-4, "device": "cpu"}


def own_module():
    torch.manual_seed(0)
    vocabulary = mf.build_task("navigation", steps=8, grid=4).vocab_size
    return torch.nn.Sequential(torch.nn.Embedding(vocabulary, 16), torch.nn.Linear(16, vocabulary))


def train_own(rank, port, place):
    told = {"WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": rank, "LOCAL_RANK": rank}
    os.environ.update({name: str(value) for name, value in told.items()})
    torch.set_num_threads(1)
    own = own_module()
    result = mf.train("navigation", own, out=place, console=quiet(), sharding="full", **OWN)
    same = result.model is own and all(torch.equal(own.state_dict()[n], t) for n, t in weights(place).items())
    os._exit(0 if same else 1)
