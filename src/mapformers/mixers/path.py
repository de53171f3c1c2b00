"""`path`: PaTH attention (Yang 2026), the baseline whose position is a product of Householder matrices.

Every token between a key and a query applies its own H_t = I − β_t w_t w_tᵀ, read from the token itself: a
data-dependent path, as on a map, but of matrices that do not commute and only for β_t → 2 keep lengths.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import conv1d, linear, silu

from mapformers.errors import require
from mapformers.mixers.attention import AttentionOptions, Heads, masked_softmax, remember
from mapformers.mixers.context import Context
from mapformers.mixers.householder import householder_attention
from mapformers.mixers.layer import Block, LayerShape, register_layer

TAIL = 2  # tokens before its own that the convolution sees
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
        self.kernel = nn.Parameter(STD * torch.randn(inner, TAIL + 1)) if options.conv else None
        self.beta = nn.Parameter(STD * torch.randn(shape.n_heads, shape.d_model))
        self.beta_bias = nn.Parameter(torch.zeros(shape.n_heads))

    def forward(self, x: Tensor, tail: Tensor | None, context: Context) -> tuple[Tensor, Tensor, Tensor | None]:
        """(B, L, d_model) -> w of (B, H, L, D), β of (B, H, L), and the tail of the next chunk."""
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        w = linear(linear(x, self.w_in.to(x.dtype)), self.w_out.to(x.dtype))
        if self.kernel is not None:
            w, tail = short_convolution(w, self.kernel.to(x.dtype), tail, context)
            w = silu(w)
        w = w.unflatten(-1, self.size).transpose(1, 2)
        w = w * (w.square().sum(dim=-1, keepdim=True) + 1e-12).rsqrt()
        beta = 2 * linear(x, self.beta.to(x.dtype), self.beta_bias.to(x.dtype)).sigmoid()
        if context.padding_mask is not None:
            beta = beta.masked_fill(~context.padding_mask.unsqueeze(-1), 0)  # padding applies H = I
        return w, beta.transpose(1, 2), tail


def short_convolution(x: Tensor, kernel: Tensor, tail: Tensor | None, context: Context) -> tuple[Tensor, Tensor]:
    """y_t = c₀ x_{t−2} + c₁ x_{t−1} + c₂ x_t, channel by channel, over the real tokens of a document; zeros before it.

    x (B, L, C), kernel (C, 3). ``tail`` (B, 2, C) are the last two real tokens of the document that goes on; returned
    is that of the next chunk.
    """
    if tail is None:
        tail = x.new_zeros(x.shape[0], TAIL, x.shape[-1])
    x = torch.cat((tail, x), dim=1)
    if context.reset is None and context.padding_mask is None:
        return conv1d(x.mT, kernel.unsqueeze(1), groups=x.shape[-1]).mT, x[:, -TAIL:]
    last, before_last = (torch.where(same, x.take_along_dim(at, dim=1), 0) for at, same in predecessors(x, context))
    convolved = torch.stack((before_last[:, :-1], last[:, :-1], x[:, TAIL:]), dim=-1).mul(kernel).sum(dim=-1)
    return convolved, torch.stack((before_last[:, -1], last[:, -1]), dim=1)


def predecessors(x: Tensor, context: Context) -> list[tuple[Tensor, Tensor]]:
    """Where in (tail, x) the last real token before each one is, and the one before that; and if of the same document.

    All (B, L + 1, 1): for every token of the chunk and for the one that would come next.
    """
    batch, length, _ = x.shape
    begun = torch.zeros_like(context.tokens) if context.reset is None else context.reset.long().cumsum(dim=1)
    document = torch.cat((begun.new_zeros(batch, TAIL), begun, begun[:, -1:]), dim=1)
    index = torch.arange(length, device=x.device).expand(batch, -1)
    if context.padding_mask is not None:
        real = torch.cat((context.padding_mask.new_ones(batch, TAIL), context.padding_mask), dim=1)
        index = torch.where(real, index, 0)
    newest = index.cummax(dim=1).values  # the last real token up to here
    last = newest[:, TAIL - 1 :]
    before_last = newest.gather(1, last - 1)
    here = document[:, TAIL:]
    return [(at.unsqueeze(-1), (document.gather(1, at) == here).unsqueeze(-1)) for at in (last, before_last)]


class PaTH(nn.Module):
    """softmax(s) v with s_ij = k_jᵀ H_{j+1} … H_i q_i / √D, j ≤ i."""

    def __init__(self, shape: LayerShape, options: PaTHOptions):
        super().__init__()
        self.options = options
        self.heads = Heads(shape)
        self.reflections = Reflections(shape, options)

    def forward(self, x: Tensor, state: PathMemory | None, context: Context) -> tuple[Tensor, PathMemory]:
        q, k, v = self.heads.split(x)
        values = remember(state, values=v)["values"]
        context.note(values=v)
        with torch.autocast(x.device.type, enabled=False):
            w, beta, tail = self.reflections(x, None if state is None else state.tail, context)
            scale = self.heads.head_dim**-0.5 / self.options.attn_temperature
            past_keys = None if state is None else state.keys
            mixed, keys = householder_attention(
                q.to(w.dtype), k.to(w.dtype), values, w, beta, scale, context, self.options.self_key, past_keys
            )
        return self.heads.merge(mixed), PathMemory(keys, values, tail)

    def reference(self, x: Tensor, context: Context) -> Tensor:
        """The definition, pair by pair: walk from token i back to token j multiplying one matrix per step."""
        q, k, v = self.heads.split(x)
        w, beta, _ = self.reflections(x, None, context)
        identity = torch.eye(self.heads.head_dim, dtype=x.dtype, device=x.device)
        householder = identity - beta[..., None, None] * torch.einsum("bhli,bhlj->bhlij", w, w)
        batch, heads, length, _ = q.shape
        rows = []
        for i in range(length):
            logits: list[Tensor] = []
            walked = q[:, :, i]
            for j in range(i, -1, -1):  # ⟨k_j, H_{j+1} … H_i q_i⟩, one more factor for each step back
                logits.insert(0, (walked * k[:, :, j]).sum(-1))
                walked = torch.einsum("bhij,bhj->bhi", householder[:, :, j], walked)
            blank = q.new_zeros(batch, heads, length - i - 1)
            rows.append(torch.cat((torch.stack(logits, dim=-1), blank), dim=-1))
        scores = torch.stack(rows, dim=2) / self.heads.head_dim**0.5 / self.options.attn_temperature
        return self.heads.merge(masked_softmax(scores, context, self.options) @ v)


register_layer(
    "path",
    summary="PaTH attention: position is a product of data-dependent Householder matrices.",
    options=PaTHOptions,
    build=lambda shape, options: Block(shape, PaTH(shape, options)),
    variants=({}, {"self_key": False}, {"conv": False}, {"path_rank": 3, "attn_temperature": 0.5}),
)
