"""The page goes through the snapshots of a run: a model is read as it was after a step of its training."""

import pytest
import torch

from mapformers.errors import UserError
from mapformers.explorer.loaded_runs import open_runs
from mapformers.explorer.server import Explorer
from mapformers.runs import snapshots
from untrained import untrained_runs

ASKED = {"model": 0, "tokens": [0, 5, 2]}


@pytest.fixture
def folder(tmp_path):
    """A run whose weights moved between two snapshots."""
    (run,) = untrained_runs("navigation").runs
    for step, scale in ((5, 1.1), (12, 1.3)):
        with torch.no_grad():
            for weights in run.model.parameters():
                weights.mul_(scale)
        snapshots.save(tmp_path / "run", step, run.model)
    run.save(tmp_path / "run")
    return tmp_path / "run"


def test_every_moment_is_read_as_it_was(folder):
    loaded = open_runs([folder])
    explorer = Explorer(loaded)
    assert explorer.about["models"][0]["snapshots"] == [0, 5, 12]
    now, end, middle, start = (explorer.read({**ASKED, "snapshot": step}) for step in (None, 12, 5, 0))
    assert now == end and len({str(seen) for seen in (end, middle, start)}) == 3
    with torch.no_grad():
        untrained = loaded.runs[0].config.build_model()(torch.tensor([ASKED["tokens"]]))[0]
    assert torch.allclose(torch.tensor(start["logits"]), untrained, atol=1e-4)
    moved = explorer.answers["snapshot"]({"model": 0, "snapshot": 0})["layers"][0]["movements"]
    assert moved != explorer.about["models"][0]["layers"][0]["movements"]


def test_a_moment_that_was_not_kept_and_a_broken_one_are_sentences(folder):
    explorer = Explorer(open_runs([folder]))
    with pytest.raises(UserError, match="Snapshots were kept at steps 0, 5, 12"):
        explorer.read({**ASKED, "snapshot": 7})
    with pytest.raises(UserError, match="number of a step"):
        explorer.read({**ASKED, "snapshot": "5"})
    next(path for step, path in snapshots.found_in(folder) if step == 5).write_bytes(b"broken")
    with pytest.raises(UserError, match="is not a snapshot of this run"):
        explorer.read({**ASKED, "snapshot": 5})


def test_a_run_without_snapshots_has_no_moments():
    assert Explorer(untrained_runs("navigation")).about["models"][0]["snapshots"] == []
