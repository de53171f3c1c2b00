"""The block that `mamba` and `mampa` share: all of a selective state-space model but its transition (A.3; Gu 2023).

(x, z) = in_proj(u); x = SiLU(conv(x)); B, C = x_proj(x); h_t = Ā_t h_{t−1} + B̄_t x_t; y_t = C_tᵀ h_t + D ⊙ x_t;
out = out_proj(y ⊙ SiLU(z)). Names and shapes of the weights are those of the authors' code. There is no MLP.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import silu, softplus

from mapformers.errors import require
from mapformers.modules.context import Context
from mapformers.modules.convolution import causal_convolution, convolution_reference
from mapformers.modules.layer import linear
from mapformers.modules.mixer import LayerOptions, Mixer
from mapformers.ops.selective_scan import selective_loop, selective_scan

Delta = Literal["softplus", "signed"]
InputGate = Literal["delta", "none"]
Scan = Callable[..., tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class SSMOptions(LayerOptions):
    """Options of both state-space models; the defaults are Mamba's."""

    d_state: int = 16
    """State size of a channel, N."""
    expand: int = 2
    """Expansion factor: the layer has E = expand · d_model channels."""
    conv: bool = True
    """A causal convolution over the last few tokens before anything is read from them."""
    conv_size: int = 4
    """Tokens that the convolution sees."""
    dt_rank: int | None = None
    """Numbers from which the steps Δ of all channels are made (None: d_model/16, rounded up)."""
    delta: Delta = "softplus"
    """The step Δ of a channel: softplus(·), above 0, or signed, so that a step can be taken back."""
    input_gate: InputGate = "delta"
    """What scales the input: B̄ = ΔB, so that what does not step writes nothing, or B̄ = B."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("d_state", "expand", "conv_size"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}.")
        require(self.dt_rank is None or self.dt_rank >= 1, f"dt_rank must be at least 1, not {self.dt_rank}.")


class SSMState(NamedTuple):
    h: Tensor  # (B, N, E), or by heads (B, H, N, P)
    tail: Tensor | None  # (B, conv_size − 1, E): the latest inputs of the convolution, 0 before the first
    coordinate: Tensor | None = None  # (B, H, r) float64, of those that integrate a path


class CausalConv(nn.Module):
    """The convolution's weights, with the names and shapes of the authors' code."""

    def __init__(self, channels: int, size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, 1, size).uniform_(-(size**-0.5), size**-0.5))
        self.bias = nn.Parameter(torch.empty(channels).uniform_(-(size**-0.5), size**-0.5))

    def forward(self, x: Tensor, tail: Tensor | None, context: Context) -> tuple[Tensor, Tensor]:
        return causal_convolution(x, self.weight[:, 0], self.bias, tail, context)


class SSM(Mixer):
    """What surrounds the recurrence. A subclass has ``recur``, and asks for ``n_read`` numbers read from each token."""

    Options = SSMOptions
    no_decay = {"D"}
    options: SSMOptions

    def build(self, n_read: int) -> None:
        """The weights around the recurrence; a subclass calls it first, then makes its own."""
        shape, options = self.shape, self.options
        self.channels = options.expand * shape.d_model
        self.in_proj = linear(shape.d_model, 2 * self.channels)
        self.conv1d = CausalConv(self.channels, options.conv_size) if options.conv else None
        self.x_proj = linear(self.channels, n_read)
        self.D = nn.Parameter(torch.ones(self.channels))
        self.out_proj = linear(self.channels, shape.d_model, residual_of=shape)

    def mix(self, u: Tensor, state: SSMState | None, context: Context) -> tuple[Tensor, SSMState]:
        x, z = self.in_proj(u).chunk(2, dim=-1)
        tail = None
        if self.conv1d is not None:
            x, tail = self.conv1d(x, None if state is None else state.tail, context)
        x = silu(x)
        y, h, coordinate = self.recur(u, x, state, context)
        return self.out_proj(((y + self.D * x) * silu(z)).to(u.dtype)), SSMState(h, tail, coordinate)

    def reference(self, u: Tensor, context: Context) -> Tensor:
        """The same with a loop over tokens for the convolution and for the recurrence."""
        x, z = self.in_proj(u).chunk(2, dim=-1)
        if self.conv1d is not None:
            x = convolution_reference(x, self.conv1d.weight[:, 0], self.conv1d.bias, context)
        x = silu(x)
        y, _, _ = self.recur(u, x, None, context, plain=True)
        return self.out_proj(((y + self.D * x) * silu(z)).to(u.dtype))

    @abstractmethod
    def recur(
        self, u: Tensor, x: Tensor, state: SSMState | None, context: Context, plain: bool = False
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """From the layer's input u (B, L, d_model) and x (B, L, E): y (B, L, E), the state h, and the coordinate.

        ``plain``: by the slow loop that the fast scan must equal.
        """


def step_bias(n: int) -> Tensor:
    """The bias before the softplus with which Δ starts log-uniform between 0.001 and 0.1."""
    dt = 0.001 * 100 ** torch.rand(n)
    return dt + torch.log(-torch.expm1(-dt))


class SteppedSSM(SSM):
    """Every channel has its own step Δ_t, read from x_t through dt_rank numbers, and steps along fixed rates."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        options = self.options
        self.dt_rank = math.ceil(self.shape.d_model / 16) if options.dt_rank is None else options.dt_rank
        self.build(n_read=self.dt_rank + 2 * options.d_state)
        self.dt_proj = nn.Linear(self.dt_rank, self.channels)
        nn.init.uniform_(self.dt_proj.weight, -(self.dt_rank**-0.5), self.dt_rank**-0.5)
        with torch.no_grad():
            if options.delta == "softplus":
                self.dt_proj.bias.copy_(step_bias(self.channels))
            else:
                self.dt_proj.bias.zero_()

    @abstractmethod
    def rates(self) -> tuple[Tensor | None, Tensor | None]:
        """How fast the state decays and turns per unit of Δ: (N, E) or (N/2, E), None where it does not."""

    def recur(
        self, u: Tensor, x: Tensor, state: SSMState | None, context: Context, plain: bool = False
    ) -> tuple[Tensor, Tensor, None]:
        n_state = self.options.d_state
        delta, b, c = self.x_proj(x).split((self.dt_rank, n_state, n_state), dim=-1)
        delta = self.dt_proj(delta)
        wide = torch.promote_types(x.dtype, torch.float32)
        delta, v, b, c = (t.to(wide) for t in (delta, x, b, c))
        if self.options.delta == "softplus":
            delta = softplus(delta)
        if self.options.input_gate == "delta":
            v = delta * v
        if context.padding_mask is not None:  # padding neither steps nor writes
            padding = ~context.padding_mask.unsqueeze(-1)
            delta, v = delta.masked_fill(padding, 0.0), v.masked_fill(padding, 0.0)
        context.note(delta=delta)
        scan: Scan = selective_loop if plain else selective_scan
        y, h = scan(delta, *self.rates(), v, b, c, None if state is None else state.h, context.reset)
        return y, h, None
