"""`mapwm`: MapFormer of working memory, rotary attention whose angle is path-integrated from the tokens.

Paper: sec. 3.2 and A.5.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mapformers import lie
from mapformers.errors import require
from mapformers.modules.attention import Heads, logits_step_by_step, note_weights, remember
from mapformers.modules.context import Context
from mapformers.modules.fading import RATE_LOG_AT_START, fading_of, integrate_fading
from mapformers.modules.layer import register_layer
from mapformers.modules.mixer import Mixer
from mapformers.modules.movement import MapOptions, PathIntegrator, without_autocast
from mapformers.ops.fading_attention import counted_from, fading_attention, fading_weights, rows_at_once
from mapformers.ops.linear_attention import linear_attention


@dataclass(frozen=True)
class MapWMOptions(MapOptions):
    decay: bool = False
    """Whether what lies far along the path also fades, each rotation block at a learned rate."""
    softmax: bool = True
    """Softmax over the keys; without it attention is linear, Σ_j ⟨q_i, R k_j⟩ v_j, which is the rotation SSM (A.5)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        plain = not self.decay and self.self_key and self.length_scaling == "none"
        require(
            self.softmax or plain, "softmax=False goes with decay=False, self_key=True and length_scaling='none' only."
        )


class MapMemory(NamedTuple):
    keys: Tensor  # (B, H, S, D) rotated
    values: Tensor  # (B, H, S, D)
    coordinate: Tensor  # (B, H, r) float64: where the past ended
    faded: Tensor | None = None  # (B, H, S, n_b) float64: with decay, how much had faded when each was seen


class LinearMemory(NamedTuple):
    written: Tensor  # (B, H, D, D) Σ_j k_j v_jᵀ, keys rotated
    coordinate: Tensor  # (B, H, r) float64: where the past ended


class MapWM(Mixer):
    """Queries and keys are rotated by the path integral of what the tokens do, instead of by their index.

    ⟨R(θ_i) q_i, R(θ_j) k_j⟩ = q_iᵀ R(θ_j − θ_i) k_j: only the displacement between i and j counts.
    """

    Options = MapWMOptions
    reads_both_ways = True
    no_decay = {"rate_log"}
    options: MapWMOptions

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        one_way = self.options.decay or not self.options.softmax
        require(self.causal or not one_way, "What fades or is summed along the path is read in one direction only.")
        self.heads = Heads(self.shape, self.options)
        self.path = PathIntegrator(self.shape, self.options.rank, self.options)
        start = torch.full_like(self.path.omega, RATE_LOG_AT_START)
        self.rate_log = nn.Parameter(start) if self.options.decay else None  # (H, n_b)

    def mix(self, x: Tensor, state: Any, context: Context) -> tuple[Tensor, Any]:
        q, k, v = self.heads.split(x, context)
        theta, reached, delta_in = self.path(x, None if state is None else state.coordinate, context)
        q, k = lie.rotate(theta, q, k)
        if not self.options.softmax:
            return self._sum(q, k, v, reached, state, context)
        if self.rate_log is None:
            state = MapMemory(**remember(state, keys=k, values=v), coordinate=reached)
            return self.heads.merge(self.heads.attend(q, state.keys, state.values, context)), state
        past_faded = None if state is None else state.faded
        faded = integrate_fading(delta_in, self.rate_log, past_faded, context)
        state = MapMemory(**remember(state, keys=k, values=v, faded=faded), coordinate=reached)
        assert state.faded is not None
        with without_autocast(x.device) if q.dtype == torch.float16 else nullcontext():
            mixed = self._attend_to_fading(q, state.keys, state.values, state.faded, context)
        return self.heads.merge(mixed.to(v.dtype)), state

    def _attend_to_fading(self, q: Tensor, k: Tensor, v: Tensor, faded: Tensor, context: Context) -> Tensor:
        """Where the path fades little over this chunk: fused attention, as without fading; else some rows at a time."""
        start = context.past.length
        rows = rows_at_once(faded, start)
        if rows >= q.shape[2]:
            q, k = counted_from(start, q, k, faded)
            return self.heads.attend(q, k, v.to(k.dtype), context)
        q, visibility = self.heads.sharpened(q, context), context.visibility(self.options.self_key)
        if context.recording is not None:
            note_weights(fading_weights(q, k, faded, self.heads.scale, visibility, rows), context)
        return fading_attention(q, k, v, faded, self.heads.scale, visibility, rows)

    def _sum(
        self, q: Tensor, k: Tensor, v: Tensor, reached: Tensor, state: LinearMemory | None, context: Context
    ) -> tuple[Tensor, LinearMemory]:
        """Linear attention; padding neither writes nor reads."""
        q = self.heads.sharpened(q, context)
        if context.padding_mask is not None:
            q, k = (t * context.padding_mask[:, None, :, None] for t in (q, k))
        start = k.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1]) if state is None else state.written
        mixed, written = linear_attention(q * self.heads.scale, k, v, start, reset=context.reset)
        return self.heads.merge(mixed), LinearMemory(written, reached)

    def reference(self, x: Tensor, context: Context) -> Tensor:
        """The definition, pair by pair: from i back to j, one rotation (and, with decay, one shrinking) per step."""
        require(context.causal, "The reference goes back step by step: it is that of the causal form.")
        q, k, v = self.heads.split(x)
        back = lie.rotation_matrix(self.path.turns(x)).to(x.dtype)  # (B, L, H, D, D)
        if self.rate_log is not None:
            shrink = torch.exp(-fading_of(self.path.movement(x), self.rate_log)).to(x.dtype)
            back = torch.cat((shrink, shrink), dim=-1).unsqueeze(-1) * back
        real = context.real_here()[:, :, None, None]

        def step_back(t: int, vector: Tensor) -> Tensor:
            return torch.where(real[:, t], torch.einsum("bhij,bhj->bhi", back[:, t], vector), vector)

        logits = logits_step_by_step(q, k, step_back) / self.heads.head_dim**0.5
        if not self.options.softmax:
            seen = context.attention_mask() & context.real()[:, None, None]
            return self.heads.merge((logits / self.options.attn_temperature).masked_fill(~seen, 0.0) @ v)
        return self.heads.merge(self.heads.weights(logits, context) @ v)


register_layer(
    "mapwm",
    MapWM,
    variants=(
        {},
        {"rank": 1},
        {"self_key": False},
        {"rank": 3, "learn_omega": False, "attn_temperature": 0.5},
        {"decay": True},
        {"decay": True, "self_key": False, "attn_temperature": 0.5},
        {"length_scaling": "log", "typical_length": 6, "init": "ordinary"},
        {"decay": True, "length_scaling": "log", "typical_length": 6},
        {"softmax": False},
    ),
    benchmarked=({}, {"decay": True}),
)
