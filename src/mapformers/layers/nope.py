"""`nope`: attention without positional encoding (a control); a map on which nothing moves."""

from typing import Any

from torch import Tensor

from mapformers.modules.attention import AttentionOptions, Heads, Memory, remember
from mapformers.modules.context import Context
from mapformers.modules.layer import register_layer
from mapformers.modules.mixer import Mixer


class NoPE(Mixer):
    """softmax(q kᵀ/√D) v: the limit Δ = 0 of `mapwm`."""

    Options = AttentionOptions
    reads_both_ways = True
    options: AttentionOptions

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.heads = Heads(self.shape, self.options)

    def mix(self, x: Tensor, state: Memory | None, context: Context) -> tuple[Tensor, Memory]:
        q, k, v = self.heads.split(x, context)
        state = Memory(**remember(state, keys=k, values=v))
        return self.heads.merge(self.heads.attend(q, state.keys, state.values, context)), state

    def reference(self, x: Tensor, context: Context) -> Tensor:
        """The same by its definition: every logit written out."""
        q, k, v = self.heads.split(x)
        logits = q @ k.transpose(-1, -2) / self.heads.head_dim**0.5
        return self.heads.merge(self.heads.weights(logits, context) @ v)


register_layer(
    "nope",
    NoPE,
    variants=(
        {},
        {"self_key": False},
        {"attn_temperature": 0.5},
        {"length_scaling": "log", "typical_length": 6, "init": "ordinary"},
    ),
)
