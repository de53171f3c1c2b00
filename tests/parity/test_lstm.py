"""`lstm` against `torch.nn.LSTM`: value, state and gradient, for whole rows and for each document of a packed one."""

import pytest
import torch
from torch import Tensor, nn

from helpers import PACKED, Layout, assert_same
from mapformers.errors import UserError
from mapformers.layers.lstm import LSTM
from mapformers.modules.context import Context
from mapformers.ops.lstm import lstm

D_MODEL, HIDDEN, LENGTH = 12, 9, 40


def pair() -> tuple[LSTM, nn.LSTM]:
    ours, theirs = LSTM(D_MODEL, hidden=HIDDEN).double(), nn.LSTM(D_MODEL, HIDDEN, batch_first=True).double()
    with torch.no_grad():
        ours.out_proj.weight.zero_()
        ours.out_proj.weight[:HIDDEN] = torch.eye(HIDDEN)
        theirs.weight_ih_l0.copy_(ours.weight_ih)
        theirs.weight_hh_l0.copy_(ours.weight_hh)
        theirs.bias_hh_l0.copy_(ours.bias - theirs.bias_ih_l0)
    return ours, theirs


def gradients(out: Tensor, x: Tensor, module: nn.Module) -> list[Tensor]:
    """Of x, W_ih, W_hh and the bias."""
    weights = [p for name, p in module.named_parameters() if "out_proj" not in name and "bias_hh" not in name]
    return list(torch.autograd.grad(out.square().sum(), (x, *weights)))


@pytest.mark.parametrize("loop", [False, True], ids=["fused", "loop"])
def test_a_row_is_theirs_in_value_state_and_gradient(loop: bool):
    ours, theirs = pair()
    x = torch.randn(3, LENGTH, D_MODEL, dtype=torch.float64, requires_grad=True)
    real = torch.ones(3, LENGTH, dtype=torch.bool) if loop else None
    y, state = ours.mix(x, None, Context.of(x, padding_mask=real))
    wanted, (h, c) = theirs(x)
    assert_same(y[..., :HIDDEN], wanted)
    assert_same(state.h, h[0])
    assert_same(state.c, c[0])
    for got, want in zip(gradients(y, x, ours), gradients(wanted, x, theirs)):
        assert_same(got, want)


def test_packed_documents_are_theirs_one_by_one():
    ours, theirs = pair()
    for rows in (PACKED, ("AAAABBBBBCCC", "AAA..A..BBBB", "...AAAAA^BBB")):
        layout = Layout(rows)
        x = torch.randn(3, 12, D_MODEL, dtype=torch.float64)
        y, _ = ours.mix(x, None, layout.context())
        for row, at in layout.documents():
            assert_same(y[row, at, :HIDDEN], theirs(x[row : row + 1, at])[0][0])


def test_the_gradient_of_the_state_passes_through_padding_and_stops_at_a_reset():
    z, weight = torch.randn(6, 2, 8, dtype=torch.float64), torch.randn(8, 2, dtype=torch.float64)
    h, c = torch.randn(2, 2, 2, dtype=torch.float64)
    reset = torch.tensor([[0, 0, 0, 1, 0, 0], [0] * 6]).bool()
    real = torch.tensor([[1] * 6, [1, 0, 1, 1, 0, 0]]).bool()
    inputs = [t.requires_grad_() for t in (z, weight, h, c)]
    assert torch.autograd.gradcheck(lambda *args: lstm(*args, reset, real), inputs)
    y, last = lstm(*inputs, reset, real)
    by_h, by_z = torch.autograd.grad(y[-1].sum() + last.sum(), (h, z))
    assert not by_h[0].any() and by_h[1].all()
    assert not by_z[:3, 0].any() and not by_z[[1, 4, 5], 1].any() and by_z[3:, 0].any(dim=-1).all()


def test_it_starts_as_theirs():
    torch.manual_seed(0)
    ours, theirs = LSTM(48, 1), nn.LSTM(48, 48)
    for own, other in ((ours.weight_ih, theirs.weight_ih_l0), (ours.weight_hh, theirs.weight_hh_l0)):
        assert own.shape == other.shape
        assert own.std().item() == pytest.approx(other.std().item(), rel=0.05)
        assert own.abs().max().item() == pytest.approx(other.abs().max().item(), rel=0.01)


def test_a_hidden_state_of_nothing_is_refused():
    with pytest.raises(UserError, match="hidden must be at least 1, not 0"):
        LSTM(16, hidden=0)
