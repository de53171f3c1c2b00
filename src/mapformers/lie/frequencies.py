"""Angular velocities ω: at which scales a map is written (paper, A.8)."""

import math

import torch
from torch import Tensor


def ladder(n_blocks: int, omega_max: float = 2 * math.pi, base: float = 64.0) -> Tensor:
    """``n_blocks`` velocities in geometric progression from ``omega_max`` down to 2π/``base``, both included.

    ω_i = ω_max · Δ_max^(−i/(m−1)) with Δ_max = base · ω_max / 2π: the slowest block closes its circle after
    ``base`` steps, the fastest tells 2π/ω_max apart. A ladder of one block is ω_max.
    # paper: the printed exponent is +i/n_b, which grows; here: it decays and reaches both ends
    """
    if n_blocks == 1:
        return torch.tensor([omega_max], dtype=torch.float64)
    delta_max = base * omega_max / (2 * math.pi)
    exponent = torch.arange(n_blocks, dtype=torch.float64) / (n_blocks - 1)
    return omega_max * delta_max**-exponent


def shares(n_blocks: int, rank: int) -> list[int]:
    """How many blocks each inner dimension starts with: equal shares, the remainder to the first ones."""
    return [n_blocks // rank + (i < n_blocks % rank) for i in range(rank)]


def ladders(n_blocks: int, rank: int, omega_max: float = 2 * math.pi, base: float = 64.0) -> tuple[Tensor, Tensor]:
    """ω (n_blocks,) and W_out (rank, n_blocks) at the start: one ladder per inner dimension (A.8, last line).

    Inner dimension i drives its own share of the blocks with weight 1 and the others with 0; training is
    free to mix them, because W_out is dense.
    """
    sizes = shares(n_blocks, rank)
    omega = torch.cat([ladder(size, omega_max, base) for size in sizes])
    return omega, torch.block_diag(*(torch.ones(1, size, dtype=torch.float64) for size in sizes))


def rope_ladder(n_blocks: int, base: float = 10000.0) -> Tensor:
    """RoPE's velocities, base^(−i/n_blocks) for i = 0 … n_blocks−1: from 1 down to just above 1/base."""
    return base ** -(torch.arange(n_blocks, dtype=torch.float64) / n_blocks)
