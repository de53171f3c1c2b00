"""What lies far along the path also fades, block by block: the option `decay` of `mapwm` (paper, B.5, left for later).

q_iᵀ (Π_t e^{−δ_t} R(θ_t)) k_j: from j to i each block turns as in MapWM, and shrinks by e^{−Σδ}. As in Mamba, one Δ
both turns and fades: δ_t = 2·tanh(a_b·|Δ_in|/2), about a_b·|Δ_in| of a small movement and never above 2; |·| is the sum
over inner dimensions, and a_b > 0 is learned. Rotations come round again; fading tells a place once round from one
nearby.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from mapformers import lie
from mapformers.modules.context import Context
from mapformers.ops.fading_attention import MAX_FADING

RATE_LOG_AT_START = math.log(0.01)  # to fade by e: a hundred unit steps, along one inner dimension


def fading_of(movement: Tensor, rate_log: Tensor) -> Tensor:
    """δ of every token, (B, L, H, n_b), from Δ_in (B, L, H, r) and log a (H, n_b)."""
    size = movement.abs().sum(dim=-1, keepdim=True)
    return MAX_FADING * torch.tanh(size * rate_log.to(size.dtype).exp() / MAX_FADING)


def integrate_fading(movement: Tensor, rate_log: Tensor, faded: Tensor | None, context: Context) -> Tensor:
    """How much has faded at each token, (B, H, L, n_b) float64; ``faded`` (B, H, S, n_b) is that of the past."""
    with torch.autocast(movement.device.type, enabled=False):
        initial = None if faded is None else pad(faded, (0, 0, 1, 0))[:, :, -1]  # of the last token; 0 of an empty past
        fading = fading_of(movement, rate_log)
        return lie.integrate(fading, initial=initial, mask=context.padding_mask).transpose(1, 2)
