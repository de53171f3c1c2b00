"""`rope`: rotary attention (Su 2021), where position is the token's index: a map on which every token moves by one."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mapformers import lie
from mapformers.errors import require
from mapformers.modules.attention import (
    AttentionOptions,
    Heads,
    Memory,
    check_even_heads,
    remember,
)
from mapformers.modules.context import Context
from mapformers.modules.layer import register_layer
from mapformers.modules.mixer import Mixer


@dataclass(frozen=True)
class RoPEOptions(AttentionOptions):
    rope_base: float = 10000.0
    """Base of the frequencies: ω_i = rope_base^(−i/n_b)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.rope_base > 1, f"rope_base must be above 1, not {self.rope_base}.")


class RoPE(Mixer):
    """Queries and keys are rotated by their index: the path integral of a movement that is 1 for every token."""

    Options = RoPEOptions
    reads_both_ways = True
    options: RoPEOptions

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        check_even_heads(self.shape, "rope")
        self.heads = Heads(self.shape, self.options)

    def angles(self, x: Tensor, start: Tensor | None, context: Context) -> tuple[Tensor, Tensor]:
        """θ of (B, 1, L, n_b), or (1, 1, L, n_b) where no row differs, and the index (B, 1, 1) reached.

        They are the same in every layer with this ladder.
        """
        dtype = torch.promote_types(x.dtype, torch.float32)
        ladder = ("rope", self.options.rope_base, self.heads.head_dim, dtype)
        theta, reached = context.shared(ladder, lambda: self._angles(x, start, context, dtype))
        if context.recording is not None:
            context.note(theta=theta.expand(x.shape[0], self.heads.n_heads, -1, -1))
        return theta, reached

    def _angles(self, x: Tensor, start: Tensor | None, context: Context, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        rows = 1 if context.is_plain else x.shape[0]
        one = torch.ones(rows, x.shape[1], 1, 1, dtype=torch.float64, device=x.device)
        index = lie.integrate(one, initial=start, mask=context.padding_mask, reset=context.reset)
        omega = lie.rope_ladder(self.heads.head_dim // 2, self.options.rope_base).to(x.device).unsqueeze(0)
        theta = lie.angles(index, torch.ones_like(omega).unsqueeze(1), omega, dtype)
        return theta, index[:, -1].expand(x.shape[0], 1, 1)

    def mix(self, x: Tensor, state: Memory | None, context: Context) -> tuple[Tensor, Memory]:
        q, k, v = self.heads.split(x, context)
        theta, reached = self.angles(x, None if state is None else state.coordinate, context)
        q, k = lie.rotate(theta, q, k)
        state = Memory(**remember(state, keys=k, values=v), coordinate=reached)
        return self.heads.merge(self.heads.attend(q, state.keys, state.values, context)), state

    def reference(self, x: Tensor, context: Context) -> Tensor:
        """q_iᵀ R(θ_i)ᵀ R(θ_j) k_j with explicit rotation matrices."""
        q, k, v = self.heads.split(x)
        rotation = lie.rotation_matrix(self.angles(x, None, context)[0].to(x.dtype))  # (1 or B, 1, L, D, D)
        q, k = (torch.einsum("bhlij,bhlj->bhli", rotation.expand(*t.shape, -1), t) for t in (q, k))
        logits = torch.einsum("bhid,bhjd->bhij", q, k) / self.heads.head_dim**0.5
        return self.heads.merge(self.heads.weights(logits, context) @ v)


register_layer(
    "rope",
    RoPE,
    variants=(
        {},
        {"self_key": False},
        {"rope_base": 500.0, "attn_temperature": 0.5},
        {"length_scaling": "log", "typical_length": 6, "init": "ordinary", "self_key": False},
    ),
)
