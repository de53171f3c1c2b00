"""`nope`: causal attention with no position at all; a map on which nothing moves (Δ = 0)."""

from torch import Tensor, nn

from mapformers.mixers.attention import AttentionOptions, Heads, Memory, attend, masked_softmax, remember
from mapformers.mixers.context import Context
from mapformers.mixers.layer import Block, LayerShape, register_layer


class NoPE(nn.Module):
    def __init__(self, shape: LayerShape, options: AttentionOptions):
        super().__init__()
        self.options = options
        self.heads = Heads(shape)

    def forward(self, x: Tensor, state: Memory | None, context: Context) -> tuple[Tensor, Memory]:
        q, k, v = self.heads.split(x)
        state = Memory(**remember(state, keys=k, values=v))
        return self.heads.merge(attend(q, state.keys, state.values, context, self.options)), state

    def reference(self, x: Tensor, context: Context) -> Tensor:
        """The same by its definition: every logit written out."""
        q, k, v = self.heads.split(x)
        logits = q @ k.transpose(-1, -2) / self.heads.head_dim**0.5 / self.options.attn_temperature
        return self.heads.merge(masked_softmax(logits, context, self.options) @ v)


register_layer(
    "nope",
    summary="Attention without positional encoding (a control).",
    options=AttentionOptions,
    build=lambda shape, options: Block(shape, NoPE(shape, options)),
    variants=({}, {"self_key": False}, {"attn_temperature": 0.5}),
)
