"""How sharply heads attend, how they start, and how many keys a query sees."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mapformers as mf
from mapformers.ops.visibility import Visibility


def layer(name, seed=0, **options):
    torch.manual_seed(seed)
    return getattr(mf.layers, name)(16, 2, **options)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    start=st.integers(0, 5),
    length=st.integers(1, 9),
    self_key=st.booleans(),
    causal=st.booleans(),
    divided=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_the_number_of_keys_is_the_row_sum_of_the_mask(start, length, self_key, causal, divided, seed):
    g = torch.Generator().manual_seed(seed)
    n = start + length
    documents = (torch.rand(3, n, generator=g) < 0.3).long().cumsum(dim=1) if divided else None
    real = torch.rand(3, n, generator=g) < 0.7 if divided else None
    rule = Visibility(start, self_key, causal, documents, real)
    mask = rule.mask(slice(0, length), n, torch.device("cpu"))
    expected = mask.sum(dim=-1) if divided else mask.sum(dim=-1).unsqueeze(0)
    assert torch.equal(rule.n_keys(length), expected)


@pytest.mark.parametrize("name", ["NoPE", "RoPE", "CoPE", "PaTH", "MapWM", "MapEM", "MapWMNC", "MapEMNC"])
def test_at_the_typical_length_nothing_changes_at_the_start(name):
    x = torch.randn(2, 7, 16)
    plain, scaled = layer(name), layer(name, length_scaling="log", typical_length=7)
    at_last = [module(x)[:, -1] for module in (plain, scaled)]
    torch.testing.assert_close(*at_last)
    assert not torch.allclose(plain(x)[:, 3], scaled(x)[:, 3], atol=1e-6)


def test_logits_grow_with_the_logarithm_of_the_length():
    """Attention to one matching key among n others stays as it is when the logits are multiplied by log n."""
    heads = layer("NoPE", length_scaling="log", typical_length=4).heads
    for n in (2, 4, 16, 64):
        q = torch.ones(1, 2, 1, 8)
        sharpened = heads.sharpen(q, torch.tensor([[n]]))
        torch.testing.assert_close(sharpened, q * math.log(n) / math.log(4))


def test_each_head_learns_its_own_sharpness():
    module = layer("MapEM", length_scaling="log")
    module(torch.randn(2, 9, 16)).square().sum().backward()
    grad = module.heads.sharpness.grad
    assert grad.shape == (2,) and (grad != 0).all() and grad[0] != grad[1]


def test_by_default_there_is_no_parameter_for_it():
    names = [name for name, _ in layer("MapEM").named_parameters()]
    assert not any("sharpness" in name for name in names)


def test_an_ordinary_start_has_all_weights_of_the_usual_size():
    torch.manual_seed(0)
    ordinary = mf.layers.MapWM(256, 1, init="ordinary").heads
    copying = mf.layers.MapWM(256, 1).heads
    query, key, value = ordinary.project.weight.chunk(3)
    for weight in (query, key, value):
        assert weight.std().item() * 16 == pytest.approx(1, abs=0.02)
    assert ordinary.out.weight.std().item() * 16 == pytest.approx(1 / math.sqrt(2), abs=0.02)
    torch.testing.assert_close(copying.out.weight, copying.project.weight[-256:].T)
    assert copying.project.weight[:256].std().item() * 16 == pytest.approx(0.1, abs=0.01)


def test_cope_starts_ordinarily_with_positions_of_zero():
    assert (mf.layers.CoPE(16, init="ordinary").positions == 0).all()
    assert mf.layers.CoPE(16).positions.std() > 0.5


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"length_scaling": "sqrt"}, "length_scaling must be one of none, log"),
        ({"init": "zeros"}, "init must be one of copying, ordinary"),
        ({"typical_length": 1}, "typical_length must be at least 2"),
        ({"softmax": False, "decay": True}, "softmax=False goes with decay=False, self_key=True"),
        ({"softmax": False, "length_scaling": "log"}, "softmax=False goes with"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_wrong_options_are_refused_in_one_sentence(wrong, sentence):
    with pytest.raises(mf.UserError, match=sentence):
        mf.layers.MapWM(16, **wrong)


def test_a_run_starts_from_the_length_it_is_trained_on():
    """128 steps of navigation are 256 tokens, of which the last is never read."""
    for dims, tokens in ((2, 255), (5, 31)):
        config = mf.RunConfig.compose("navigation", "mapwm", dims=dims, length_scaling="log")
        assert config.model.layers[0].options.typical_length == tokens
        hybrid = [
            ("mapwm", {"length_scaling": "log"}),
            ("mapwm", {"length_scaling": "log", "typical_length": 7}),
            "rope",
        ]
        layers = mf.RunConfig.compose("navigation", layers=hybrid, dims=dims).model.layers
        assert [layer.options.typical_length for layer in layers] == [tokens, 7, 256]
    given = mf.RunConfig.compose("navigation", "mapwm", length_scaling="log", typical_length=7)
    assert given.model.layers[0].options.typical_length == 7
    assert mf.RunConfig.compose("navigation", "mapwm").model.layers[0].options.typical_length == 256
