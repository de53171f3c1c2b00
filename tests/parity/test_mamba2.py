"""`mamba2` against `transformers`: the whole block with the same weights, in value and gradient."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from helpers import Layout, assert_same
from mapformers.errors import UserError
from mapformers.layers.mamba2 import NORM_EPS, Mamba2, Mamba2Options
from mapformers.modules.context import Context
from mapformers.modules.mixer import LayerShape
from mapformers.training.optimizer import split_parameters

SIZES = {
    "default": (64, Mamba2Options()),
    "authors": (64, Mamba2Options(d_state=128, channels_per_head=32)),
    "odd": (24, Mamba2Options(d_state=5, expand=3, conv_size=3, channels_per_head=9)),
}
LENGTH = 150  # more than two chunks of ours, and of theirs
each_size = pytest.mark.parametrize(("d_model", "options"), SIZES.values(), ids=SIZES)
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def build_mamba2(d_model: int, options: Mamba2Options) -> Mamba2:
    torch.manual_seed(0)
    layer = Mamba2.of_shape(LayerShape(d_model, head_dim=d_model), options)
    nn.init.uniform_(layer.norm.gain, 0.5, 1.5)
    nn.init.normal_(layer.D)
    return layer


def of_transformers(ours: Mamba2) -> nn.Module:
    """Their block with our weights; the gain of the norm has another name, all others are the same."""
    oracle = pytest.importorskip("transformers.models.mamba2.modeling_mamba2", reason="transformers is the oracle")
    options, heads = ours.options, len(ours.A_log)
    config = oracle.Mamba2Config(
        hidden_size=ours.shape.d_model,
        num_heads=heads,
        head_dim=ours.channels // heads,
        state_size=options.d_state,
        expand=options.expand,
        conv_kernel=options.conv_size,
        n_groups=1,
        num_hidden_layers=1,
        chunk_size=64,
        layer_norm_epsilon=NORM_EPS,
    )
    theirs = oracle.Mamba2Mixer(config, layer_idx=0)
    theirs.load_state_dict({their_name(name): t for name, t in ours.state_dict().items()}, strict=True)
    return theirs.to(ours.D.dtype)


def their_name(name: str) -> str:
    return "norm.weight" if name == "norm.gain" else name


@pytest.fixture
def honest_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle rounds to float32 on the way, by ``.float()`` and ``.to(torch.float32)``; here float64 stays."""
    narrow, to = Tensor.float, Tensor.to
    monkeypatch.setattr(Tensor, "float", lambda x: x if x.dtype == torch.float64 else narrow(x))
    monkeypatch.setattr(
        Tensor,
        "to",
        lambda x, *args, **kw: x if x.dtype == torch.float64 and args == (torch.float32,) else to(x, *args, **kw),
    )


def values_and_gradients(out: Tensor, x: Tensor, module: nn.Module) -> dict[str, Tensor]:
    names, weights = zip(*((their_name(name), p) for name, p in module.named_parameters()))
    upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    return dict(zip(("value", "x", *names), (out, *torch.autograd.grad(out, (x, *weights), upstream))))


@each_dtype
@each_size
@pytest.mark.usefixtures("honest_float64")
def test_the_block_is_theirs_in_value_and_gradient(d_model: int, options: Mamba2Options, dtype: torch.dtype):
    ours = build_mamba2(d_model, options).to(dtype)
    theirs = of_transformers(ours)
    x = torch.randn(2, LENGTH, d_model, dtype=dtype, requires_grad=True)
    got = values_and_gradients(ours.mix(x, None, Context.of(x))[0], x, ours)
    wanted = values_and_gradients(theirs(x), x, theirs)
    assert got.keys() == wanted.keys()
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    for name in got:
        scale = wanted[name].abs().max().item()  # gradients of weights are sums over 300 tokens
        torch.testing.assert_close(
            got[name], wanted[name], rtol=tolerance, atol=tolerance * max(1.0, scale), msg=lambda m, n=name: n + m
        )


@pytest.mark.usefixtures("honest_float64")
def test_packed_documents_are_theirs_one_by_one():
    ours = build_mamba2(*SIZES["odd"]).double()
    theirs = of_transformers(ours)
    layout = Layout(("AAAABBBBBCCC", "AAA..A..BBBB", "...AAAAA^BBB"))
    x = torch.randn(3, 12, 24, dtype=torch.float64)
    mixed, _ = ours.mix(x, None, layout.context())
    for row, at in layout.documents():
        assert_same(mixed[row, at], theirs(x[row : row + 1, at])[0])


def test_it_starts_as_the_authors_code_does():
    layer = Mamba2(512, channels_per_head=4)  # 256 heads
    assert layer.D.eq(1).all() and layer.norm.gain.eq(1).all()
    rates = layer.A_log.exp()
    assert 1 <= rates.min() < 1.5 and 15.5 < rates.max() <= 16.001 and abs(rates.mean() - 8.5) < 1
    step = softplus(layer.dt_bias)
    assert 0.99e-3 < step.min() < 1.2e-3 and 0.08 < step.max() < 0.1001
    assert abs(step.log().mean().exp() / 0.01 - 1) < 0.3  # log-uniform: the middle of 0.001 and 0.1


def test_rates_steps_and_skips_do_not_decay():
    layer = Mamba2(32, 2)
    _, plain = split_parameters(layer)
    assert {id(layer.A_log), id(layer.D), id(layer.dt_bias)} <= {id(p) for p in plain}
    assert not any(layer.in_proj.weight is p for p in plain)


def test_heads_are_those_of_attention_times_expand_unless_sized():
    assert [len(Mamba2(64, n, expand=e).A_log) for n, e in ((1, 2), (4, 2), (2, 3))] == [2, 8, 6]
    assert len(Mamba2(64, 2, head_dim=24).A_log) == 4
    assert len(Mamba2(64, 2, channels_per_head=16).A_log) == 8


def test_heads_that_do_not_divide_the_channels_are_refused():
    with pytest.raises(UserError, match="128 channels cannot be divided into heads of 48; change channels_per_head"):
        Mamba2(64, channels_per_head=48)
    with pytest.raises(UserError, match="d_state must be at least 1, not 0"):
        Mamba2(64, d_state=0)
