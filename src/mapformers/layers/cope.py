"""`cope`: contextual positions (Golovneva 2024): a key is as far away as the gated keys between it and the query."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mapformers.errors import require
from mapformers.modules.attention import AttentionOptions, Heads, Memory, remember
from mapformers.modules.context import Context
from mapformers.modules.layer import register_layer
from mapformers.modules.mixer import Mixer
from mapformers.ops.contextual_attention import contextual_attention, contextual_reference

Scaling = Literal["all", "content"]


@dataclass(frozen=True)
class CoPEOptions(AttentionOptions):
    npos: int = 64
    """Positions that are told apart, 0 to npos − 1; whatever lies farther back is at the last one."""
    cope_scaling: Scaling = "all"
    """What 1/√D scales: content and position (the authors' code), or the content alone (their appendix)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.npos >= 2, f"npos must be at least 2, not {self.npos}: with one position there is none.")


class CoPE(Mixer):
    """Each query decides which keys count, and a key is as far away as the sum of what counts from it on.

    g_ij = σ(q_i·k_j/√D), p_ij = Σ_{t=j..i} g_it, at most npos − 1. Of whole positions the logit is q_i·e[p], in between
    it is interpolated, and the gradient reaches p through the weights of that interpolation.

    A gate is 0 wherever the query may not look: the future, other documents, padding. Without ``self_key`` this holds
    of the query's own key too: p_ij = Σ_{t=j..i−1} g_it, so the token before the query is at g_{i,i−1}, not at
    g_{i,i−1} + g_ii; the first token of a document, which sees itself alone, is at g_ii. The temperature divides the
    sum of both logits and leaves the gates as they are.
    """

    Options = CoPEOptions
    options: CoPEOptions

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.heads = Heads(self.shape, self.options)
        # paper: zeros (the authors' code); here: N(0, 1), because W_q starts small, and q·e would not move if both did
        start = torch.randn if self.options.init == "copying" else torch.zeros
        self.positions = nn.Parameter(start(self.options.npos, self.shape.head_dim))  # e, shared by the heads
        self.scale = self.shape.head_dim**-0.5

    def mix(self, x: Tensor, state: Memory | None, context: Context) -> tuple[Tensor, Memory]:
        q, k, v = self.heads.split(x, context)
        state = Memory(**remember(state, keys=k, values=v))
        if context.recording is not None:
            self._record(q, state, context)
        visibility = context.visibility(self.options.self_key)
        sharpness = self.sharpness(q, context)
        z = self.whole_positions(q)
        mixed = contextual_attention(q, state.keys, state.values, z, self.scale, sharpness, visibility)
        return self.heads.merge(mixed), state

    def sharpness(self, q: Tensor, context: Context) -> Tensor:
        """What multiplies the sum of both logits, of each query: (B, H, L, 1). The gates are made without it."""
        temperature = torch.full_like(q[..., :1], 1 / self.options.attn_temperature)
        return self.heads.sharpened(temperature, context)

    def whole_positions(self, q: Tensor) -> Tensor:
        """z_i[n] = q_i·e[n], scaled as the options say: (B, H, L, npos + 1).

        The last position stands there twice: at the clamp ⌊p⌋ + 1 must exist, and be no step away.
        """
        z = q @ torch.cat((self.positions, self.positions[-1:])).mT
        return z * self.scale if self.options.cope_scaling == "all" else z

    def written_out(self, q: Tensor, k: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """The logits of content and of position (B, H, L, S + L) by their definitions, before mask and temperature."""
        visibility = context.visibility(self.options.self_key)
        return contextual_reference(q, k, self.whole_positions(q), self.scale, visibility)[:2]

    def reference(self, x: Tensor, context: Context) -> Tensor:
        """softmax(content + position) v with every gate, position and logit written out."""
        q, k, v = self.heads.split(x)
        content, position = self.written_out(q, k, context)
        return self.heads.merge(self.heads.weights(content + position, context) @ v)

    def _record(self, q: Tensor, memory: Memory, context: Context) -> None:
        """Both logits and the attention they make as matrices, for whoever looks inside."""
        content, position = self.written_out(q, memory.keys, context)
        weights = self.heads.weights(content + position, context)
        context.note(attention=weights, attn_x=content, attn_p=position)


register_layer(
    "cope",
    CoPE,
    variants=(
        {},
        {"self_key": False},
        {"npos": 3, "attn_temperature": 0.5},
        {"npos": 4, "cope_scaling": "content", "self_key": False, "attn_temperature": 2.0},
        {"length_scaling": "log", "typical_length": 6, "init": "ordinary"},
    ),
)
