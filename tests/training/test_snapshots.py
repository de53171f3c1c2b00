"""Snapshots along a run: kept on request, denser at the beginning, and changing nothing of what is trained."""

import pytest
import torch

from mapformers import load
from mapformers.errors import UserError
from mapformers.explorer.exhibit import open_runs
from mapformers.explorer.server import Explorer
from mapformers.runs import snapshots
from runs import run


def test_steps_begin_before_the_first_and_end_with_the_last():
    assert snapshots.snapshot_steps(1200, 12)[:4] == [0, 10, 40, 89] and snapshots.snapshot_steps(1200, 12)[-1] == 1200
    assert snapshots.snapshot_steps(1200, 0) == [] and snapshots.snapshot_steps(3, 50) == [0, 1, 2, 3]
    assert snapshots.snapshot_steps(100, 1) == [0]


def test_a_run_keeps_them_and_learns_the_same(tmp_path):
    plain, kept = load(run(tmp_path / "plain")), load(run(tmp_path / "kept", snapshots=4))
    for name, weights in plain.model.state_dict().items():
        assert torch.equal(weights, kept.model.state_dict()[name]), name
    steps = snapshots.steps_of(tmp_path / "kept" / "snapshots")
    assert list(steps) == [0, 1, 5, 12] and not (tmp_path / "plain" / "snapshots").exists()
    untrained, last = kept.config.build_model(), kept.config.build_model()
    for step, model in ((0, untrained), (12, last)):
        snapshots.load_into(steps[step], model)
    for (name, first), end in zip(kept.config.build_model().state_dict().items(), last.state_dict().values()):
        assert torch.equal(first, untrained.state_dict()[name]) and torch.equal(end, kept.model.state_dict()[name])


def test_the_explorer_reads_a_model_as_it_was(tmp_path):
    folder = run(tmp_path / "kept", snapshots=4)
    explorer = Explorer(open_runs([folder]))
    assert explorer.about["models"][0]["snapshots"] == [0, 1, 5, 12]
    asked = {"model": 0, "tokens": [0, 5, 2]}
    now, end, start = (explorer.read({**asked, "snapshot": step}) for step in (None, 12, 0))
    assert now == end != start
    moved = explorer.answers["snapshot"]({"model": 0, "snapshot": 0})["layers"][0]["movements"]
    assert moved != explorer.about["models"][0]["layers"][0]["movements"]
    with pytest.raises(UserError, match="Snapshots were kept at steps 0, 1, 5, 12"):
        explorer.read({**asked, "snapshot": 7})
    (folder / "snapshots" / "step-00000005.safetensors").write_bytes(b"broken")
    with pytest.raises(UserError, match="no snapshot of this model"):
        explorer.read({**asked, "snapshot": 5})
    run(folder, overwrite=True)
    assert snapshots.steps_of(folder / "snapshots") == {}  # they went with the run that made them
