"""`stack-rnn` against torch's own recurrent cells and a stack that is a list, one sequence and one token at a time."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from helpers import Layout, assert_same
from mapformers.errors import UserError
from mapformers.layers.stack_rnn import StackRNN
from mapformers.modules.context import Context
from mapformers.ops.stack_rnn import StackState, stack_rnn

D_MODEL, LENGTH = 8, 20
FORMS: dict[str, dict[str, Any]] = {
    "rnn": {"stack_depth": 6, "stack_width": 3},
    "rnn-noop": {"stack_depth": 4, "stack_width": 2, "noop": True, "hidden": 5},
    "lstm": {"stack_depth": 5, "stack_width": 3, "controller": "lstm"},
    "lstm-noop": {"stack_depth": 1, "stack_width": 1, "controller": "lstm", "noop": True},
}
each_form = pytest.mark.parametrize("options", FORMS.values(), ids=FORMS)
each_width = pytest.mark.parametrize("n_heads", [1, 2], ids=["one stack", "two stacks"])


def build(options: dict[str, Any], n_heads: int = 1) -> StackRNN:
    layer = StackRNN(D_MODEL, n_heads, **options).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(2)  # away from the middle of every nonlinearity
    return layer


def torch_cell(layer: StackRNN) -> nn.Module:
    kind = nn.RNNCell if layer.options.controller == "rnn" else nn.LSTMCell
    cell = kind(D_MODEL, layer.hidden).double()
    own = {"weight_ih": layer.weight_ih, "weight_hh": layer.weight_hh, "bias_ih": layer.bias}
    cell.load_state_dict({**own, "bias_hh": torch.zeros_like(layer.bias)})
    return cell


@torch.no_grad()
def by_lists(layer: StackRNN, x: Tensor) -> Tensor:
    """The layer's output (L, d_model) for one sequence: the equations of Suzgun et al. (2019), a stack being a list."""
    options, cell = layer.options, torch_cell(layer)
    h = c = torch.zeros(1, layer.hidden, dtype=x.dtype)
    empty = torch.zeros(options.stack_width, dtype=x.dtype)
    stacks = [[empty] * options.stack_depth for _ in range(layer.shape.n_heads)]
    outputs = []
    for token in x.unsqueeze(1):
        h = h + layer.weight_top @ torch.cat([stack[0] for stack in stacks]) + layer.bias_top
        if options.controller == "rnn":
            h = cell(token, h)
        else:
            h, c = cell(token, (h, c))
        wants = (h[0] @ layer.weight_act.T + layer.bias_act).chunk(layer.shape.n_heads)
        for n, (stack, want) in enumerate(zip(stacks, wants)):
            *logits, pushed = want.split([1] * layer.n_actions + [options.stack_width])
            actions = torch.cat(logits).softmax(dim=0)
            results = [[pushed.sigmoid(), *stack[:-1]], [*stack[1:], empty], stack][: layer.n_actions]
            stacks[n] = [sum(a * cell for a, cell in zip(actions, cells)) for cells in zip(*results)]
        outputs.append(h[0])
    return torch.stack(outputs) @ layer.out_proj.weight.T


@each_width
@each_form
def test_a_row_is_that_of_lists(options: dict[str, Any], n_heads: int):
    layer = build(options, n_heads)
    x = torch.randn(2, LENGTH, D_MODEL, dtype=torch.float64)
    y, _ = layer.mix(x, None, Context.of(x))
    for row in range(2):
        assert_same(y[row], by_lists(layer, x[row]))


@each_form
def test_packed_documents_are_those_of_lists_one_by_one(options: dict[str, Any]):
    layer, layout = build(options), Layout(("AAAABBBBBCCC", "AAA..A..BBBB", "...AAAAA^BBB"))
    x = torch.randn(3, 12, D_MODEL, dtype=torch.float64)
    y, _ = layer.mix(x, None, layout.context())
    for row, at in layout.documents():
        assert_same(y[row, at], by_lists(layer, x[row, at]))


@pytest.mark.parametrize("n_actions", [2, 3], ids=["push-pop", "noop"])
@pytest.mark.parametrize("controller", ["rnn", "lstm"])
def test_gradients_of_weights_and_states_are_those_of_finite_differences(controller: str, n_actions: int):
    """Through padding, and not through a reset; also of the state that is handed on."""
    hidden, gates, stacks, depth, width = 3, 3 if controller == "rnn" else 12, 2, 3, 2
    acting = stacks * (n_actions + width)
    shapes = [(5, 2, gates), (gates, hidden + stacks * width), (acting, hidden), (acting,)]
    shapes += [(2, hidden), (2, 0 if controller == "rnn" else hidden), (2, stacks, depth, width)]
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    reset = torch.tensor([[0, 0, 1, 0, 0], [0] * 5]).bool()
    real = torch.tensor([[1] * 5, [1, 0, 1, 1, 0]]).bool()

    def run(*values: Tensor) -> list[Tensor]:
        found = stack_rnn(*values[:4], StackState(*values[4:]), reset, real, controller)
        return [t for t in (found.h, *found.last) if t.numel()]

    assert torch.autograd.gradcheck(run, inputs)
    by_stack = torch.autograd.grad(run(*inputs)[-1].sum(), inputs[-1])[0]
    assert not by_stack[0].any() and by_stack[1].any()


@pytest.mark.parametrize("option", ["stack_depth", "stack_width", "hidden"])
def test_sizes_of_nothing_are_refused(option: str):
    with pytest.raises(UserError, match=f"{option} must be at least 1, not 0"):
        StackRNN(16, **{option: 0})


def test_an_unknown_controller_is_refused():
    with pytest.raises(UserError, match="controller must be one of rnn, lstm, not 'gru'"):
        StackRNN(16, controller="gru")
