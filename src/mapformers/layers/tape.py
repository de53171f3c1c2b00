"""`tape`: rotary attention whose rotations each layer updates for the next (Zhu 2025); the first is RoPE.

Beside x runs a stream E = (C, S): the cosine and sine that turn a token's queries and keys, of every head. It begins as
RoPE's and each layer updates it from what the token attended to and from the output of its MLP, linearly in E. So it
stays equivariant: to shift all indices is to turn all of E, which no logit sees. The authors keep C and S at the size
of a head, with two equal halves that every update treats the same; here E is one half of each, [C | S], as
wide as a head.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from mapformers.config import from_dict
from mapformers.errors import describe, require
from mapformers.layers.rope import RoPE, RoPEOptions
from mapformers.modules.attention import check_even_heads, remember
from mapformers.modules.context import Context, StreamState
from mapformers.modules.layer import RMSNorm, linear, register_layer
from mapformers.modules.mixer import LayerShape, check_call, head_size, require_size, with_options

POSITIONS_PER_HEAD = 4  # P / H
AUTHORS_STD = 0.02  # of every matrix of theirs that does not start at zero


@dataclass(frozen=True)
class TAPEOptions(RoPEOptions):
    """RoPE's: they say where the stream begins."""


class TAPEMemory(NamedTuple):
    keys: Tensor  # (B, H, S, D) turned by their own E
    values: Tensor  # (B, H, S, D)
    positions: Tensor | None = None  # (B, H, S, D) E as this layer got it; not kept if it is not updated
    coordinate: Tensor | None = None  # (B, 1, 1) float64, the index reached; kept where the stream begins


class TAPEAttention(RoPE):
    """Rotary attention by E. From the beginning of the stream it is RoPE, whose reference is therefore its own."""

    Options = TAPEOptions
    options: TAPEOptions
    averages = False

    def read(
        self, x: Tensor, stream: Tensor | None, state: TAPEMemory | None, context: Context
    ) -> tuple[Tensor, Tensor, Tensor | None, TAPEMemory]:
        """Attention's output (B, L, d_model), E as it was read, its average A E (None if not wanted), the memory."""
        q, k, v = self.heads.split(x, context)
        if state is not None:
            together = (state.coordinate is not None) == (stream is None)
            require(together, "Hand a TAPE layer both its state and, unless it is the first, the stream it is given.")
        position, reached = self._begin(x, state, context) if stream is None else (stream, None)
        fits = position.dim() == 4 and position.shape[2:] == q.shape[2:]
        require(fits, f"stream must be what the TAPE layer before returned, not {describe(position)}.")
        q, k = turn(position, q, k)
        position = position.expand(q.shape)
        here = {"keys": k, "values": v} | ({"positions": position.to(v.dtype)} if self.averages else {})
        memory = TAPEMemory(**remember(state, **here), coordinate=reached)
        if stream is not None and context.recording is not None:
            cos, sin = position.chunk(2, dim=-1)
            context.note(theta=torch.atan2(sin, cos))
        averaged = None
        if memory.positions is not None:
            averaged = self.heads.attend(q, memory.keys, memory.positions, context)
        mixed = self.heads.attend(q, memory.keys, memory.values, context)
        return self.heads.merge(mixed), position, averaged, memory

    def mix(self, x: Tensor, state: Any, context: Context) -> tuple[Tensor, Any]:
        """The same at the beginning of the stream."""
        mixed, _, _, memory = self.read(x, None, state, context)
        return mixed, memory

    def _begin(self, x: Tensor, state: TAPEMemory | None, context: Context) -> tuple[Tensor, Tensor]:
        """E of each token's index in its document, (B or 1, 1, L, D), and the index reached."""
        theta, reached = self.angles(x, None if state is None else state.coordinate, context)
        return torch.cat((theta.cos(), theta.sin()), dim=-1), reached


def turn(position: Tensor, *vectors: Tensor) -> tuple[Tensor, ...]:
    """x ⊙ C + (−x₂, x₁) ⊙ S, in the precision of E. Unlike an angle, E may also stretch."""
    cos, sin = position.chunk(2, dim=-1)
    halves = [x.to(position.dtype).chunk(2, dim=-1) for x in vectors]
    turned = (torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1) for a, b in halves)
    return tuple(y.to(x.dtype) for x, y in zip(vectors, turned))


class PositionUpdate(nn.Module):
    """E ← E + s ⊙ (A E), then E ← E + D (SiLU(W_x m) ⊙ (U E)): s one number per head, U and D across the heads.

    s and U start at zero, so that E starts as RoPE's in every layer.
    # paper: s is the row sum of an H×H matrix (the authors' code); here: the sum itself
    """

    def __init__(self, shape: LayerShape):
        super().__init__()
        size = POSITIONS_PER_HEAD * shape.n_heads
        self.share = nn.Parameter(torch.zeros(shape.n_heads))  # s
        self.up = nn.Parameter(torch.zeros(size, shape.n_heads))  # U
        self.down = nn.Parameter(AUTHORS_STD * torch.randn(shape.n_heads, size))  # D
        self.gate = nn.Linear(shape.d_model, size, bias=False)  # W_x
        nn.init.normal_(self.gate.weight, std=AUTHORS_STD)

    def forward(self, position: Tensor, averaged: Tensor, written: Tensor) -> Tensor:
        """``position`` and its average (B, H, L, D), ``written`` m (B, L, d_model): the next layer's E."""
        position = position + self.share[:, None, None] * averaged
        # D diag(gate) U first: an H×H matrix per token, and no E of size P for each.
        n_heads = len(self.share)
        pairs = (self.down.mT.unsqueeze(2) * self.up.unsqueeze(1)).flatten(1)  # (P, H·H)
        across = (silu(self.gate(written)) @ pairs).unflatten(-1, (n_heads, n_heads))  # (B, L, H, H)
        return position + (across.to(position.dtype) @ position.transpose(1, 2)).transpose(1, 2)


class SwiGLU(nn.Module):
    """The authors' MLP, as wide as others' and gated, hence with half as many weights again."""

    def __init__(self, shape: LayerShape):
        super().__init__()
        hidden = shape.mlp_ratio * shape.d_model
        self.up = linear(shape.d_model, 2 * hidden)  # the gate, then what it gates
        self.down = linear(hidden, shape.d_model, residual_of=shape)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.up(x).chunk(2, dim=-1)
        return self.down(silu(gate) * value)


class TAPELayer(nn.Module):
    """x ← x + W_o(A V); m = MLP(norm(x)); E ← update(E, A E, m); x ← x + m.

    A stream of None begins here, at the token's index; other layers hand the stream on, so TAPE layers of a hybrid
    continue each other. E matters only to the next TAPE layer, so the last of them builds no update, and a model of one
    layer is RoPE with a gated MLP.
    """

    owns_stream = True

    def __init__(self, shape: LayerShape, options: TAPEOptions):
        super().__init__()
        check_even_heads(shape, "tape")
        self.update = PositionUpdate(shape) if "tape" in shape.later else None
        self.norm_mixer = RMSNorm(shape.d_model)
        self.mixer = TAPEAttention.of_shape(shape, options)
        self.mixer.averages = self.update is not None
        self.norm_mlp = RMSNorm(shape.d_model)
        self.mlp = SwiGLU(shape)

    def forward(
        self, x: Tensor, stream: Tensor | None, state: TAPEMemory | None, context: Context
    ) -> tuple[Tensor, Tensor | None, TAPEMemory | None]:
        context.require_past_of(state)
        mixed, position, averaged, state = self.mixer.read(self.norm_mixer(x), stream, state, context)
        x = x + mixed
        written = self.mlp(self.norm_mlp(x))
        if self.update is not None:
            stream = self.update(position, averaged, written)
        return x + written, stream, state if context.keeps_state else None


class TAPE(TAPELayer):
    """A whole layer for one's own model: norm, attention, norm and MLP, since its update reads the MLP's output.

    ``last``  whether no TAPE layer follows: then nothing would read an update, and none is built.

    Examples:
        >>> first, second = TAPE(64, 4), TAPE(64, 4, last=True)
        >>> x, stream = first(torch.randn(2, 10, 64), return_stream=True)
        >>> y = second(x, stream=stream)
    """

    Options = TAPEOptions
    causal = True

    def __init__(
        self,
        d_model: int,
        n_heads: int = 1,
        *,
        head_dim: int | None = None,
        n_layers: int = 1,
        mlp_ratio: int = 4,
        last: bool = False,
        **options: Any,
    ):
        for name, value in (("n_layers", n_layers), ("mlp_ratio", mlp_ratio)):
            require_size(name, value)
        size = head_size(d_model, n_heads, head_dim)
        self_options = from_dict(TAPEOptions, options, "option of TAPE")
        shape = LayerShape(d_model, n_heads, size, mlp_ratio, n_layers, later=() if last else ("tape",))
        super().__init__(shape, self_options)
        self.shape, self.options = shape, self_options

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        *,
        stream: Tensor | None = None,
        state: StreamState | None = None,
        reset: Tensor | None = None,
        padding_mask: Tensor | None = None,
        tokens: Tensor | None = None,
        return_state: bool = False,
        return_stream: bool = False,
    ) -> Any:
        """(B, L, d_model) -> (B, L, d_model), then the state, then the stream for the next TAPE layer, if asked for."""
        past = check_call(self, x, state, return_state)
        context = Context.of(x, past=past, reset=reset, padding_mask=padding_mask, tokens=tokens)
        y, stream, memory = super().forward(x, stream, None if state is None else state.layers[0], context)
        made = (StreamState(context.extended_past(), (memory,), x.shape[0], self.identity),) if return_state else ()
        streams = (stream,) if return_stream else ()
        return (y, *made, *streams) if return_state or return_stream else y

    @property
    def identity(self) -> Any:
        return "TAPE", self.shape, self.options


TAPE.__signature__ = with_options(TAPE.__init__, TAPEOptions)  # type: ignore[attr-defined]

register_layer(
    "tape",
    TAPE,
    build=TAPELayer,
    variants=(
        {},
        {"self_key": False},
        {"rope_base": 500.0, "attn_temperature": 0.5},
        {"length_scaling": "log", "typical_length": 6, "init": "ordinary"},
    ),
)
