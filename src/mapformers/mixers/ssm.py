"""The block that `mamba` and `mampa` share: all of a selective state-space model but its transition (A.3; Gu 2023).

(x, z) = in_proj(u); x = SiLU(conv(x)); B, C = x_proj(x); h_t = Ā_t h_{t−1} + B̄_t x_t; y_t = C_tᵀ h_t + D ⊙ x_t;
out = out_proj(y ⊙ SiLU(z)). Names and shapes of the weights are those of the authors' code. There is no MLP.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import silu, softplus

from mapformers.errors import require, require_finite
from mapformers.mixers.context import Context
from mapformers.mixers.layer import LayerShape, RMSNorm, linear
from mapformers.mixers.selective_scan import selective_loop, selective_scan

Delta = Literal["softplus", "signed"]
InputGate = Literal["delta", "none"]
Scan = Callable[..., tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class SSMOptions:
    """Options of both state-space models; the defaults are Mamba's."""

    d_state: int = 16
    """Numbers of state per channel, N."""
    expand: int = 2
    """Channels over d_model, E."""
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
        require_finite(self)
        for name in ("d_state", "expand", "conv_size"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}.")
        require(self.dt_rank is None or self.dt_rank >= 1, f"dt_rank must be at least 1, not {self.dt_rank}.")
        for name, allowed in (("delta", get_args(Delta)), ("input_gate", get_args(InputGate))):
            value = getattr(self, name)
            require(value in allowed, f"{name} must be one of {', '.join(allowed)}, not {value!r}.")


class SSMState(NamedTuple):
    h: Tensor  # (B, N, E), or by heads (B, H, N, P)
    tail: Tensor | None  # (B, conv_size − 1, E): the latest inputs of the convolution, 0 before the first
    coordinate: Tensor | None = None  # (B, H, r) float64, of those that integrate a path


class SSMLayer(nn.Module):
    """x ← x + SSM(norm(x)); no MLP."""

    def __init__(self, shape: LayerShape, mixer: "SSM"):
        super().__init__()
        self.norm = RMSNorm(shape.d_model)
        self.mixer = mixer

    def forward(self, x: Tensor, stream: Any, state: Any, context: Context) -> tuple[Tensor, Any, Any]:
        mixed, state = self.mixer(self.norm(x), state, context)
        return x + mixed, stream, state


class SSM(nn.Module):
    """What surrounds the recurrence. A subclass has ``recur``, and asks for ``n_read`` numbers read from each token."""

    no_decay = {"D"}

    def __init__(self, shape: LayerShape, options: SSMOptions, n_read: int):
        super().__init__()
        self.options = options
        self.channels = options.expand * shape.d_model
        self.in_proj = linear(shape.d_model, 2 * self.channels)
        self.conv1d = CausalConv(self.channels, options.conv_size) if options.conv else None
        self.x_proj = linear(self.channels, n_read)
        self.D = nn.Parameter(torch.ones(self.channels))
        self.out_proj = linear(self.channels, shape.d_model, residual_of=shape)

    def forward(self, u: Tensor, state: SSMState | None, context: Context) -> tuple[Tensor, SSMState]:
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
        x = silu(x if self.conv1d is None else self.conv1d.loop(x, context))
        y, _, _ = self.recur(u, x, None, context, plain=True)
        return self.out_proj(((y + self.D * x) * silu(z)).to(u.dtype))

    @abstractmethod
    def recur(
        self, u: Tensor, x: Tensor, state: SSMState | None, context: Context, plain: bool = False
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """From the layer's input u (B, L, d_model) and x (B, L, E): y (B, L, E), the state h, and the coordinate.

        ``plain``: by the slow loop that the fast scan must equal.
        """


class SteppedSSM(SSM):
    """Every channel has its own step Δ_t, read from x_t through dt_rank numbers, and steps along fixed rates."""

    def __init__(self, shape: LayerShape, options: SSMOptions):
        self.dt_rank = math.ceil(shape.d_model / 16) if options.dt_rank is None else options.dt_rank
        super().__init__(shape, options, n_read=self.dt_rank + 2 * options.d_state)
        self.dt_proj = nn.Linear(self.dt_rank, self.channels)
        nn.init.uniform_(self.dt_proj.weight, -(self.dt_rank**-0.5), self.dt_rank**-0.5)
        with torch.no_grad():
            if options.delta == "softplus":  # Δ starts log-uniform between 0.001 and 0.1
                dt = 0.001 * 100 ** torch.rand(self.channels)
                self.dt_proj.bias.copy_(dt + torch.log(-torch.expm1(-dt)))
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


class CausalConv(nn.Module):
    """Depthwise: each channel is a weighted sum of itself over the last ``size`` real tokens of the document."""

    def __init__(self, channels: int, size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, 1, size).uniform_(-(size**-0.5), size**-0.5))
        self.bias = nn.Parameter(torch.empty(channels).uniform_(-(size**-0.5), size**-0.5))

    def forward(self, x: Tensor, tail: Tensor | None, context: Context) -> tuple[Tensor, Tensor]:
        """(B, L, E) -> the same, and the tail (B, size − 1, E): what the next token will see beside itself."""
        before, length = self.weight.shape[-1] - 1, x.shape[1]
        if tail is None:
            tail = x.new_zeros(len(x), before, x.shape[-1])
        seen = torch.cat((tail, x), dim=1)  # (B, size − 1 + L, E)
        if context.reset is None and context.padding_mask is None:
            taps = [seen[:, i : i + length] for i in range(before)]
            tail = seen[:, length:]
        else:
            blank = torch.cat((seen, torch.zeros_like(x[:, :1])), dim=1)
            places = _earlier_tokens(before, context).unsqueeze(-1).expand(-1, -1, -1, x.shape[-1])
            taken = [blank.gather(1, at) for at in places.unbind(2)]
            taps = [tap[:, :-1] for tap in taken]
            tail = torch.stack([tap[:, -1] for tap in taken], dim=1) if taken else tail
        out = self.bias.expand_as(x)
        for tap, weight in zip((*taps, x), self.weight[:, 0].unbind(-1)):
            out = torch.addcmul(out, tap, weight)
        return out, tail

    def loop(self, x: Tensor, context: Context) -> Tensor:
        """Row by row and token by token, with a list of the real tokens of the document so far."""
        size = self.weight.shape[-1]
        rows = []
        for row in range(len(x)):
            earlier: list[Tensor] = []
            outputs = []
            for t in range(x.shape[1]):
                if context.reset is not None and context.reset[row, t]:
                    earlier = []
                window = torch.stack([*[torch.zeros_like(x[row, t])] * size, *earlier, x[row, t]][-size:], dim=-1)
                outputs.append((window * self.weight[:, 0]).sum(dim=-1) + self.bias)
                if context.padding_mask is None or context.padding_mask[row, t]:
                    earlier.append(x[row, t])
            rows.append(torch.stack(outputs))
        return torch.stack(rows)


def _earlier_tokens(n: int, context: Context) -> Tensor:
    """(B, L + 1, n) where the ``n`` latest real tokens of its document stand, for each token and for the next one.

    Places count from the tail of ``n`` tokens that precedes the chunk; the place after the last token means none.
    """
    (batch, length), device = context.tokens.shape, context.tokens.device
    flag = torch.ones(batch, n + length + 1, dtype=torch.bool, device=device)
    document = torch.zeros(batch, n + length + 1, dtype=torch.long, device=device)
    if context.padding_mask is not None:
        flag[:, n:-1] = context.padding_mask
    if context.reset is not None:
        document[:, n:-1] = context.reset
    document = document.cumsum(dim=1)
    real_first = torch.argsort(~flag, dim=1, stable=True)
    earlier = flag.long().cumsum(dim=1)[:, n:] - flag[:, n:].long()  # how many real ones come before; n at least
    back = torch.arange(n, 0, -1, device=device)
    places = real_first.gather(1, (earlier.unsqueeze(-1) - back).flatten(1)).unflatten(1, (-1, n))
    same = document.gather(1, places.flatten(1)).view_as(places) == document[:, n:].unsqueeze(-1)
    return torch.where(same, places, n + length)
