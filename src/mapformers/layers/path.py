"""`path`: PaTH attention (Yang 2026), where position is a product of Householder matrices read from the tokens.

Every token between a key and a query applies its own H_t = I − β_t w_t w_tᵀ, read from the token itself: a
data-dependent path, as on a map, but of matrices that do not commute and only for β_t → 2 keep lengths.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, silu

from mapformers.errors import require
from mapformers.modules.attention import (
    AttentionOptions,
    Heads,
    logits_step_by_step,
    note_weights,
    remember,
)
from mapformers.modules.context import Context
from mapformers.modules.convolution import causal_convolution
from mapformers.modules.layer import register_layer
from mapformers.modules.mixer import LayerShape, Mixer
from mapformers.ops.householder_attention import householder_attention

CONV_SIZE = 3  # tokens that the convolution sees, its own among them
STD = 0.02  # with which the authors start all weights; ours start so where the equation has no q, k, v, o


@dataclass(frozen=True)
class PaTHOptions(AttentionOptions):
    conv: bool = True
    """Whether w_t also sees the two tokens before, by a convolution and SiLU."""
    path_rank: int = 32
    """Dimensions of the bottleneck through which w_t is read from x_t."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.path_rank >= 1, f"path_rank must be at least 1, not {self.path_rank}.")


class PathMemory(NamedTuple):
    keys: Tensor  # (B, H, S, D) carried on to the last token, in float32 or better
    values: Tensor  # (B, H, S, D)
    tail: Tensor | None  # (B, 2, H·D) what the convolution will see of the last real tokens of this document, or zeros


class Reflections(nn.Module):
    """The learned part: which H_t does each token apply? w_t of length one, and β_t in (0, 2), for each head.

    Everything is in float32 or better, whatever autocast is doing around it.
    """

    def __init__(self, shape: LayerShape, options: PaTHOptions):
        super().__init__()
        self.size = (shape.n_heads, shape.head_dim)
        inner = shape.n_heads * shape.head_dim
        self.w_in = nn.Parameter(STD * torch.randn(options.path_rank, shape.d_model))
        self.w_out = nn.Parameter(STD * torch.randn(inner, options.path_rank))
        self.kernel = nn.Parameter(STD * torch.randn(inner, CONV_SIZE)) if options.conv else None
        self.beta = nn.Parameter(STD * torch.randn(shape.n_heads, shape.d_model))
        self.beta_bias = nn.Parameter(torch.zeros(shape.n_heads))

    def forward(self, x: Tensor, tail: Tensor | None, context: Context) -> tuple[Tensor, Tensor, Tensor | None]:
        """(B, L, d_model) -> w of (B, H, L, D), β of (B, H, L), and the tail of the next chunk."""
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        w = linear(linear(x, self.w_in.to(x.dtype)), self.w_out.to(x.dtype))
        if self.kernel is not None:
            w, tail = causal_convolution(w, self.kernel.to(x.dtype), None, tail, context)
            w = silu(w)
        w = w.unflatten(-1, self.size).transpose(1, 2)
        w = w * (w.square().sum(dim=-1, keepdim=True) + 1e-12).rsqrt()
        beta = 2 * linear(x, self.beta.to(x.dtype), self.beta_bias.to(x.dtype)).sigmoid()
        if context.padding_mask is not None:
            beta = beta.masked_fill(~context.padding_mask.unsqueeze(-1), 0)  # padding applies H = I
        return w, beta.transpose(1, 2), tail


class PaTH(Mixer):
    """softmax(s) v with s_ij = k_jᵀ H_{j+1} … H_i q_i / √D, j ≤ i."""

    Options = PaTHOptions
    options: PaTHOptions

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.heads = Heads(self.shape, self.options)
        self.reflections = Reflections(self.shape, self.options)

    def mix(self, x: Tensor, state: PathMemory | None, context: Context) -> tuple[Tensor, PathMemory]:
        q, k, v = self.heads.split(x, context)
        values = remember(state, values=v)["values"]
        with torch.autocast(x.device.type, enabled=False):
            w, beta, tail = self.reflections(x, None if state is None else state.tail, context)
            q = self.heads.sharpened(q.to(w.dtype), context)
            past_keys = None if state is None else state.keys
            visibility = context.visibility(self.options.self_key)
            mixed, keys, weights = householder_attention(
                q, k.to(w.dtype), values, w, beta, self.heads.scale, visibility, past_keys
            )
            note_weights(weights, context)
        return self.heads.merge(mixed), PathMemory(keys, values, tail)

    def reference(self, x: Tensor, context: Context) -> Tensor:
        """The definition, pair by pair: from token i back to token j, multiplying one matrix per step."""
        q, k, v = self.heads.split(x)
        w, beta, _ = self.reflections(x, None, context)
        identity = torch.eye(self.heads.head_dim, dtype=x.dtype, device=x.device)
        householder = identity - beta[..., None, None] * torch.einsum("bhli,bhlj->bhlij", w, w)

        def step_back(t: int, vector: Tensor) -> Tensor:  # H_t
            return torch.einsum("bhij,bhj->bhi", householder[:, :, t], vector)

        logits = logits_step_by_step(q, k, step_back) / self.heads.head_dim**0.5
        return self.heads.merge(self.heads.weights(logits, context) @ v)


register_layer(
    "path",
    PaTH,
    variants=(
        {},
        {"self_key": False},
        {"conv": False},
        {"path_rank": 3, "attn_temperature": 0.5},
        {"length_scaling": "log", "typical_length": 6, "init": "ordinary"},
    ),
)
