"""What all attention layers share: options, projections, key/value memory, and the call of fused attention."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

from mapformers.errors import require
from mapformers.modules.context import Context
from mapformers.modules.layer import linear
from mapformers.modules.mixer import LayerOptions, LayerShape

QK_SCALE = 0.1  # of W_q and W_k at the start, over N(0, 1/n_in)


@dataclass(frozen=True)
class AttentionOptions(LayerOptions):
    """Options that every attention layer takes."""

    self_key: bool = True
    """May a query attend to its own token? False: keys strictly earlier (a departure from the paper)."""
    attn_temperature: float = 1.0
    """Divides the final attention logits, once."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.attn_temperature > 0, f"attn_temperature must be above 0, not {self.attn_temperature}.")


class Memory(NamedTuple):
    """Keys, values and whatever else belongs to the tokens seen so far; ``coordinate`` is where they ended."""

    keys: Tensor  # (B, H, S, D)
    values: Tensor  # (B, H, S, D)
    coordinate: Tensor | None = None  # (B, H, r) float64


class Heads(nn.Module):
    """The projections W_q, W_k, W_v of d_model to heads, fused in one matrix, and W_o back; no biases.

    A layer that compares positions alone asks for ``parts=1``: values only.

    At the start W_v is orthogonal and W_o its transpose, so a head *copies* what it attends to, and W_q, W_k are
    small, so it attends to all tokens equally and no key starts out of phase. The first gradients on attention are
    then about where to look, which decides whether a map is found (docs/fidelity.md).
    """

    def __init__(self, shape: LayerShape, parts: int = 3, qk_scale: float = QK_SCALE):
        super().__init__()
        self.parts, self.n_heads, self.head_dim = parts, shape.n_heads, shape.head_dim
        inner = shape.n_heads * shape.head_dim
        self.project = linear(shape.d_model, parts * inner)
        self.out = linear(inner, shape.d_model)
        with torch.no_grad():
            self.project.weight[:-inner] *= qk_scale
            values = self.project.weight[-inner:]
            nn.init.orthogonal_(values)
            self.out.weight.copy_(values.T / math.sqrt(shape.n_layers))

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        """(B, L, d_model) -> q, k, v (or v alone) of (B, H, L, D)."""
        projected = self.project(x).unflatten(-1, (self.parts, self.n_heads, self.head_dim))
        return projected.permute(2, 0, 3, 1, 4).unbind(0)

    def merge(self, x: Tensor) -> Tensor:
        """(B, H, L, D) -> (B, L, d_model)."""
        return self.out(x.transpose(1, 2).flatten(-2))


def remember(state: Any, **here: Tensor) -> dict[str, Any]:
    """Append this chunk's per-token tensors (B, H, L, D) to those of the state."""
    if state is None:
        return here
    return {name: torch.cat((getattr(state, name), tensor), dim=2) for name, tensor in here.items()}


def attend(q: Tensor, k: Tensor, v: Tensor, context: Context, options: AttentionOptions) -> Tensor:
    """softmax(q kᵀ / (√D · temperature) + mask) v by fused attention; builds no mask for a plain sequence."""
    scale = 1 / (math.sqrt(q.shape[-1]) * options.attn_temperature)
    context.note(values=v[:, :, context.past.length :])
    if context.recording is not None:
        logits = (q @ k.transpose(-1, -2)) * scale
        context.note(attention=masked_softmax(logits, context, options))
    if context.is_plain and options.self_key:
        return scaled_dot_product_attention(q, k, v, is_causal=context.causal, scale=scale)
    if context.is_plain and context.causal:
        # Keys strictly earlier = the causal triangle between queries 1… and keys …L−1; the first sees itself.
        later = scaled_dot_product_attention(q[:, :, 1:], k[:, :, :-1], v[:, :, :-1], is_causal=True, scale=scale)
        return torch.cat((v[:, :, :1].to(later.dtype), later), dim=2)
    return scaled_dot_product_attention(q, k, v, attn_mask=context.attention_mask(options.self_key), scale=scale)


def masked_softmax(logits: Tensor, context: Context, options: AttentionOptions) -> Tensor:
    """Attention weights from explicit logits (B, H, L, S + L)."""
    allowed = context.attention_mask(options.self_key)
    return logits.masked_fill(~allowed, -math.inf).softmax(dim=-1)


def note_weights(blocks: Sequence[Tensor], context: Context) -> None:
    """Note attention weights that were made a few rows at a time, each against the keys up to its last row."""
    if context.recording is not None:
        n_keys = context.past.length + context.length
        context.note(attention=torch.cat([pad(rows, (0, n_keys - rows.shape[-1])) for rows in blocks], dim=2))


def check_even_heads(shape: LayerShape, name: str) -> None:
    require(
        shape.head_dim % 2 == 0,
        f"{name} rotates pairs, so a head must have an even size, not {shape.head_dim}; change d_model or n_heads.",
    )


def logits_step_by_step(q: Tensor, k: Tensor, step_back: Callable[[int, Tensor], Tensor]) -> Tensor:
    """The definition of relative position, pair by pair: ⟨S_{j+1} … S_i q_i, k_j⟩ for j ≤ i, (B, H, L, L), 0 above.

    ``step_back(t, vector)`` is S_t, what token t does to a vector (B, H, …) that is carried back across it. Every
    layer whose position is a product along the sequence has this as its reference.
    """
    length, rows = q.shape[2], []
    for i in range(length):
        carried: Tensor = q[:, :, i]
        logits: list[Tensor] = []
        for j in range(i, -1, -1):  # one more factor for each step back
            logits.insert(0, (carried * k[:, :, j]).flatten(2).sum(-1))
            carried = step_back(j, carried)
        rows.append(pad(torch.stack(logits, dim=-1), (0, length - i - 1)))
    return torch.stack(rows, dim=2)
