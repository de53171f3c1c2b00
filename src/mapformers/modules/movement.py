"""Which movement does each token make, and where does the path of movements lead? (sec. 3.2)"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mapformers import lie
from mapformers.errors import require
from mapformers.modules.attention import AttentionOptions, check_even_heads
from mapformers.modules.context import Context
from mapformers.modules.mixer import LayerOptions, LayerShape
from mapformers.ops.operator import is_plain_step


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """A context in which autocast changes nothing; entering torch's own costs as much as a small product."""
    if torch.compiler.is_compiling() or torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


class Movement(nn.Module):
    """Δ_in = W_in x − mean, ``size`` numbers per head and token.

    ``mean`` is a buffer, zero unless a path starts as RoPE, whose tokens all move (`PathIntegrator`), or
    training takes the mean movement out (`training/zero_mean.py`). While it does, it sets `adjust`, which then
    changes the movements of a batch before they are integrated.
    """

    mean: Tensor
    adjust: "Adjust | None" = None

    def __init__(self, shape: LayerShape, size: int):
        super().__init__()
        self.n_heads, self.size = shape.n_heads, size
        self.w_in = nn.Parameter(torch.randn(shape.n_heads * size, shape.d_model) / shape.d_model)
        self.register_buffer("mean", torch.zeros(shape.n_heads, size))

    def movement(self, x: Tensor, context: Context | None = None) -> Tensor:
        """(B, L, d_model) -> Δ_in (B, L, H, size), in float32 or better whatever autocast is doing around it.

        Where the context has a ``movement_scale``, times that.
        """
        wide = torch.promote_types(x.dtype, torch.float32)
        with without_autocast(x.device):
            delta_in = nn.functional.linear(x.to(wide), self.w_in.to(wide))
        delta_in = delta_in.view(*x.shape[:-1], self.n_heads, self.size) - self.mean
        scale = None if context is None else context.movement_scale
        if scale is None:
            return delta_in
        return delta_in * (scale if scale.dim() == 0 else scale[..., None, None]).to(delta_in.dtype)

    def integrated_movement(self, x: Tensor, context: Context) -> Tensor:
        """Δ_in as it enters the integral: adjusted while training says so."""
        delta_in = self.movement(x, context)
        return self.adjust(self, delta_in, context) if self.is_adjusted and self.adjust is not None else delta_in

    @property
    def is_adjusted(self) -> bool:
        """Whether movements depend on the batch they are in: never when a model is measured."""
        return self.training and self.adjust is not None


Adjust = Callable[[Movement, Tensor, Context], Tensor]


def find_movements(model: Any) -> list[Movement]:
    """Every movement of a model, layer by layer."""
    return [module for module in model.modules() if isinstance(module, Movement)]


@dataclass(frozen=True)
class VelocityOptions(LayerOptions):
    """How fast the blocks of a map turn at the start (A.8)."""

    omega_max: float = 2 * math.pi
    """Fastest angular velocity at the start."""
    base: float = 64.0
    """Steps after which the slowest block closes its circle at the start."""
    learn_omega: bool = True
    """ω is learned, as in the paper; without it ω stays as it starts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.omega_max > 0, f"omega_max must be above 0, not {self.omega_max}.")
        slowest = 2 * math.pi / self.omega_max
        require(self.base >= slowest, f"base must be at least 2π/omega_max = {slowest:.4g}, not {self.base}.")


PathStart = Literal["random", "rope"]


@dataclass(frozen=True)
class MapOptions(VelocityOptions, AttentionOptions):
    """Options of every attention layer that integrates a path by commuting rotations."""

    rank: int = 2
    """Dimensions of the inner movement Δ_in."""
    path_start: PathStart = "random"
    """random: W_in is drawn at random, and each inner dimension has its own ladder of ω from omega_max to 2π/base.
    rope: the layer starts as RoPE, and the path departs from there: W_in = 0, every token moves by 1, and ω is RoPE's
    ladder of rope_base, whose blocks go to the inner dimensions in turn; omega_max and base are not used then."""
    rope_base: float = 10000.0
    """With path_start=rope: the base of RoPE's frequencies at the start, ω_i = rope_base^(−i/n_b)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_rank(self.rank)
        require(self.rope_base > 1, f"rope_base must be above 1, not {self.rope_base}.")


def require_rank(rank: int | None) -> None:
    require(rank is None or rank >= 1, f"rank must be at least 1, not {rank}.")


class PathIntegrator(Movement):
    """x_t → Δ_in = W_in x_t → coordinate = Σ Δ_in → θ = ω ⊙ W_out·coordinate.

    One Δ_in per head. The sum and the angle are float64, whatever autocast is doing around them, so for the
    same input the coordinate is bitwise the same under bf16 autocast.
    """

    no_decay = {"omega"}

    def __init__(self, shape: LayerShape, rank: int, options: VelocityOptions):
        super().__init__(shape, rank)
        check_even_heads(shape, "Path integration")
        n_blocks = shape.head_dim // 2
        require(
            rank <= n_blocks,
            f"rank {rank} needs at least as many rotation blocks; a head of {shape.head_dim} has {n_blocks}.",
        )
        self.rank = rank
        omega, w_out = lie.ladders(n_blocks, rank, options.omega_max, options.base)
        self.w_out = nn.Parameter(w_out.float().repeat(shape.n_heads, 1, 1))  # (H, r, n_b)
        self.omega = nn.Parameter(omega.float().repeat(shape.n_heads, 1), requires_grad=options.learn_omega)  # (H, n_b)
        if isinstance(options, MapOptions) and options.path_start == "rope":
            self.start_as_rope(options.rope_base)

    @torch.no_grad()
    def start_as_rope(self, base: float) -> None:
        """Every token moves by 1 whatever it is, and θ = ω·(index + 1), which turns queries and keys as RoPE does.

        The movement is the buffer ``mean``, which is subtracted. Block i belongs to inner dimension i mod r, so each of
        them has fast blocks and slow ones.
        """
        n_blocks = self.omega.shape[-1]
        self.w_in.zero_()
        self.mean.fill_(-1.0)
        self.w_out.copy_(torch.eye(self.rank)[torch.arange(n_blocks) % self.rank].T)
        self.omega.copy_(lie.rope_ladder(n_blocks, base))

    def forward(self, x: Tensor, start: Tensor | None, context: Context) -> tuple[Tensor, ...]:
        """(B, L, d_model) -> θ (B, H, L, n_b), the coordinate (B, H, r) where the chunk ends, and Δ_in (B, L, H, r)."""
        delta_in = self.integrated_movement(x, context)
        with without_autocast(delta_in.device):
            coordinate = lie.integrate(delta_in, initial=start, mask=context.padding_mask, reset=context.reset)
            # Of a single token the angle stays as it is: to round it would take longer than to turn by it.
            exact = is_plain_step(delta_in.shape[1]) and coordinate.device == delta_in.device
            theta = lie.angles(coordinate, self.w_out, self.omega, dtype=coordinate.dtype if exact else delta_in.dtype)
            if context.recording is not None:
                context.note(delta_in=delta_in, delta_out=self.durations(delta_in), coordinate=coordinate, theta=theta)
            return theta, coordinate[:, -1], delta_in

    def durations(self, delta_in: Tensor) -> Tensor:
        """Δ = W_out Δ_in: how long every block turns at each token, (B, L, H, n_b)."""
        return torch.einsum("blhr,hrn->blhn", delta_in, self.w_out.to(delta_in.dtype))

    def turns(self, x: Tensor) -> Tensor:
        """The angle of every single step, (B, L, H, n_b), for references that go step by step."""
        rate = self.w_out * self.omega.unsqueeze(1)
        return torch.einsum("blhr,hrn->blhn", self.movement(x), rate)
