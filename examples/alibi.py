"""`alibi`: attention with linear biases (Press 2022): a key counts less the farther back it is. A layer of one's own.

This one file is all there is to a new layer. It is then known by name, on the command line too:

  mapformers train --import examples/alibi.py --task navigation --model alibi --scale smoke

and every test of registered layers runs on it:

  pytest tests/properties --import-plugin examples/alibi.py -k alibi
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mapformers.errors import require
from mapformers.modules.attention import AttentionOptions, Heads, Memory, remember
from mapformers.modules.context import Context
from mapformers.modules.layer import register_layer
from mapformers.modules.mixer import Mixer


@dataclass(frozen=True)
class ALiBiOptions(AttentionOptions):
    steepest: float = 0.5
    """Slope of the first head; every further head has half the slope of the one before."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.steepest > 0, f"steepest must be above 0, not {self.steepest}.")


class ALiBi(Mixer):
    """softmax(q kᵀ/√D − m_h (i − j)) v with a slope m_h for each head; distance counts real tokens."""

    Options = ALiBiOptions
    options: ALiBiOptions

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.heads = Heads(self.shape, self.options)

    def mix(self, x: Tensor, state: Memory | None, context: Context) -> tuple[Tensor, Memory]:
        q, k, v = self.heads.split(x, context)
        memory = Memory(**remember(state, keys=k, values=v))
        logits = q @ memory.keys.mT / self.heads.head_dim**0.5 - self.penalty(context, q.dtype)
        weights = self.heads.weights(logits, context)
        context.note(attention=weights)
        return self.heads.merge(weights.to(v.dtype) @ memory.values), memory

    def penalty(self, context: Context, dtype: torch.dtype) -> Tensor:
        """m_h (i − j) of every query and key, (B, H, L, S + L)."""
        place = context.real().to(dtype).cumsum(dim=1)  # (B, S + L)
        behind = place[:, context.past.length :, None] - place[:, None, :]
        slopes = self.options.steepest * 0.5 ** torch.arange(self.shape.n_heads, dtype=dtype, device=place.device)
        return slopes[:, None, None] * behind.unsqueeze(1)

    def reference(self, x: Tensor, context: Context) -> Tensor:
        """Query by query and key by key."""
        q, k, v = self.heads.split(x)
        real, length = context.real(), x.shape[1]
        logits = torch.zeros(*q.shape[:2], length, length, dtype=x.dtype)
        for h in range(self.shape.n_heads):
            for i in range(length):
                for j in range(i + 1):
                    behind = real[:, j + 1 : i + 1].sum(dim=1).to(x.dtype)
                    product = (q[:, h, i] * k[:, h, j]).sum(-1) / self.heads.head_dim**0.5
                    logits[:, h, i, j] = product - self.options.steepest * 0.5**h * behind
        return self.heads.merge(self.heads.weights(logits, context) @ v)


register_layer("alibi", ALiBi, variants=({}, {"self_key": False}, {"steepest": 0.1, "attn_temperature": 0.5}))
