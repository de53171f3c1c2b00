"""`rope`: rotary position embedding (Su 2021), the baseline whose map is the line of token indices (Δ = 1)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mapformers import lie
from mapformers.errors import require
from mapformers.mixers.attention import (
    AttentionOptions,
    Heads,
    Memory,
    attend,
    check_even_heads,
    masked_softmax,
    remember,
)
from mapformers.mixers.context import Context
from mapformers.mixers.layer import Block, LayerShape, register_layer


@dataclass(frozen=True)
class RoPEOptions(AttentionOptions):
    rope_base: float = 10000.0
    """Slowest period over 2π, in tokens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.rope_base > 1, f"rope_base must be above 1, not {self.rope_base}.")


class RoPE(nn.Module):
    """Queries and keys are rotated by their index: the path integral of a movement that is 1 for every token."""

    def __init__(self, shape: LayerShape, options: RoPEOptions):
        super().__init__()
        check_even_heads(shape, "rope")
        self.options = options
        self.heads = Heads(shape)

    def angles(self, x: Tensor, start: Tensor | None, context: Context) -> tuple[Tensor, Tensor]:
        """θ of (B, 1, L, n_b), or (1, 1, L, n_b) where all rows count alike, and the index (B, 1, 1) reached."""
        rows = 1 if context.is_plain else x.shape[0]
        one = torch.ones(rows, x.shape[1], 1, 1, dtype=torch.float64, device=x.device)
        index = lie.integrate(one, initial=start, mask=context.padding_mask, reset=context.reset)
        omega = lie.rope_ladder(self.heads.head_dim // 2, self.options.rope_base).to(x.device).unsqueeze(0)
        theta = lie.angles(
            index, torch.ones_like(omega).unsqueeze(1), omega, torch.promote_types(x.dtype, torch.float32)
        )
        context.note(theta=theta.expand(x.shape[0], self.heads.n_heads, -1, -1))
        return theta, index[:, -1].expand(x.shape[0], 1, 1)

    def forward(self, x: Tensor, state: Memory | None, context: Context) -> tuple[Tensor, Memory]:
        q, k, v = self.heads.split(x)
        theta, reached = self.angles(x, None if state is None else state.coordinate, context)
        q, k = lie.rotate(theta, q, k)
        state = Memory(**remember(state, keys=k, values=v), coordinate=reached)
        return self.heads.merge(attend(q, state.keys, state.values, context, self.options)), state

    def reference(self, x: Tensor, context: Context) -> Tensor:
        """q_iᵀ R(θ_i)ᵀ R(θ_j) k_j with explicit rotation matrices."""
        q, k, v = self.heads.split(x)
        rotation = lie.rotation_matrix(self.angles(x, None, context)[0].to(x.dtype))  # (1 or B, 1, L, D, D)
        q, k = (torch.einsum("bhlij,bhlj->bhli", rotation.expand(*t.shape, -1), t) for t in (q, k))
        logits = torch.einsum("bhid,bhjd->bhij", q, k) / self.heads.head_dim**0.5 / self.options.attn_temperature
        return self.heads.merge(masked_softmax(logits, context, self.options) @ v)


register_layer(
    "rope",
    summary="Rotary attention: position is the token's index (the paper's baseline).",
    options=RoPEOptions,
    build=lambda shape, options: Block(shape, RoPE(shape, options)),
    variants=({}, {"self_key": False}, {"rope_base": 500.0, "attn_temperature": 0.5}),
)
