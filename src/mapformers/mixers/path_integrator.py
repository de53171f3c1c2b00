"""The learned part of path integration: which movement does each token make? (eq. lowrank_proj)"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mapformers import lie
from mapformers.distributed import sum_over_processes
from mapformers.errors import require
from mapformers.mixers.attention import AttentionOptions, check_even_heads
from mapformers.mixers.context import Context
from mapformers.mixers.layer import LayerShape


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


class PathIntegrator(nn.Module):
    """x_t → Δ_in = W_in x_t → coordinate = Σ Δ_in → θ = ω ⊙ W_out·coordinate.

    One Δ_in per head. The sum and the angle are float64, whatever autocast is doing around them, so for the
    same input the coordinate is bitwise the same under bf16 autocast.
    """

    no_decay = {"omega"}
    drift: Tensor

    def __init__(self, shape: LayerShape, options: MapOptions):
        super().__init__()
        check_even_heads(shape, "Path integration")
        n_blocks = shape.head_dim // 2
        require(
            options.rank <= n_blocks,
            f"rank {options.rank} needs at least as many rotation blocks; a head of {shape.head_dim} has {n_blocks}.",
        )
        self.n_heads, self.rank = shape.n_heads, options.rank
        self.register_buffer("drift", torch.zeros(shape.n_heads, options.rank))
        self.driftless = False  # set by the trainer for its first steps, see hold_still
        self.w_in = nn.Parameter(torch.randn(shape.n_heads * options.rank, shape.d_model) / shape.d_model)
        omega, w_out = lie.ladders(n_blocks, options.rank, options.omega_max, options.base)
        self.w_out = nn.Parameter(w_out.float().repeat(shape.n_heads, 1, 1))  # (H, r, n_b)
        self.omega = nn.Parameter(omega.float().repeat(shape.n_heads, 1), requires_grad=options.learn_omega)  # (H, n_b)

    def forward(self, x: Tensor, start: Tensor | None, context: Context) -> tuple[Tensor, Tensor]:
        """(B, L, d_model) -> θ of (B, H, L, n_b), and the coordinate (B, H, r) where the chunk ends."""
        with torch.autocast(x.device.type, enabled=False):
            delta_in = self.movement(x)
            if self.driftless and self.training:
                delta_in = self.hold_still(delta_in, context)
            coordinate = lie.integrate(delta_in, initial=start, mask=context.padding_mask, reset=context.reset)
            theta = lie.angles(coordinate, self.w_out, self.omega, dtype=delta_in.dtype)
            context.note(delta_in=delta_in, coordinate=coordinate, theta=theta)
            return theta, coordinate[:, -1]

    def movement(self, x: Tensor) -> Tensor:
        """Δ_in = W_in x, (B, L, d_model) -> (B, L, H, r), in float32 or better; less the drift, 0 unless held still."""
        wide = torch.promote_types(x.dtype, torch.float32)
        delta_in = nn.functional.linear(x.to(wide), self.w_in.to(wide))
        return delta_in.unflatten(-1, (self.n_heads, self.rank)) - self.drift

    def hold_still(self, delta_in: Tensor, context: Context) -> Tensor:
        """Δ_in less its mean over the whole batch, which ``drift`` follows so that nothing jumps when this ends.

        The quickest use of a movement is as a clock: every token moves the same way, so recent tokens are near. A
        clock that comes first takes up a dimension which the map then lacks (docs/fidelity.md).
        """
        real = torch.ones_like(context.tokens) if context.padding_mask is None else context.padding_mask
        weight = real.to(delta_in.dtype)[:, :, None, None]
        moved, counted = sum_over_processes((delta_in * weight).sum(dim=(0, 1))), sum_over_processes(weight.sum())
        mean = moved / counted.clamp(min=1)
        with torch.no_grad():
            self.drift += 0.1 * mean
        return delta_in - mean
