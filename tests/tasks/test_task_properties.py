"""What holds for every registered task: a batch is a function of the generator alone, and the loss is as documented."""

import dataclasses
import hashlib

import pytest
import torch

import mapformers as mf
from helpers import any_task
from mapformers.tasks import Task

TASKS = mf.list_tasks()


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def tensors_of(batch):
    named = {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch) if field.name != "info"}
    return {name: tensor for name, tensor in {**named, **batch.info}.items() if tensor is not None}


def assert_same(one, other):
    one, other = tensors_of(one), tensors_of(other)
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


@pytest.mark.parametrize("name", TASKS)
def test_every_split_gives_well_formed_batches(name):
    task = any_task(name)
    assert "iid" in task.splits
    for split in task.splits:
        batch = task.sample(split, 3, generator())
        assert batch.tokens.dtype == batch.targets.dtype == torch.int64
        assert batch.loss_mask.dtype == batch.score_mask.dtype == torch.bool
        shapes = {tensors_of(batch)[field].shape for field in ("tokens", "targets", "loss_mask", "score_mask")}
        assert len(shapes) == 1
        assert 0 <= int(batch.tokens.min()) <= int(batch.tokens.max()) < task.vocab_size
        assert torch.equal(batch.tokens[:, 1:], batch.targets[:, :-1])


@pytest.mark.parametrize("name", TASKS)
def test_same_seed_same_batch_other_seed_other_batch(name):
    task = any_task(name)
    first = task.sample("iid", 8, generator(3))
    assert_same(first, any_task(name).sample("iid", 8, generator(3)))
    assert not torch.equal(first.tokens, task.sample("iid", 8, generator(4)).tokens)


@pytest.mark.parametrize("name", TASKS)
def test_rows_of_a_batch_differ(name):
    batch = any_task(name).sample("iid", 16, generator())
    assert len({tuple(row) for row in batch.tokens.tolist()}) == 16


@pytest.mark.parametrize("name", TASKS)
def test_two_batches_of_64_are_one_of_128(name):
    task = any_task(name)
    stream = generator()
    halves = [tensors_of(task.sample("iid", 64, stream)) for _ in range(2)]
    whole = tensors_of(task.sample("iid", 128, generator()))
    for key, tensor in whole.items():
        assert torch.equal(tensor, torch.cat([half[key] for half in halves])), key


@pytest.mark.parametrize("name", TASKS)
def test_batches_do_not_depend_on_the_number_of_threads(name):
    task, threads = any_task(name), torch.get_num_threads()
    try:
        batches = []
        for n in (1, 2):
            torch.set_num_threads(n)
            batches.append(task.sample("iid", 64, generator()))
    finally:
        torch.set_num_threads(threads)
    assert_same(*batches)


@pytest.mark.parametrize("name", TASKS)
def test_sampling_leaves_the_global_stream_alone(name):
    torch.manual_seed(0)
    expected = torch.rand(4)
    torch.manual_seed(0)
    any_task(name).sample("iid", 2, generator())
    assert torch.equal(torch.rand(4), expected)


@pytest.mark.parametrize("name", TASKS)
def test_batch_size_below_one_is_refused(name):
    with pytest.raises(mf.UserError, match="batch_size must be at least 1, not 0"):
        any_task(name).sample("iid", 0, generator())


@pytest.mark.parametrize(
    ("dims", "checksum"),
    [
        (1, "3ec180708a1e8087f80f4e504f69411b60bdac72b7e3df44cd5b79674edbfe2e"),
        (2, "7c2ccbb170621b5ed3dec8a7445f5b616a013f65c68106a0e844675fc4bf1de0"),
    ],
)
def test_navigation_on_the_torus_is_pinned(dims, checksum):
    """A change of the sampling changes every figure ever measured, so it must not happen unnoticed."""
    batch = mf.build_task("navigation", dims=dims, edges="torus").sample("iid", 8, generator(0))
    assert hashlib.sha256(batch.tokens.contiguous().numpy().astype("<i8").tobytes()).hexdigest() == checksum


@pytest.mark.parametrize("name", [name for name in TASKS if type(any_task(name)).loss is Task.loss])
@pytest.mark.parametrize("masked", [False, True], ids=["own mask", "random mask"])
def test_loss_is_the_plain_masked_cross_entropy(name, masked):
    task = any_task(name)
    batch = task.sample("iid", 2, generator())
    if masked:
        chosen = torch.rand(batch.tokens.shape, generator=generator(1)) < 0.3
        batch = dataclasses.replace(batch, loss_mask=chosen)
    logits = torch.randn(*batch.tokens.shape, task.vocab_size, generator=generator(2), dtype=torch.float64)
    costs = []
    for row, place in batch.loss_mask.nonzero().tolist():
        here = logits[row, place]
        costs.append(float(here.exp().sum().log() - here[batch.targets[row, place]]))
    assert float(task.loss(logits, batch)) == pytest.approx(sum(costs) / len(costs), rel=1e-12)


@pytest.mark.parametrize("name", TASKS)
def test_show_is_readable_and_depends_on_the_generator(name):
    task = any_task(name)
    first = task.show("iid", generator(0))
    assert first == task.show("iid", generator(0)) != task.show("iid", generator(1))
    assert any(token in first for token in task.token_names)


def test_unknown_task_is_refused_with_the_nearest_name():
    with pytest.raises(mf.UserError, match="There is no task named 'navigaton'; did you mean 'navigation'"):
        mf.build_task("navigaton")
