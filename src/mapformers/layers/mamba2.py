"""`mamba2`: a selective state-space model in which the channels of a head share one scalar decay (Dao & Gu 2024; A.5).

The paper sets it beside CoPE: M_ij = exp(−a Σ_{t=j+1..i} Δ_t) q_iᵀ k_j is a gate that accumulates, and has no inverse.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import silu, softplus

from mapformers.errors import require
from mapformers.modules.context import Context
from mapformers.modules.convolution import convolution_reference
from mapformers.modules.layer import MixerOnly, RMSNorm, linear, register_layer
from mapformers.modules.mixer import LayerOptions, Mixer
from mapformers.modules.ssm import CausalConv, SSMState, step_bias
from mapformers.ops.linear_attention import linear_attention

NORM_EPS = 1e-5  # of the gated norm, as in the authors' code


@dataclass(frozen=True)
class Mamba2Options(LayerOptions):
    d_state: int = 64
    """State size of a channel, N."""
    expand: int = 2
    """Expansion factor: the layer has E = expand · d_model channels."""
    channels_per_head: int | None = None
    """Channels of a head, which share a step Δ and a decay, P (None: so many that there are expand × n_heads heads)."""
    conv: bool = True
    """A causal convolution over the last few tokens of x, B and C."""
    conv_size: int = 4
    """Tokens that the convolution sees."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("d_state", "expand", "channels_per_head", "conv_size"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"{name} must be at least 1, not {value}.")


class Mamba2(Mixer):
    """h_t = exp(−Δ_t exp(A_log)) h_{t−1} + Δ_t B_t x_tᵀ, y_t = C_tᵀ h_t + D x_t: one Δ, A and D per head.

    (z, x, B, C, Δ) = in_proj(u); x, B, C = SiLU(conv(·)); Δ = softplus(Δ + dt_bias);
    out = out_proj(RMSNorm(y ⊙ SiLU(z))). B and C are those of all heads (one group). Names and shapes of the weights
    are those of the authors' code. There is no MLP: 8.4·d_model² weights at d_model 64, where a block of attention has
    12·d_model².

    Since a decay is one number per head, the recurrence is attention without softmax under a decaying mask
    (`linear_attention`): products of matrices, and no scan.
    """

    Options = Mamba2Options
    no_decay = {"A_log", "D", "dt_bias"}
    options: Mamba2Options

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        shape, options = self.shape, self.options
        self.channels = options.expand * shape.d_model
        size = options.channels_per_head or max(1, shape.d_model // shape.n_heads)
        require(
            self.channels % size == 0,
            f"{self.channels} channels cannot be divided into heads of {size}; change channels_per_head.",
        )
        heads = self.channels // size
        self.mixed = (self.channels, options.d_state, options.d_state)  # sizes of x, B and C
        self.in_proj = linear(shape.d_model, self.channels + sum(self.mixed) + heads)
        self.conv1d = CausalConv(sum(self.mixed), options.conv_size) if options.conv else None
        self.dt_bias = nn.Parameter(step_bias(heads))
        self.A_log = nn.Parameter(torch.empty(heads).uniform_(1, 16).log_())
        self.D = nn.Parameter(torch.ones(heads))
        self.norm = RMSNorm(self.channels, NORM_EPS)
        self.out_proj = linear(self.channels, shape.d_model, residual_of=shape)

    def mix(self, u: Tensor, state: SSMState | None, context: Context) -> tuple[Tensor, SSMState]:
        z, read, dt = self.project(u)
        tail = None
        if self.conv1d is not None:
            read, tail = self.conv1d(read, None if state is None else state.tail, context)
        x, b, c = self.by_head(read)
        dt = self.steps(dt, context)
        with torch.autocast(u.device.type, enabled=False):
            start = x.new_zeros(*x.shape[:2], b.shape[-1], x.shape[-1]) if state is None else state.h
            y, h = linear_attention(c, b, dt.unsqueeze(-1) * x, start, self.log_decay(dt), context.reset)
        return self.gate(y, x, z).to(u.dtype), SSMState(h, tail)

    def reference(self, u: Tensor, context: Context) -> Tensor:
        """The recurrence token by token."""
        z, read, dt = self.project(u)
        if self.conv1d is not None:
            read = convolution_reference(read, self.conv1d.weight[:, 0], self.conv1d.bias, context)
        x, b, c = self.by_head(read)
        dt = self.steps(dt, context)
        h, outputs = x.new_zeros(*x.shape[:2], b.shape[-1], x.shape[-1]), []
        for t in range(u.shape[1]):
            if context.reset is not None:
                h = torch.where(context.reset[:, t, None, None, None], 0.0, h)
            kept = torch.exp(-dt[:, :, t] * self.A_log.exp())[..., None, None]
            h = kept * h + dt[:, :, t, None, None] * b[:, :, t, :, None] * x[:, :, t, None, :]
            outputs.append((c[:, :, t, :, None] * h).sum(dim=-2))
        return self.gate(torch.stack(outputs, dim=2), x, z)

    def project(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gate z (B, L, E), what the convolution reads (x, B and C side by side), and Δ before its softplus."""
        z, read, dt = self.in_proj(u).split((self.channels, sum(self.mixed), len(self.A_log)), dim=-1)
        return z, read, dt

    def by_head(self, read: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x (B, H, L, P); B and C (B, 1, L, N), the same for every head."""
        x, b, c = silu(read.to(torch.promote_types(read.dtype, torch.float32))).split(self.mixed, dim=-1)
        return x.unflatten(-1, (len(self.A_log), -1)).transpose(1, 2), b.unsqueeze(1), c.unsqueeze(1)

    def steps(self, dt: Tensor, context: Context) -> Tensor:
        """Δ of every token and head (B, H, L), in float32 or better; 0 at padding, which neither fades nor writes."""
        dt = softplus(dt.to(torch.promote_types(dt.dtype, torch.float32)) + self.dt_bias)
        if context.padding_mask is not None:
            dt = dt.masked_fill(~context.padding_mask.unsqueeze(-1), 0.0)
        context.note(delta=dt)
        return dt.transpose(1, 2)

    def log_decay(self, dt: Tensor) -> Tensor:
        return -dt * self.A_log.to(dt.dtype).exp().unsqueeze(-1)

    def gate(self, y: Tensor, x: Tensor, z: Tensor) -> Tensor:
        """What the layer adds to the stream, from the recurrence's reading y and its input x, (B, H, L, P) each."""
        y = (y + self.D.to(y.dtype)[:, None, None] * x).transpose(1, 2).flatten(-2)
        return self.out_proj(self.norm(y * silu(z.to(y.dtype))).to(self.out_proj.weight.dtype))


register_layer(
    "mamba2",
    Mamba2,
    arrangement=MixerOnly,
    variants=({}, {"conv": False, "d_state": 5, "channels_per_head": 16}, {"conv_size": 2, "expand": 3}),
)
