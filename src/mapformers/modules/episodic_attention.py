"""What `mapem` and `mapem-nc` share: attention to what was seen times attention to where (sec. 3.2, A.4, A.7)."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from mapformers.errors import require
from mapformers.modules.attention import QK_SCALE, AttentionOptions, Heads, remember
from mapformers.modules.context import Context
from mapformers.modules.mixer import LayerOptions, Mixer
from mapformers.modules.movement import Movement
from mapformers.modules.what_where_gate import WhatWhereGate, gated_key, gated_query
from mapformers.ops.conjunctive_attention import conjunctive_attention

Attend = Literal["os", "s", "o", "gated"]
Origins = Literal["equal", "independent", "shared"]


@dataclass(frozen=True)
class EpisodicOptions(AttentionOptions):
    attend: Attend = "os"
    """What is compared: observation and structure (os), structure alone (s), observation alone (o), or the two by
    gates that every token learns to set (gated)."""
    origins: Origins = "equal"
    """q₀ᵖ and k₀ᵖ: two parameters that start equal or independent, or a single shared one (A.7)."""
    origin_std: float | None = None
    """Spread of the origins at the start (None: 0.4 with os, 0.8 with s)."""
    qk_scale: float = 0.5
    """W_q and W_k of a copying start are this times N(0, 1/n_in)."""
    learn_sharpness: bool = False
    """Whether each head learns a factor on the product of its attentions, without regard to length."""
    project_position: bool = False
    """A learned projection C of the position before it is compared (A.4)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("origin_std", "qk_scale"):
            value = getattr(self, name)
            require(value is None or value > 0, f"{name} must be above 0, not {value}.")
        once = not (self.learn_sharpness and self.length_scaling == "log")
        require(once, "length_scaling='log' learns a sharpness of its own; leave out learn_sharpness.")

    @property
    def learns_sharpness(self) -> bool:
        return self.learn_sharpness or super().learns_sharpness

    @property
    def spread(self) -> float:
        """Structure alone must be sharp by itself; in a product the other factor sharpens it (docs/fidelity.md)."""
        return self.origin_std or (0.8 if self.attend == "s" else 0.4)


class EpisodicMemory(NamedTuple):
    values: Tensor  # (B, H, S, D)
    places: Tensor | None = None  # (B, H, S, D) where it was seen; not kept by `o`, which does not ask
    keys: Tensor | None = None  # (B, H, S, D) what was seen; not kept by `s`, which does not ask; both gated: D + 1
    coordinate: Tensor | None = None  # (B, H, …): where the past ended


class EpisodicAttention(Mixer):
    """softmax(A_X ⊙ A_P) v: A_X compares what was seen, A_P where, and their product asks for both (sec. 3.2).

    A_X = q kᵀ/√D and A_P = q_p k_pᵀ/√D with q_p and k_p the origins q₀ᵖ and k₀ᵖ carried along the path.
    ``attend="s"`` is softmax(A_P) v and ``attend="o"`` softmax(A_X) v, which fused attention computes.

    The two origins start equal, so that from the first step on a place is compared in phase with itself; W_q and W_k
    start larger than elsewhere, because each factor of the product scales the gradient of the other.
    """

    Options: ClassVar[type[LayerOptions]] = EpisodicOptions
    reads_both_ways = True
    no_decay = {"query_origin", "key_origin"}
    options: EpisodicOptions

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        options, shape = self.options, self.shape
        if (
            options.attend == "o"
        ):  # no position: nothing is built that would never get a gradient, and it starts as NoPE
            self.heads = Heads(shape, options, qk_scale=QK_SCALE)
            return
        self.heads = Heads(shape, options, parts=1 if options.attend == "s" else 3, qk_scale=options.qk_scale)
        self.path = self.build_path()
        self.gate = WhatWhereGate(shape) if options.attend == "gated" else None
        size = (shape.n_heads, shape.head_dim)
        start = torch.randn(size) * options.spread
        self.query_origin = nn.Parameter(start)
        self.key_origin = None if options.origins == "shared" else nn.Parameter(start.clone())
        if self.key_origin is not None and options.origins == "independent":
            nn.init.normal_(self.key_origin, std=options.spread)
        self.projection = (
            nn.Parameter(torch.eye(shape.head_dim).repeat(shape.n_heads, 1, 1)) if options.project_position else None
        )

    @abstractmethod
    def build_path(self) -> Movement:
        """What integrates the path: (x, where the past ended, context) -> (rotations, where it ends, …)."""

    @abstractmethod
    def carry(self, rotations: Tensor, *origins: Tensor) -> tuple[Tensor, ...]:
        """Origins (H, 1, D), each turned by the rotation of every token: (B, H, L, D)."""

    def places(self, rotations: Tensor) -> tuple[Tensor, Tensor]:
        """q_p and k_p of (B, H, L, D): C R_t applied to the two origins."""
        origins = [self.query_origin] if self.key_origin is None else [self.query_origin, self.key_origin]
        places = self.carry(rotations, *(origin.unsqueeze(1) for origin in origins))
        if self.projection is not None:
            places = tuple(torch.einsum("hij,bhlj->bhli", self.projection.to(place.dtype), place) for place in places)
        return places[0], places[-1]

    def mix(self, x: Tensor, state: EpisodicMemory | None, context: Context) -> tuple[Tensor, EpisodicMemory]:
        if self.options.attend == "o":
            q, k, v = self.heads.split(x, context)
            memory = EpisodicMemory(**remember(state, keys=k, values=v))
            assert memory.keys is not None
            return self.heads.merge(self.heads.attend(q, memory.keys, memory.values, context)), memory
        rotations, reached, *_ = self.path(x, None if state is None else state.coordinate, context)
        *qk, v = self.heads.split(x, context)
        q_place, k_place = (place.to(v.dtype) for place in self.places(rotations))
        if self.options.attend == "s":
            memory = EpisodicMemory(**remember(state, places=k_place, values=v), coordinate=reached)
            assert memory.places is not None
            return self.heads.merge(self.heads.attend(q_place, memory.places, memory.values, context)), memory
        q, k = qk
        if self.gate is not None:
            q, q_place = map(gated_query, (q, q_place), self.gate(x, context))
            k, k_place = gated_key(k), gated_key(k_place)
        memory = EpisodicMemory(**remember(state, places=k_place, values=v, keys=k), coordinate=reached)
        return self.heads.merge(self._attend_both(q, q_place, memory, context)), memory

    def _attend_both(self, q: Tensor, q_place: Tensor, memory: EpisodicMemory, context: Context) -> Tensor:
        assert memory.keys is not None and memory.places is not None
        k, k_place = memory.keys, memory.places
        if context.recording is not None:  # both attentions and their product as matrices, for whoever looks inside
            a_x, a_p = q @ k.mT / self.heads.head_dim**0.5, q_place @ k_place.mT / self.heads.head_dim**0.5
            weights = self.heads.weights(a_x * a_p, context)
            context.note(attention=weights, attn_x=a_x, attn_p=a_p)
        scale = 1 / (self.heads.head_dim * self.options.attn_temperature)
        q, visibility = self.heads.sharpened(q, context), context.visibility(self.options.self_key)
        return conjunctive_attention(q, k, q_place, k_place, memory.values, scale, visibility)

    def reference(self, x: Tensor, context: Context) -> Tensor:
        """The conjunctive code itself: queries and keys are vec(q ⊗ p) in D² dimensions (sec. 3.2)."""
        *qk, v = self.heads.split(x)
        if self.options.attend == "o":
            q, k = qk
        else:
            rotations, *_ = self.path(x, None, context)
            q, k = self.places(rotations)
            if self.gate is not None:
                return self._gated_reference(x, qk, (q, k), v, context)
            if self.options.attend == "os":
                q, k = (torch.einsum("bhli,bhlj->bhlij", what, where).flatten(-2) for what, where in zip(qk, (q, k)))
        # 1/√D for each factor, which is 1/√(D²) for the conjunction.
        logits = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        return self.heads.merge(self.heads.weights(logits, context) @ v)

    def _gated_reference(
        self, x: Tensor, what: Sequence[Tensor], where: Sequence[Tensor], v: Tensor, context: Context
    ) -> Tensor:
        """(b_X A_X + 1 − b_X) ⊙ (b_P A_P + 1 − b_P), written out."""
        assert self.gate is not None
        a_x, a_p = (q @ k.mT / self.heads.head_dim**0.5 for q, k in (what, where))
        b_x, b_p = self.gate(x, context)
        logits = (b_x * a_x + 1 - b_x) * (b_p * a_p + 1 - b_p)
        return self.heads.merge(self.heads.weights(logits, context) @ v)
