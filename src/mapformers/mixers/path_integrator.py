"""Path integration by commuting rotations: angles are movements summed along the sequence (eq. lowrank_proj)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mapformers import lie
from mapformers.errors import require
from mapformers.mixers.attention import AttentionOptions, check_even_heads
from mapformers.mixers.context import Context
from mapformers.mixers.layer import LayerShape
from mapformers.mixers.movement import Movement


@dataclass(frozen=True)
class MapOptions(AttentionOptions):
    """Options of every mixer that integrates a path by commuting rotations."""

    rank: int = 2
    """Dimensions of the inner movement Δ_in."""
    omega_max: float = 2 * math.pi
    """Fastest angular velocity at the start."""
    base: float = 64.0
    """Steps after which the slowest block closes its circle at the start."""
    learn_omega: bool = True
    """Whether ω is learned (as in the paper) or stays as it starts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.rank >= 1, f"rank must be at least 1, not {self.rank}.")
        require(self.omega_max > 0, f"omega_max must be above 0, not {self.omega_max}.")
        slowest = 2 * math.pi / self.omega_max
        require(self.base >= slowest, f"base must be at least 2π/omega_max = {slowest:.4g}, not {self.base}.")


class PathIntegrator(Movement):
    """x_t → Δ_in = W_in x_t → coordinate = Σ Δ_in → θ = ω ⊙ W_out·coordinate.

    One Δ_in per head. The sum and the angle are float64, whatever autocast is doing around them, so for the
    same input the coordinate is bitwise the same under bf16 autocast.
    """

    no_decay = {"omega"}

    def __init__(self, shape: LayerShape, options: MapOptions):
        super().__init__(shape, options.rank)
        check_even_heads(shape, "Path integration")
        n_blocks = shape.head_dim // 2
        require(
            options.rank <= n_blocks,
            f"rank {options.rank} needs at least as many rotation blocks; a head of {shape.head_dim} has {n_blocks}.",
        )
        self.rank = options.rank
        omega, w_out = lie.ladders(n_blocks, options.rank, options.omega_max, options.base)
        self.w_out = nn.Parameter(w_out.float().repeat(shape.n_heads, 1, 1))  # (H, r, n_b)
        self.omega = nn.Parameter(omega.float().repeat(shape.n_heads, 1), requires_grad=options.learn_omega)  # (H, n_b)

    def forward(self, x: Tensor, start: Tensor | None, context: Context) -> tuple[Tensor, Tensor]:
        """(B, L, d_model) -> θ of (B, H, L, n_b), and the coordinate (B, H, r) where the chunk ends."""
        with torch.autocast(x.device.type, enabled=False):
            delta_in = self.walked(x, context)
            coordinate = lie.integrate(delta_in, initial=start, mask=context.padding_mask, reset=context.reset)
            theta = lie.angles(coordinate, self.w_out, self.omega, dtype=delta_in.dtype)
            context.note(delta_in=delta_in, coordinate=coordinate, theta=theta)
            return theta, coordinate[:, -1]
