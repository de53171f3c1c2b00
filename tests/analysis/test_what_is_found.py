"""The numbers of an analysis are right where the answer is known."""

from pathlib import Path

import numpy as np
import pytest
import torch

import mapformers as mf
from mapformers.analysis.brackets import last_open
from mapformers.analysis.compositions import action_matrices, compositions, world_truth
from mapformers.analysis.finding import Finding, Subject
from mapformers.analysis.places import _rate_map, revisits
from mapformers.analysis.projections import cosines, plane_of, principal_plane
from mapformers.analysis.walks import LinearMap, walks
from mapformers.reports.training_figures import smoothed
from mapformers.runs.config import RunConfig
from mapformers.runs.run import Run
from mapformers.seeding import generator


def subject_of(task: str, model: str, **settings: object) -> Subject:
    config = RunConfig.compose(task, model, "smoke", **settings)
    return Subject(Run(Path("nowhere"), config, config.build_model(), {}, 0))


def with_a_perfect_map(dims: int, steps: int, grid: int) -> Subject:
    """A model whose actions move by one unit along an oblique basis, and whose observations stand still."""
    subject = subject_of("navigation", "mapwm", dims=dims, steps=steps, grid=grid, rank=max(2, dims), d_model=16)
    path, names = subject.model.layers[0].mixer.path, subject.task.vocab_size
    basis = torch.eye(path.rank) + 0.3
    wanted = torch.zeros(names, path.rank)
    for axis in range(dims):
        wanted[2 * axis], wanted[2 * axis + 1] = basis[axis], -basis[axis]
    x = subject.model.layers[0].norm_mixer(torch.linalg.qr(torch.randn(16, 16)).Q[: min(names, 16)])
    with torch.no_grad():
        embedded = torch.cat((x, x[-1:].expand(max(0, names - 16), -1)))[:names]
        subject.model.embedding.weight.copy_(embedded)
        inputs = subject.model.layers[0].norm_mixer(embedded)
        path.w_in.copy_(torch.linalg.lstsq(inputs, wanted).solution.T)
        path.mean.zero_()
    return subject


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_a_perfect_map_explains_all_of_unseen_walks(dims: int):
    found = walks(with_a_perfect_map(dims, steps=16, grid=8))
    assert isinstance(found, Finding)
    assert found.numbers["r2_held_out"] == pytest.approx(1, abs=1e-6)
    assert max(found.numbers["error_in_cells"]["mean"]) < 1e-3
    assert found.data["truth"].shape == found.data["integrated"].shape == (17, dims)


def test_a_linear_map_is_judged_on_walks_it_was_not_fitted_on():
    torch.manual_seed(0)
    noise, truth = torch.randn(8, 5, 30, dtype=torch.float64), torch.randn(8, 5, 2)
    fitted = LinearMap.fit(noise[:4], truth[:4])
    assert fitted.explained(noise[:4], truth[:4]) > 0.9  # 30 numbers explain 20 points
    assert fitted.explained(noise[4:], truth[4:]) < 0.2


def test_planes_keep_what_they_draw():
    vectors = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 2.0]])
    plane = plane_of(vectors)
    assert plane.share == pytest.approx(1) and "of 3" in plane.axes[0]
    torch.testing.assert_close(plane.points.norm(dim=1), vectors.norm(dim=1).double())
    assert plane_of(vectors[:, :1]).points[:, 1].abs().max() == 0
    torch.testing.assert_close(plane_of(vectors[:, :2]).points, vectors[:, :2].double())
    assert principal_plane(vectors + 5).points.mean(dim=0).abs().max() < 1e-9
    torch.testing.assert_close(cosines(vectors)[0], torch.tensor([1.0, -1.0, 0.0], dtype=torch.float64))


def test_the_last_open_bracket_is_the_top_of_the_stack():
    task = mf.build_task("dyck", length=24, depth=5)
    batch = task.sample("iid", 16, generator(0, "test"))
    for tokens, top in zip(batch.tokens.tolist(), batch.info["top"].tolist()):
        opened = last_open(tokens, types=2)
        assert [tokens[at] if at >= 0 else -1 for at in opened] == top
    assert last_open([0, 1, 3, 2, 0], types=2) == [0, 1, 0, -1, 4]


def test_a_rate_map_is_the_mean_by_place_and_says_how_much_place_explains():
    torch.manual_seed(0)
    places = torch.randint(0, 4, (50, 20, 2))
    of_place = (places[..., 0] + 10 * places[..., 1]).float()
    means, tuned = _rate_map(of_place, places)
    assert tuned == pytest.approx(1)
    np.testing.assert_allclose(means, np.arange(4)[:, None] + 10 * np.arange(4)[None])
    assert _rate_map(torch.randn(50, 20), places)[1] < 0.1


def test_attention_by_distance_is_part_of_attention_on_observations():
    found = revisits(subject_of("navigation", "rope", steps=16, grid=4, d_model=16))
    assert isinstance(found, Finding)
    numbers = found.numbers
    assert (
        0 < numbers["share_on_what_was_seen_here"] == pytest.approx(numbers["share_by_distance_in_cells"][0], abs=1e-3)
    )
    assert sum(numbers["share_by_distance_in_cells"]) == pytest.approx(numbers["share_on_observations"], abs=2e-3)


@pytest.mark.parametrize("model", ["mapwm", "mapwm-nc", "mapem-nc"])
def test_action_matrices_are_rotations_and_compose_as_walks_do(model: str):
    subject = subject_of("navigation", model, steps=6, grid=4, d_model=16)
    matrices = action_matrices(subject)
    one = torch.eye(16, dtype=torch.float64).expand_as(matrices)
    torch.testing.assert_close(matrices @ matrices.mT, one, rtol=0, atol=1e-5)
    found = compositions(subject)
    assert isinstance(found, Finding)
    first, then = matrices[0], matrices[2]
    assert found.numbers["distance_from_identity"][0][2] == pytest.approx(
        float((then @ first - one[0]).norm() / 4), abs=1e-3
    )
    commuting = max(max(row) for row in found.numbers["commutator"])
    assert (commuting < 1e-5) == (model == "mapwm")


def test_the_truth_of_worlds():
    returns, commutes = world_truth(subject_of("navigation", "mapwm", dims=2, d_model=16))
    assert returns.tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]] and commutes.min() == 1
    family = subject_of("family-tree", "mapem-nc", steps=4, d_model=16)
    names = [family.task.token_names[action] for action in family.actions]
    returns, commutes = world_truth(family)
    spouse = names.index("spouse")
    assert returns[spouse, spouse] == 1
    assert returns[names.index("mother"), names.index("mother")] == 0
    assert (commutes[np.eye(len(names), dtype=bool)] == 1).all()
    np.testing.assert_array_equal(commutes, commutes.T)


def test_a_smoothed_curve_keeps_its_ends_and_its_mean():
    values = [0.0, 1.0, 0.0, 1.0, 4.0]
    assert smoothed(values, 3).tolist() == pytest.approx([0.0, 1 / 3, 2 / 3, 5 / 3, 4.0])
