"""Positions on the map: a long walk and its way back end where they began, in float32 models and under bf16 autocast;
and what a model noted can be looked at under stable names."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers import CASES, MIXED, PLAIN, Case, Layout, assert_bitwise, assert_same, draw_tokens
from mapformers.modules.context import Context
from mapformers.modules.layer import LAYERS, Block
from mapformers.modules.mixer import LayerShape
from mapformers.modules.movement import PathIntegrator, VelocityOptions

N_STEPS = 100_000
CHUNK = 250
ACCURACY = 1e-3  # radians


def integrator() -> PathIntegrator:
    """Velocities from 2π down, rank 2, head of 64; W_in such that Δ is at most 1 for inputs of at most 1."""
    path = PathIntegrator(LayerShape(d_model=4, n_heads=1, head_dim=64), 2, VelocityOptions(omega_max=2 * math.pi))
    with torch.no_grad():
        path.w_in.copy_((4 * torch.randn(2, 4)).softmax(dim=-1))
        path.w_out.add_(0.1 * torch.randn_like(path.w_out))
    return path


def there_and_back(low: float) -> Tensor:
    """(1, 2·N, 4) inputs: random steps, then the same ones undone, by another way: movements commute."""
    steps = torch.empty(N_STEPS, 4).uniform_(low, 1.0)
    return torch.cat((steps, -steps[torch.randperm(N_STEPS)])).unsqueeze(0)


def walk(path: PathIntegrator, x: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
    """θ (1, 1, L, n_b) as the model has it, and the coordinate reached; read ``chunk`` tokens at a time."""
    place, angles = None, []
    for piece in x.split(chunk, dim=1):
        context = Context.of(torch.zeros(piece.shape[:2], dtype=torch.long), recording={})
        theta, place, _ = path(piece, place, context)
        assert theta.dtype == torch.float32
        angles.append(torch.atan2(theta.sin(), theta.cos()))
    return torch.cat(angles, dim=2), place


def miss(theta: Tensor) -> float:
    """The largest angle from 0, around the circle."""
    return torch.remainder(theta.double() + math.pi, 2 * math.pi).sub(math.pi).abs().max().item()


@pytest.mark.parametrize("chunk", [2 * N_STEPS, CHUNK], ids=["one-piece", "streamed"])
@pytest.mark.parametrize("low", [-1.0, 0.0], ids=["wandering", "drifting"])
@torch.no_grad()
def test_a_long_walk_undone_returns_to_its_start(low: float, chunk: int):
    path, x = integrator(), there_and_back(low)
    theta, place = walk(path, x, chunk)
    assert theta.shape == (1, 1, 2 * N_STEPS, 32)
    assert miss(theta[0, 0, -1]) < ACCURACY
    assert place.abs().max() < 1e-4

    rate = path.w_out[0].double() * path.omega.double()
    steps = path.movement(x)[0, :, 0]
    assert 0.5 < steps.abs().max() < 1.001
    farthest = [math.fsum(column) for column in steps[:N_STEPS].double().T.tolist()]
    expected = torch.tensor(farthest, dtype=torch.float64) @ rate
    assert miss(theta[0, 0, N_STEPS - 1] - expected) < ACCURACY

    float32_sum = np.cumsum((steps @ rate.float()).numpy(), axis=0, dtype=np.float32)
    assert miss(torch.from_numpy(float32_sum)[-1]) > ACCURACY


@torch.no_grad()
def test_autocast_leaves_coordinate_and_angle_bitwise_alone():
    path = integrator()
    x = torch.randn(2, 50, 4)
    tokens = torch.zeros(2, 50, dtype=torch.long)
    plain, cast = Context.of(tokens, recording={}), Context.of(tokens, recording={})
    path(x, None, plain)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ x.mT).dtype == torch.bfloat16
        path(x, None, cast)
    assert plain.recording.keys() == {"delta_in", "delta_out", "coordinate", "theta"}
    for name, tensor in plain.recording.items():
        assert_bitwise(cast.recording[name], tensor)


POSITIONS = {"delta_in", "coordinate", "theta", "rotation", "place"}
WITHOUT = ("cope", "lstm", "mamba", "mamba2", "nope", "path", "stack-rnn")  # they note none of these


def has_positions(case: Case) -> bool:
    """`mapem` may attend to what was seen alone, and `mampa` may do without a map."""
    return case.name not in WITHOUT and case.options.get("attend") != "o" and case.options.get("rank", 2) is not None


@pytest.mark.parametrize("case", [case for case in CASES if has_positions(case)], ids=str)
@torch.no_grad()
def test_autocast_leaves_the_positions_of_a_layer_bitwise_alone(case: Case):
    layer = case.build(dtype=torch.float32).layers[0]
    layout, contexts = Layout(MIXED), []
    x = torch.randn(*layout.tokens.shape, 16)
    for enabled in (False, True):
        context = layout.context()
        context.recording = {}
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            layer(x, None, None, context)
        contexts.append(context.recording)
    plain, cast = contexts
    names = POSITIONS & plain.keys()
    assert names or not LAYERS.is_own(case.name), "a layer without positions belongs to WITHOUT"
    for name in names:
        assert_bitwise(cast[name], plain[name])
    assert "coordinate" not in plain or plain["coordinate"].dtype == torch.float64


MOVEMENT = {"delta_in", "delta_out", "coordinate", "theta"}
HEADS = {"queries", "keys", "values", "attention"}
NAMES = {
    ("rope",): {"theta", *HEADS},
    ("nope",): HEADS,
    ("mapwm",): MOVEMENT | HEADS,
    ("mapem",): MOVEMENT | HEADS | {"attn_x", "attn_p"},
    ("mapem", "s"): MOVEMENT | {"values", "attention"},
    ("mapem", "o"): HEADS,
    ("mapwm-nc",): {"delta_in", "delta_out", "rotation", *HEADS},
    ("cope",): HEADS | {"attn_x", "attn_p"},
    ("tape",): {"theta", *HEADS},
}


@pytest.mark.parametrize("name, names", NAMES.items(), ids=map("-".join, NAMES))
def test_observe_returns_stable_names_for_each_layer(name: tuple[str, ...], names: set[str]):
    model = Case(name[0], {"attend": name[1]} if len(name) > 1 else {}).build()
    tokens = draw_tokens(3, 7)
    notes = model.observe(tokens)
    assert len(notes) == 2
    sizes = {"coordinate": (3, 7, 2, 2), "values": (3, 2, 7, 8), "rotation": (3, 7, 2, 2, 4, 4)}
    sizes |= dict.fromkeys(("attention", "attn_x", "attn_p"), (3, 2, 7, 7))
    sizes |= {"theta": (3, 2, 7, 4)}
    for seen in notes:
        assert seen.keys() == names
        assert all(seen[key].shape == size for key, size in sizes.items() if key in seen)
        assert not any(tensor.requires_grad for tensor in seen.values())
    assert not torch.equal(notes[0]["values"], notes[1]["values"])


@pytest.mark.parametrize("rows", [PLAIN, MIXED], ids=["plain", "mixed"])
@pytest.mark.parametrize("case", CASES, ids=str)
@torch.no_grad()
def test_what_is_observed_is_what_is_computed(case: Case, rows: tuple[str, ...]):
    layer = case.build().layers[0]
    layout = Layout(rows)
    x = torch.randn(*layout.tokens.shape, 16, dtype=torch.float64)
    unseen, seen = (Context.of(layout.tokens) if rows is PLAIN else layout.context() for _ in range(2))
    seen.recording = {}
    out, *_ = layer(x, None, None, seen)
    assert_bitwise(out, layer(x, None, None, unseen)[0])
    notes = seen.recording
    for row, at in layout.documents():
        alone = Context.of(layout.tokens[row, at].unsqueeze(0), recording={})
        layer(x[row, at].unsqueeze(0), None, None, alone)
        if "coordinate" in notes:
            assert_same(notes["coordinate"][row, at], alone.recording["delta_in"][0].cumsum(dim=0).double())
        if "theta" in notes:
            theta = notes["theta"].expand(len(rows), -1, -1, -1)[row, :, at]
            assert_same(theta, alone.recording["theta"][0])
    if "attention" in notes and isinstance(layer, Block):
        mixed = layer.mixer.heads.merge(notes["attention"] @ notes["values"])
        assert_same(mixed, layer.mixer.mix(layer.norm_mixer(x), None, unseen)[0])
