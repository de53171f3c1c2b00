"""`lstm`: a long short-term memory (Hochreiter & Schmidhuber 1997), a recurrent baseline that has gates and no map.

The paper cites it for Dyck (B.4): gates alone do not make a stack.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mapformers.errors import require
from mapformers.modules.context import Context
from mapformers.modules.layer import linear, register_layer
from mapformers.modules.mixer import LayerOptions, Mixer
from mapformers.ops.lstm import lstm, lstm_loop


@dataclass(frozen=True)
class LSTMOptions(LayerOptions):
    hidden: int | None = None
    """Size of the hidden state, H (None: n_heads × head_dim, which is d_model unless head_dim is given)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.hidden is None or self.hidden >= 1, f"hidden must be at least 1, not {self.hidden}.")


class LSTMState(NamedTuple):
    h: Tensor  # (B, H)
    c: Tensor  # (B, H)


class LSTM(Mixer):
    """(i, f, g, o) = W_ih x_t + W_hh h_{t−1} + b; c_t = σ(f) c_{t−1} + σ(i) tanh(g); h_t = σ(o) tanh(c_t).

    As `torch.nn.LSTM` computes it and starts it, with one bias in place of two that are added. h_t is
    projected back to d_model. It sits in the same block as attention (norm, mixer, norm, MLP): with H = d_model a block
    has 17·d_model² weights, and one of attention 12.
    """

    Options = LSTMOptions
    options: LSTMOptions

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        shape = self.shape
        self.hidden = self.options.hidden or shape.n_heads * shape.head_dim
        bound = self.hidden**-0.5
        self.weight_ih = nn.Parameter(torch.empty(4 * self.hidden, shape.d_model).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(torch.empty(4 * self.hidden, self.hidden).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(4 * self.hidden).uniform_(-bound, bound))
        self.out_proj = linear(self.hidden, shape.d_model, residual_of=shape)

    def mix(self, x: Tensor, state: LSTMState | None, context: Context) -> tuple[Tensor, LSTMState]:
        wide = torch.promote_types(x.dtype, torch.float32)
        tokens = x.transpose(0, 1)  # time first
        h, c = self.start(x, wide) if state is None else state
        across = self.weight_hh.to(wide)
        with torch.autocast(x.device.type, enabled=False):
            if torch.compiler.is_compiling() or context.reset is not None or context.padding_mask is not None:
                z = nn.functional.linear(tokens.to(wide), self.weight_ih.to(wide), self.bias.to(wide))
                y, c = lstm(z, across, h, c, context.reset, context.padding_mask)
            else:
                y, c = self.fused(tokens.to(wide), across, h, c)
        return self.out_proj(y.transpose(0, 1).to(x.dtype)), LSTMState(y[-1], c)

    def fused(self, tokens: Tensor, across: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """The LSTM of torch itself, for a chunk of one unpadded document: h of all tokens (L, B, H), and the last c."""
        bias = self.bias.to(tokens.dtype)
        weights = [self.weight_ih.to(tokens.dtype), across, bias, torch.zeros_like(bias)]
        start = [h.unsqueeze(0), c.unsqueeze(0)]
        y, _, last = torch.lstm(tokens, start, weights, True, 1, 0.0, self.training, False, False)
        return y, last[0]

    def reference(self, x: Tensor, context: Context) -> Tensor:
        """The same in plain torch, token by token."""
        z = nn.functional.linear(x.transpose(0, 1), self.weight_ih, self.bias)
        y, _ = lstm_loop(z, self.weight_hh, *self.start(x, x.dtype), context.reset, context.padding_mask)
        return self.out_proj(y.transpose(0, 1))

    def start(self, x: Tensor, dtype: torch.dtype) -> LSTMState:
        zeros = torch.zeros(len(x), self.hidden, dtype=dtype, device=x.device)
        return LSTMState(zeros, zeros)


register_layer("lstm", LSTM, variants=({}, {"hidden": 5}))
