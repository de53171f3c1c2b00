"""`mampa`: a selective state-space model whose state turns along a path of the tokens' own, and so can learn a map.

Paper: A.3 to A.6. Two forms in one block. `SteppedMAmPa` (``rank=None``) is Mamba with other rates: every
channel has a step Δ_t of its own, read from the tokens as Mamba reads it. `PathMAmPa` moves as MapWM does, by a
movement of ``rank`` numbers, and is linear MapWM in Mamba's place (A.5); since channels share their angles, it is
masked matrix products.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mapformers import lie
from mapformers.errors import require
from mapformers.modules.attention import QK_SCALE
from mapformers.modules.context import Context
from mapformers.modules.layer import MixerOnly, register_layer
from mapformers.modules.mixer import LayerShape
from mapformers.modules.movement import PathIntegrator, VelocityOptions, require_rank
from mapformers.modules.ssm import SSM, Delta, InputGate, SSMOptions, SSMState, SteppedSSM
from mapformers.ops.linear_attention import linear_attention, rotation_loop

DECAY_AT_START = 0.01  # rate of decay at the start: a hundred unit steps


@dataclass(frozen=True)
class MAmPaOptions(VelocityOptions, SSMOptions):
    """The literal MAmPa is ``rank=None, delta="softplus", input_gate="delta", conv=True``: Mamba in all but A.

    # paper: the literal form; here, by default: a movement that the channels share, read before any convolution (which
    # mixes actions into observations, A.6), that can be taken back (as Δ > 0 cannot) and that does not scale the input
    # (B̄ = ΔB writes nothing where nothing moves).
    """

    d_state: int = 32
    """Numbers of state per channel, N; two for each rotation."""
    conv: bool = False
    delta: Delta = "signed"
    input_gate: InputGate = "none"
    rank: int | None = 2
    """Dimensions of the inner movement Δ_in, shared by the channels of a head; None: a step Δ for each channel."""
    groups: int = 8
    """With a rank: in how many groups the channels of a head fall; each turns at velocities of its own."""
    decay: bool = False
    """Whether the state also decays, by exp(−|Δ|·exp(A_log))."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.d_state % 2 == 0, f"mampa rotates pairs, so d_state must be even, not {self.d_state}.")
        require(self.groups >= 1, f"groups must be at least 1, not {self.groups}.")
        require_rank(self.rank)
        if self.rank is None:
            require(self.groups == type(self).groups, "groups belong to a movement that channels share; give a rank.")
        else:
            require(
                (self.delta, self.input_gate, self.dt_rank) == ("signed", "none", None),
                "delta, input_gate and dt_rank belong to steps Δ of single channels; give rank=None to have those.",
            )


class MAmPa(SSM):
    """A state-space model whose state turns. ``MAmPa(…)`` is one of its two forms, as ``pathlib.Path(…)`` is.

    With a rank it is `PathMAmPa`, with ``rank=None`` `SteppedMAmPa`.
    """

    Options = MAmPaOptions
    options: MAmPaOptions

    def __new__(cls, *args: Any, rank: int | None = MAmPaOptions.rank, **kwargs: Any) -> "MAmPa":
        form = (SteppedMAmPa if rank is None else PathMAmPa) if cls is MAmPa else cls
        return super().__new__(form)


class SteppedMAmPa(MAmPa, SteppedSSM):
    """Ā_t = exp(Δ_t A) with A made of blocks ω·[[0, −1], [1, 0]], for every channel its own: a rotation by Δ_t ω."""

    no_decay = {"D", "omega", "A_log"}

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        options = self.options
        omega = lie.ladder(options.d_state // 2, options.omega_max, options.base).float()
        self.omega = nn.Parameter(omega.repeat(self.channels, 1), requires_grad=options.learn_omega)  # (E, N/2)
        start = torch.full_like(self.omega, math.log(DECAY_AT_START))
        self.A_log = nn.Parameter(start) if options.decay else None

    def mix(self, u: Tensor, state: SSMState | None, context: Context) -> tuple[Tensor, SSMState]:
        """Angles are read from x, so autocast may not touch what x comes from."""
        with torch.autocast(u.device.type, enabled=False):
            return super().mix(u.to(self.omega.dtype), state, context)

    def rates(self) -> tuple[Tensor | None, Tensor]:
        wide = torch.promote_types(self.omega.dtype, torch.float32)
        decay = None if self.A_log is None else self.A_log.to(wide).exp().T.contiguous()
        return decay, self.omega.to(wide).T.contiguous()


class PathMAmPa(MAmPa):
    """h_t = R(θ_t − θ_{t−1}) h_{t−1} + B_t x_t with θ = ω ⊙ W_out Σ Δ_in: what is kept turns along the path.

    Reading is linear, so what lies elsewhere is not suppressed as by a softmax; it has to cancel. Hence ``groups``:
    channels that turn at other velocities confuse other places. And hence the start: ω from one ladder over all blocks,
    whose blocks go to the groups in turn, each along a random direction of the movement. A sum of one ladder per axis,
    as MapWM starts, would be as high along a whole row or column.

    As there (`modules/attention.py`, Projections), it starts by copying: all tokens write and read in the same
    phase, by the biases of B and C, and out_proj undoes in_proj (SiLU(x) ≈ x/2).
    """

    no_decay = {"D", "A_log"}

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        options, shape = self.options, self.shape
        assert options.rank is not None
        self.build(n_read=2 * options.d_state)
        n_heads, groups, n_blocks = shape.n_heads, options.groups, options.d_state // 2
        self.groups, self.n_parts = groups, n_heads * groups
        require(
            self.channels % self.n_parts == 0,
            f"n_heads × groups is {self.n_parts}, which does not divide the {self.channels} channels; change groups.",
        )
        require(
            options.rank <= groups * n_blocks,
            f"rank {options.rank} needs at least as many rotations; groups × d_state/2 is {groups * n_blocks}.",
        )
        inner = LayerShape(shape.d_model, n_heads, groups * options.d_state)
        self.path = PathIntegrator(inner, options.rank, options)
        ladder = lie.ladder(groups * n_blocks, options.omega_max, options.base).float()
        in_phase = torch.full((options.d_state,), options.d_state**-0.5)
        self.B_bias, self.C_bias = nn.Parameter(in_phase), nn.Parameter(in_phase.clone())
        start = torch.full((n_heads, groups), math.log(DECAY_AT_START))
        self.A_log = nn.Parameter(start) if options.decay else None
        with torch.no_grad():
            self.path.omega.copy_(ladder.view(n_blocks, groups).T.flatten())
            self.path.w_out.copy_(nn.functional.normalize(torch.randn_like(self.path.w_out), dim=1))
            self.x_proj.weight *= QK_SCALE
            copied = self.in_proj.weight[: self.channels]
            nn.init.orthogonal_(copied)
            self.out_proj.weight.copy_(2 * copied.T / math.sqrt(shape.n_layers))

    def recur(
        self, u: Tensor, x: Tensor, state: SSMState | None, context: Context, plain: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        wide = torch.promote_types(x.dtype, torch.float32)
        b, c = self.x_proj(x).to(wide).chunk(2, dim=-1)
        b, c = ((t + bias).unsqueeze(1) for t, bias in ((b, self.B_bias), (c, self.C_bias)))  # (B, 1, L, N)
        v = x.to(wide)
        if context.padding_mask is not None:
            v = v.masked_fill(~context.padding_mask.unsqueeze(-1), 0.0)
        v = v.unflatten(-1, (self.n_parts, -1)).transpose(1, 2)  # (B, parts, L, P)
        theta, reached, delta_in = self.path(u, None if state is None else state.coordinate, context)
        with torch.autocast(x.device.type, enabled=False):
            start = v.new_zeros(*v.shape[:2], c.shape[-1], v.shape[-1]) if state is None else state.h
            moved = delta_in
            if context.padding_mask is not None:
                moved = delta_in.masked_fill(~context.padding_mask[..., None, None], 0.0)
            decay = self.log_decay(moved)
            if plain:
                b, c = (t.expand(-1, self.n_parts, -1, -1) for t in (b, c))
                y, h = rotation_loop(self.turns(moved), c, b, v, start, decay, context.reset)
            else:
                c, b = lie.rotate(-self.by_group(theta), c, b)
                y, h = linear_attention(c, b, v, start, decay, context.reset)
        return y.transpose(1, 2).flatten(-2), h, reached

    def by_group(self, theta: Tensor) -> Tensor:
        """(B, H, L, groups·N/2) -> (B, parts, L, N/2)."""
        return theta.unflatten(-1, (self.groups, -1)).transpose(2, 3).flatten(1, 2)

    def log_decay(self, moved: Tensor) -> Tensor | None:
        """−|Δ_in|·exp(A_log) of every token, (B, parts, L); |·| sums over the inner dimensions. None: no decay.

        ``moved`` (B, L, H, r) is Δ_in, 0 where a token is padding.
        """
        if self.A_log is None:
            return None
        size = moved.abs().sum(dim=-1)  # (B, L, H)
        return -torch.einsum("blh,hg->bhgl", size, self.A_log.to(size.dtype).exp()).flatten(1, 2)

    def turns(self, moved: Tensor) -> Tensor:
        """The angle of every single step, (B, parts, L, N/2)."""
        rate = self.path.w_out * self.path.omega.unsqueeze(1)
        return self.by_group(torch.einsum("blhr,hrn->bhln", moved, rate))


LITERAL = {"rank": None, "delta": "softplus", "input_gate": "delta", "conv": True}

register_layer(
    "mampa",
    MAmPa,
    arrangement=MixerOnly,
    variants=(
        {},
        LITERAL,
        {"rank": None, "d_state": 4, "decay": True},
        {"rank": 3, "groups": 2, "decay": True, "conv": True, "learn_omega": False},
        {"rank": 1, "groups": 1, "d_state": 6},
    ),
    benchmarked=({}, LITERAL),
)
