"""`mapwm`: the MapFormer of working memory, relative position on a learned map (paper, sec. 3.2 and A.5)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mapformers import lie
from mapformers.mixers.attention import Heads, Memory, attend, masked_softmax, remember
from mapformers.mixers.context import Context
from mapformers.mixers.fading_mapwm import FadingMapWM
from mapformers.mixers.layer import Block, LayerShape, register_layer
from mapformers.mixers.path_integrator import MapOptions, PathIntegrator


@dataclass(frozen=True)
class MapWMOptions(MapOptions):
    decay: bool = False
    """Whether what lies far along the path also fades, each rotation block at a learned rate."""


class MapWM(nn.Module):
    """Queries and keys are rotated by the path integral of what the tokens do, instead of by their index.

    ⟨R(θ_i) q_i, R(θ_j) k_j⟩ = q_iᵀ R(θ_j − θ_i) k_j: only the displacement between i and j counts.
    """

    def __init__(self, shape: LayerShape, options: MapOptions):
        super().__init__()
        self.options = options
        self.heads = Heads(shape)
        self.path = PathIntegrator(shape, options)

    def forward(self, x: Tensor, state: Memory | None, context: Context) -> tuple[Tensor, Memory]:
        q, k, v = self.heads.split(x)
        theta, reached = self.path(x, None if state is None else state.coordinate, context)
        q, k = lie.rotate(theta, q, k)
        state = Memory(**remember(state, keys=k, values=v), coordinate=reached)
        return self.heads.merge(attend(q, state.keys, state.values, context, self.options)), state

    def reference(self, x: Tensor, context: Context) -> Tensor:
        """The definition, pair by pair: walk from token j to token i multiplying one rotation per step."""
        q, k, v = self.heads.split(x)
        step = self.path.w_out * self.path.omega.unsqueeze(1)
        theta = torch.einsum("blhr,hrn->blhn", self.path.movement(x), step)
        rotation = lie.rotation_matrix(theta).to(x.dtype)  # (B, L, H, D, D)
        batch, heads, length, _ = q.shape
        real = (
            torch.ones_like(context.tokens, dtype=torch.bool) if context.padding_mask is None else context.padding_mask
        )
        rows = []
        for i in range(length):
            logits: list[Tensor] = []
            walked = q[:, :, i]
            for j in range(i, -1, -1):  # ⟨R_{j+1} … R_i q_i, k_j⟩, one more factor for each step back
                logits.insert(0, (walked * k[:, :, j]).sum(-1))
                moved = torch.einsum("bhij,bhj->bhi", rotation[:, j], walked)
                walked = torch.where(real[:, j, None, None], moved, walked)
            blank = q.new_zeros(batch, heads, length - i - 1)
            rows.append(torch.cat((torch.stack(logits, dim=-1), blank), dim=-1))
        scores = torch.stack(rows, dim=2) / self.heads.head_dim**0.5 / self.options.attn_temperature
        return self.heads.merge(masked_softmax(scores, context, self.options) @ v)


register_layer(
    "mapwm",
    summary="MapFormer, working memory: rotary attention whose angle is path-integrated from the tokens.",
    options=MapWMOptions,
    build=lambda shape, options: Block(shape, (FadingMapWM if options.decay else MapWM)(shape, options)),
    variants=(
        {},
        {"rank": 1},
        {"self_key": False},
        {"rank": 3, "learn_omega": False, "attn_temperature": 0.5},
        {"decay": True},
        {"decay": True, "self_key": False, "attn_temperature": 0.5},
    ),
    benchmarked=({}, {"decay": True}),
)
