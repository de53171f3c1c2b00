"""`mamba` against `transformers` and `mambapy`: the whole block with the same weights, in value and gradient."""

import pytest
import torch
from torch import Tensor, nn

from helpers import Layout, assert_same
from mapformers.layers.mamba import Mamba
from mapformers.modules.context import Context
from mapformers.modules.mixer import LayerShape
from mapformers.modules.ssm import SSMOptions

SIZES = {
    "default": (64, SSMOptions()),
    "paper": (32, SSMOptions(d_state=32)),
    "odd": (24, SSMOptions(d_state=5, expand=3, conv_size=3, dt_rank=7)),
}
LENGTH = 40
each_size = pytest.mark.parametrize(("d_model", "options"), SIZES.values(), ids=SIZES)
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def of_transformers(d_model: int, options: SSMOptions) -> nn.Module:
    oracle = pytest.importorskip("transformers.models.mamba.modeling_mamba", reason="transformers is the oracle")
    config = oracle.MambaConfig(
        hidden_size=d_model,
        state_size=options.d_state,
        expand=options.expand,
        conv_kernel=options.conv_size,
        time_step_rank="auto" if options.dt_rank is None else options.dt_rank,
        num_hidden_layers=1,
        use_mambapy=False,
    )
    return oracle.MambaMixer(config, layer_idx=0)


def of_mambapy(d_model: int, options: SSMOptions) -> nn.Module:
    oracle = pytest.importorskip("mambapy.mamba", reason="mambapy is the oracle")
    config = oracle.MambaConfig(
        d_model=d_model,
        n_layers=1,
        dt_rank="auto" if options.dt_rank is None else options.dt_rank,
        d_state=options.d_state,
        expand_factor=options.expand,
        d_conv=options.conv_size,
    )
    return oracle.MambaBlock(config)


each_oracle = pytest.mark.parametrize("oracle", [of_transformers, of_mambapy], ids=["transformers", "mambapy"])


@pytest.fixture
def honest_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both oracles round A to float32 on the way, by ``.float()``; here that keeps what is float64."""
    narrow = Tensor.float
    monkeypatch.setattr(Tensor, "float", lambda x: x if x.dtype == torch.float64 else narrow(x))


def build_mamba(d_model: int, options: SSMOptions) -> Mamba:
    torch.manual_seed(0)
    return Mamba.of_shape(LayerShape(d_model), options)


def values_and_gradients(out: Tensor, x: Tensor, module: nn.Module) -> dict[str, Tensor]:
    names, weights = zip(*module.named_parameters())
    upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    return dict(zip(("value", "x", *names), (out, *torch.autograd.grad(out, (x, *weights), upstream))))


@each_dtype
@each_oracle
@each_size
@pytest.mark.usefixtures("honest_float64")
def test_the_block_is_theirs_in_value_and_gradient(d_model: int, options: SSMOptions, oracle, dtype: torch.dtype):
    ours, theirs = build_mamba(d_model, options).to(dtype), oracle(d_model, options).to(dtype)
    theirs.load_state_dict(ours.state_dict(), strict=True)  # their names and shapes are ours
    x = torch.randn(2, LENGTH, d_model, dtype=dtype, requires_grad=True)
    got = values_and_gradients(ours.mix(x, None, Context.of(torch.zeros(2, LENGTH, dtype=torch.long)))[0], x, ours)
    wanted = values_and_gradients(theirs(x), x, theirs)
    assert got.keys() == wanted.keys()
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    for name in got:
        torch.testing.assert_close(got[name], wanted[name], rtol=tolerance, atol=tolerance, msg=lambda m, n=name: n + m)


@each_oracle
@each_size
def test_what_is_peculiar_to_mamba_starts_as_theirs(d_model: int, options: SSMOptions, oracle):
    ours, theirs = build_mamba(d_model, options), oracle(d_model, options)
    for name in ("A_log", "D"):
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), rtol=1e-6, atol=0)
    for block in (ours, theirs):
        assert 0.8 < block.dt_proj.weight.abs().max() * ours.dt_rank**0.5 <= 1
        step = nn.functional.softplus(block.dt_proj.bias)
        assert 0.9e-3 < step.min() < 3e-3 and 0.05 < step.max() < 0.11
        assert abs(step.log().mean().exp().item() / 0.01 - 1) < 0.5  # log-uniform: the middle of 0.001 and 0.1


@pytest.mark.usefixtures("honest_float64")
def test_packed_documents_are_theirs_one_by_one():
    oracle = of_mambapy(24, SIZES["odd"][1]).double()
    ours = build_mamba(*SIZES["odd"]).double()
    oracle.load_state_dict(ours.state_dict())
    layout = Layout(("AAAABBBBBCCC", "AAA..A..BBBB", "...AAAAA^BBB"))
    x = torch.randn(3, 12, 24, dtype=torch.float64)
    mixed, _ = ours.mix(x, None, layout.context())
    for row, at in layout.documents():
        assert_same(mixed[row, at], oracle(x[row : row + 1, at])[0])
