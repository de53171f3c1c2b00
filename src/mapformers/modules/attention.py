"""What all attention layers share: options, projections, key/value memory, and the call of fused attention."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

from mapformers.errors import require
from mapformers.modules.context import Context
from mapformers.modules.layer import linear
from mapformers.modules.memory import append
from mapformers.modules.mixer import LayerOptions, LayerShape
from mapformers.ops.document_attention import causal_attention, document_attention
from mapformers.ops.flex_document_attention import flex_document_attention, flex_runs_on

QK_SCALE = 0.1  # W_q and W_k of a copying start are this times N(0, 1/n_in)
Init = Literal["copying", "ordinary"]
LengthScaling = Literal["none", "log"]


@dataclass(frozen=True)
class HeadOptions(LayerOptions):
    """How heads start, and how sharply they attend."""

    attn_temperature: float = 1.0
    """Divides the final attention logits, once."""
    length_scaling: LengthScaling = "none"
    """log: the logits of a query that sees n keys are multiplied by s·log n, with s learned for each head, because a
    softmax over more keys is flatter. none: as in the paper."""
    typical_length: int = 256
    """The number of keys at which length_scaling changes nothing at the start: s starts at 1/log(typical_length)."""
    init: Init = "copying"
    """copying: a head starts by copying what it sees, from all tokens equally; ordinary: all weights N(0, 1/n_in)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.attn_temperature > 0, f"attn_temperature must be above 0, not {self.attn_temperature}.")
        require(self.typical_length >= 2, f"typical_length must be at least 2, not {self.typical_length}.")

    @property
    def learns_sharpness(self) -> bool:
        """Whether each head has a learned factor on its logits."""
        return self.length_scaling == "log"


@dataclass(frozen=True)
class AttentionOptions(HeadOptions):
    """Options that every attention layer takes."""

    self_key: bool = True
    """A query attends to its own token too; without it to strictly earlier ones (a departure from the paper)."""


class Memory(NamedTuple):
    """Keys, values and whatever else belongs to the tokens seen so far; ``coordinate`` is where they ended."""

    keys: Tensor  # (B, H, S, D)
    values: Tensor  # (B, H, S, D)
    coordinate: Tensor | None = None  # rope: the index (B, 1, 1); mapwm-nc: the rotation (B, H, n_b, n, n)


class Projections(nn.Module):
    """The projections W_q, W_k, W_v of d_model to heads, fused in one matrix, and W_o back; no biases.

    A layer that compares positions alone asks for ``parts=1``: values only.

    ``init="copying"``: W_v is orthogonal at the start and W_o its transpose, so a head *copies* what it attends to, and
    W_q, W_k are small (``qk_scale``), so it attends to all tokens equally and no key starts out of phase. The first
    gradients on attention are then about where to look, which decides whether a map is found (docs/fidelity.md).
    ``init="ordinary"``: W_q, W_k, W_v are N(0, 1/n_in), and W_o, like all that writes to the residual stream, smaller.
    """

    def __init__(self, shape: LayerShape, options: HeadOptions, parts: int = 3, qk_scale: float = QK_SCALE):
        super().__init__()
        self.options, self.parts, self.n_heads, self.head_dim = options, parts, shape.n_heads, shape.head_dim
        inner = shape.n_heads * shape.head_dim
        ordinary = options.init == "ordinary"
        self.project = linear(shape.d_model, parts * inner)
        self.out = linear(inner, shape.d_model, residual_of=shape if ordinary else None)
        self.sharpness = nn.Parameter(torch.ones(shape.n_heads)) if options.learns_sharpness else None
        if ordinary:
            return
        with torch.no_grad():
            self.project.weight[:-inner] *= qk_scale
            values = self.project.weight[-inner:]
            nn.init.orthogonal_(values)
            self.out.weight.copy_(values.T / math.sqrt(shape.n_layers))

    @property
    def scale(self) -> float:
        """What multiplies the product of a query and a key: 1/√D, and the temperature."""
        return 1 / (math.sqrt(self.head_dim) * self.options.attn_temperature)

    def split(self, x: Tensor, context: Context | None = None) -> tuple[Tensor, ...]:
        """(B, L, d_model) -> q, k, v (or v alone) of (B, H, L, D), noted in the context if there is one."""
        projected = self.project(x).view(*x.shape[:-1], self.parts, self.n_heads, self.head_dim)
        parts = projected.permute(2, 0, 3, 1, 4).unbind(0)
        if context is not None and context.recording is not None:
            context.note(**dict(zip(("queries", "keys", "values")[-self.parts :], parts)))
        return parts

    def merge(self, x: Tensor) -> Tensor:
        """(B, H, L, D) -> (B, L, d_model)."""
        return self.out(x.transpose(1, 2).flatten(-2))

    def sharpen(self, per_query: Tensor, n_keys: Tensor) -> Tensor:
        """Queries (B, H, L, D), or logits (B, H, L, S + L), times what the head has learned; as they are by default.

        ``n_keys`` (B or 1, L): how many keys each query sees. With length_scaling s·log n (Nakanishi 2025), written
        here as ``sharpness`` · log n / log typical_length, which starts at 1 for a query that sees that many.
        """
        if self.sharpness is None:
            return per_query
        factor = self.sharpness[:, None, None]
        if self.options.length_scaling == "log":
            lengths = n_keys[:, None, :, None].to(factor.dtype)
            factor = factor * lengths.log() / math.log(self.options.typical_length)
        return per_query * factor.to(per_query.dtype)


class Heads(Projections):
    """Heads that attend to the keys a `Context` lets them see."""

    options: AttentionOptions

    def attend(self, q: Tensor, k: Tensor, v: Tensor, context: Context) -> Tensor:
        """softmax(q kᵀ/(√D · temperature), sharpened and masked) v by fused attention."""
        return attend(self.sharpened(q, context), k, v, self.scale, context, self.options.self_key)

    def sharpened(self, per_query: Tensor, context: Context) -> Tensor:
        """`sharpen`, where each query sees what the context says; divided by its temperature, if it has one."""
        per_query = per_query if context.temperature is None else per_query / context.temperature
        return per_query if self.sharpness is None else self.sharpen(per_query, self._n_keys(context))

    def weights(self, logits: Tensor, context: Context) -> Tensor:
        """Attention weights from all logits (B, H, L, S + L), once everything else is added to or multiplied in them:
        temperature and length, the mask, and the softmax."""
        logits = self.sharpened(logits, context) / self.options.attn_temperature
        return masked_softmax(logits, context, self.options.self_key)

    def _n_keys(self, context: Context) -> Tensor:
        return context.visibility(self.options.self_key).n_keys(context.length, context.device)


def remember(state: Any, **here: Tensor) -> dict[str, Any]:
    """Append this chunk's per-token tensors (B, H, L, D) to those of the state."""
    if state is None:
        return here
    return {name: append(getattr(state, name), tensor, dim=2) for name, tensor in here.items()}


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, context: Context, self_key: bool) -> Tensor:
    """softmax(scale · q kᵀ + mask) v by fused attention.

    Plain sequences need no mask, and packed ones only in a compiled model where FlexAttention has no kernel.
    """
    if context.recording is not None:
        context.note(attention=masked_softmax((q @ k.transpose(-1, -2)) * scale, context, self_key))
    if context.is_one_more:  # its query sees every key there is, so it needs no mask
        seen = slice(None) if self_key else slice(-1)
        return scaled_dot_product_attention(q, k[:, :, seen], v[:, :, seen], scale=scale)
    if context.is_plain and self_key:
        return scaled_dot_product_attention(q, k, v, is_causal=context.causal, scale=scale)
    if context.is_plain and context.causal:
        return causal_attention(q, k, v, scale, self_key)
    if context.is_packed and not torch.compiler.is_compiling():
        return document_attention(q, k, v, scale, context.document_layout(), self_key)
    # A compiler does not know where documents end.
    if context.is_packed and torch.compiler.is_dynamo_compiling() and flex_runs_on(q, k, v):
        return flex_document_attention(q, k, v, scale, context.block_mask(self_key))
    return scaled_dot_product_attention(q, k, v, attn_mask=context.attention_mask(self_key), scale=scale)


def masked_softmax(logits: Tensor, context: Context, self_key: bool) -> Tensor:
    """Attention weights from explicit logits (B, H, L, S + L)."""
    allowed = context.attention_mask(self_key)
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
