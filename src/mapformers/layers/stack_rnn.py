"""`stack-rnn`: a recurrent network that pushes to and pops from a continuous stack (Suzgun 2019; 4.3, B.4).

The paper names it for Dyck: a stack beside the network, where MapFormers have one in their positions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear as project

from mapformers.errors import require
from mapformers.modules.context import Context
from mapformers.modules.layer import linear, register_layer
from mapformers.modules.mixer import LayerOptions, Mixer
from mapformers.ops.recurrent_cells import CELLS
from mapformers.ops.stack_rnn import Run, StackState, stack_loop, stack_rnn


@dataclass(frozen=True)
class StackRNNOptions(LayerOptions):
    controller: Literal["rnn", "lstm"] = "rnn"
    """What reads the stack and decides: a plain recurrent network, or an LSTM."""
    noop: bool = False
    """A third action beside push and pop, that leaves the stack as it is."""
    stack_depth: int = 64
    """Cells of a stack. What is pushed into a full stack takes the place of what lies at its bottom, which is lost."""
    stack_width: int = 8
    """Numbers in a cell."""
    hidden: int | None = None
    """Size of the hidden state, H (None: n_heads × head_dim, which is d_model unless head_dim is given)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("stack_depth", "stack_width", "hidden"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"{name} must be at least 1, not {value}.")


class StackRNN(Mixer):
    """s_t[i] = a_push s_{t−1}[i − 1] + a_pop s_{t−1}[i + 1] (+ a_noop s_{t−1}[i]): a stack that is moved by a mean.

    h_t = cell(x_t, h_{t−1} + W_s s_{t−1}[0]), a = softmax(W_a h_t), what is pushed is s_{t−1}[−1] = σ(W_n h_t), and
    below the bottom there is 0. The equations are those of Suzgun et al. (2019) with the softmax gate, after Joulin &
    Mikolov (2015); ``controller="lstm"`` is their Stack-LSTM, and they have no no-op. Each head has a stack and actions
    of its own; theirs is one head. As there, h_t has not seen the stack that its own actions make. So to know the top
    after a pop, h itself keeps the top, and the stack what lies below (`tests/unit/test_stack_by_hand.py`).

    It starts as `torch.nn.RNN`, `LSTM` and `Linear` do, and sits in the same block as attention (norm, mixer, norm,
    MLP): with H = d_model = 64 a block has 11.4·d_model² weights, with an LSTM 17.4, and one of attention 12.
    """

    Options = StackRNNOptions
    options: StackRNNOptions

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        shape, options = self.shape, self.options
        self.hidden = hidden = options.hidden or shape.n_heads * shape.head_dim
        self.n_actions = 3 if options.noop else 2
        tops, gates = shape.n_heads * options.stack_width, CELLS[options.controller].gates * hidden
        self.weight_ih = uniform(gates, shape.d_model, fan_in=hidden)
        self.weight_hh = uniform(gates, hidden, fan_in=hidden)
        self.bias = uniform(gates, fan_in=hidden)
        self.weight_top = uniform(hidden, tops, fan_in=tops)
        self.bias_top = uniform(hidden, fan_in=tops)
        acting = shape.n_heads * (self.n_actions + options.stack_width)
        self.weight_act = uniform(acting, hidden, fan_in=hidden)  # by head: the actions, then what would be pushed
        self.bias_act = uniform(acting, fan_in=hidden)
        self.out_proj = linear(hidden, shape.d_model, residual_of=shape)

    def mix(self, x: Tensor, state: StackState | None, context: Context) -> tuple[Tensor, StackState]:
        run = self.run(stack_rnn, x, state, context)
        context.note(actions=run.actions.transpose(0, 1), stack=run.stacks.transpose(0, 1))
        return self.out_proj(run.h.transpose(0, 1).to(x.dtype)), run.last

    def reference(self, x: Tensor, context: Context) -> Tensor:
        """The same in plain torch, token by token."""
        return self.out_proj(self.run(stack_loop, x, None, context).h.transpose(0, 1).to(x.dtype))

    def run(self, loop: Callable[..., Run], x: Tensor, state: StackState | None, context: Context) -> Run:
        """What the tokens and the stack add to the gates is projected first: W_hh (h + W_s s[0]) = (W_hh, W_hh W_s)."""
        wide = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            across, top = self.weight_hh.to(wide), self.weight_top.to(wide)
            bias = self.bias.to(wide) + across @ self.bias_top.to(wide)
            z = project(x.transpose(0, 1).to(wide), self.weight_ih.to(wide), bias)  # time first
            weights = torch.cat((across, across @ top), dim=1), self.weight_act.to(wide), self.bias_act.to(wide)
            start = self.start(x, wide) if state is None else state
            return loop(z, *weights, start, context.reset, context.padding_mask, self.options.controller)

    def start(self, x: Tensor, dtype: torch.dtype) -> StackState:
        options, hidden = self.options, self.hidden
        stack = (self.shape.n_heads, options.stack_depth, options.stack_width)
        sizes = (hidden,), (hidden if options.controller == "lstm" else 0,), stack
        return StackState(*(torch.zeros(len(x), *size, dtype=dtype, device=x.device) for size in sizes))


def uniform(*shape: int, fan_in: int) -> nn.Parameter:
    """U(±fan_in^−½), the start of torch's own recurrent networks and projections."""
    return nn.Parameter(torch.empty(*shape).uniform_(-(fan_in**-0.5), fan_in**-0.5))


register_layer(
    "stack-rnn",
    StackRNN,
    variants=(
        {},
        {"stack_depth": 4, "stack_width": 2, "noop": True, "hidden": 6},
        {"stack_depth": 3, "controller": "lstm"},
        {"stack_depth": 1, "stack_width": 3, "controller": "lstm", "noop": True},
    ),
)
