"""`mapwm` with ``decay=True``: what lies far along the path also fades, block by block (paper, B.5, left for later)."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mapformers import lie
from mapformers.mixers.attention import Heads, masked_softmax, remember
from mapformers.mixers.context import Context
from mapformers.mixers.fading_attention import MOST, fading_attention
from mapformers.mixers.layer import LayerShape
from mapformers.mixers.path_integrator import MapOptions, PathIntegrator

AT_START = 0.01  # of the rates: a hundred unit steps to fade by e


class FadingMemory(NamedTuple):
    keys: Tensor  # (B, H, S, D) rotated
    values: Tensor  # (B, H, S, D)
    faded: Tensor  # (B, H, S, n_b) float64: how much had faded when each was seen
    coordinate: Tensor  # (B, H, r) float64


class FadingMapWM(nn.Module):
    """q_iᵀ (Π_t e^{−δ_t} R(θ_t)) k_j: from j to i each block is turned as in MapWM, and shrinks by e^{−Σδ}.

    A movement that turns also fades, as in Mamba both come of one Δ: δ_t = a_b·|Δ_in|, at most 2; |·| is the sum over
    inner dimensions, a_b > 0 is learned. Rotations come round again; a place once round is told from one nearby.
    """

    no_decay = {"rate_log"}

    def __init__(self, shape: LayerShape, options: MapOptions):
        super().__init__()
        self.options = options
        self.heads = Heads(shape)
        self.path = PathIntegrator(shape, options)
        self.rate_log = nn.Parameter(torch.full_like(self.path.omega, math.log(AT_START)))  # (H, n_b)

    def fading(self, x: Tensor) -> Tensor:
        """δ of every token, (B, L, H, n_b)."""
        size = self.path.movement(x).abs().sum(dim=-1, keepdim=True)
        return MOST * torch.tanh(size * self.rate_log.to(size.dtype).exp() / MOST)

    def forward(self, x: Tensor, state: FadingMemory | None, context: Context) -> tuple[Tensor, FadingMemory]:
        q, k, v = self.heads.split(x)
        theta, reached = self.path(x, None if state is None else state.coordinate, context)
        with torch.autocast(x.device.type, enabled=False):
            initial = None if state is None else state.faded[:, :, -1]
            faded = lie.integrate(self.fading(x), initial=initial, mask=context.padding_mask)
        q, k = lie.rotate(theta, q, k)
        here = remember(state, keys=k, values=v, faded=faded.transpose(1, 2))
        memory = FadingMemory(**here, coordinate=reached)
        return self.heads.merge(
            fading_attention(q, memory.keys, memory.values, memory.faded, context, self.options)
        ), memory

    def reference(self, x: Tensor, context: Context) -> Tensor:
        """The definition, pair by pair: from i back to j, one rotation and one shrinking per step."""
        q, k, v = self.heads.split(x)
        step = self.path.w_out * self.path.omega.unsqueeze(1)
        turn = lie.rotation_matrix(torch.einsum("blhr,hrn->blhn", self.path.movement(x), step)).to(x.dtype)
        shrink = torch.exp(-self.fading(x)).to(x.dtype)
        back = torch.cat((shrink, shrink), dim=-1).unsqueeze(-1) * turn  # (B, L, H, D, D)
        if context.padding_mask is not None:
            one = torch.eye(q.shape[-1], dtype=x.dtype, device=x.device)
            back = torch.where(context.padding_mask[:, :, None, None, None], back, one)
        rows = []
        for i in range(q.shape[2]):
            walked: Tensor = q[:, :, i]
            logits: list[Tensor] = []
            for j in range(i, -1, -1):
                logits.insert(0, (walked * k[:, :, j]).sum(-1))
                walked = torch.einsum("bhij,bhj->bhi", back[:, j], walked)
            rows.append(nn.functional.pad(torch.stack(logits, dim=-1), (0, q.shape[2] - i - 1)))
        scores = torch.stack(rows, dim=2) / self.heads.head_dim**0.5 / self.options.attn_temperature
        return self.heads.merge(masked_softmax(scores, context, self.options) @ v)
