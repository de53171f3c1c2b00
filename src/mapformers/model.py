"""The decoder and its config: embedding, layers, head. A hybrid is a list of layers; a stream hands a state along."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mapformers.config import from_dict, to_dict
from mapformers.errors import describe, require, unknown
from mapformers.modes import in_eval_mode
from mapformers.modules.context import EMPTY_PAST, Context, StreamState, map_tensors
from mapformers.modules.layer import LAYERS, RMSNorm, linear
from mapformers.modules.mixer import LayerShape, head_size, require_size
from mapformers.modules.observables import Observed

LayerSpec = str | tuple[str, Mapping[str, Any]]
SIZES = ("d_model", "n_heads", "head_dim", "mlp_ratio", "tie_head")  # and what else is of the decoder, not of a layer


@dataclass(frozen=True)
class LayerConfig:
    """One layer: a registered name and its options (checked, defaults filled in)."""

    name: str
    options: Any

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "options": to_dict(self.options)}


@dataclass(frozen=True)
class ModelConfig:
    """A decoder: its sizes and its stack of layers."""

    vocab_size: int
    layers: tuple[LayerConfig, ...]
    d_model: int = 64
    n_heads: int = 1
    head_dim: int | None = None
    """Size of a head; d_model / n_heads unless given."""
    mlp_ratio: int = 4
    tie_head: bool = False
    """Whether one matrix is both embedding and head."""

    def __post_init__(self) -> None:
        for name in ("vocab_size", "d_model", "n_heads", "mlp_ratio"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}.")
        require(len(self.layers) >= 1, "A model needs at least one layer; give n_layers of 1 or more.")
        _ = self.head_size  # checks that the heads fit
        for layer in self.layers:
            layer.options.check_vocabulary(self.vocab_size)

    @property
    def head_size(self) -> int:
        return head_size(self.d_model, self.n_heads, self.head_dim)

    def layer_shapes(self) -> list[LayerShape]:
        """What every layer of the stack is built with."""
        names = tuple(layer.name for layer in self.layers)
        sizes = (self.d_model, self.n_heads, self.head_size, self.mlp_ratio, len(names))
        return [LayerShape(*sizes, later=names[index + 1 :]) for index in range(len(names))]

    def to_dict(self) -> dict[str, Any]:
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return plain | {"layers": [layer.to_dict() for layer in self.layers]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ModelConfig":
        layers = tuple(layer_config(layer["name"], layer["options"]) for layer in data["layers"])
        return from_dict(cls, {**data, "layers": layers})


def layer_config(name: str, options: Mapping[str, Any]) -> LayerConfig:
    """A layer by name, its options checked against the layer's own dataclass."""
    return LayerConfig(name, from_dict(LAYERS[name].options, options, kind=f"option of {name!r}"))


def model_config(
    name: str | None = None,
    *,
    vocab_size: int,
    n_layers: int | None = None,
    layers: Sequence[LayerSpec] | None = None,
    **settings: Any,
) -> ModelConfig:
    """The checked config that `build_model` builds from."""
    require((name is None) != (layers is None), "Give either a model's name or a list of layers.")
    require(
        layers is None or isinstance(layers, list | tuple),
        f"layers must be a list of names or (name, options), not {layers!r}.",
    )
    require(name is None or isinstance(name, str), f"A model is named by a word, not {name!r}; a hybrid is layers=[…].")
    sizes = {key: settings.pop(key) for key in SIZES if key in settings}
    if name is not None:
        options = LAYERS[name].options
        known = {field.name for field in dataclasses.fields(options)}
        for key in settings:
            if key not in known:
                raise unknown(f"option of model {name!r}", key, known | set(SIZES) | {"n_layers"})
        n_layers = 1 if n_layers is None else n_layers
        whole = isinstance(n_layers, int) and not isinstance(n_layers, bool)
        require(whole and n_layers >= 1, f"n_layers must be a whole number of at least 1, not {n_layers!r}.")
        stack = (layer_config(name, settings),) * n_layers
    else:
        assert layers is not None
        require(
            n_layers is None or n_layers == len(layers), f"layers lists {len(layers)} layers, n_layers says {n_layers}."
        )
        require(not settings, f"With a list of layers, give options per layer: ('mapwm', {settings!r}).")
        stack = tuple(layer_config(*layer_spec(spec)) for spec in layers)
    return from_dict(ModelConfig, {"vocab_size": vocab_size, "layers": stack, **sizes})


def suggested_settings(name: str, suggestions: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a task's suggestions (sizes, rank, base, …) that a model has a use for."""
    known = {field.name for field in dataclasses.fields(LAYERS[name].options)} | set(SIZES) | {"n_layers"}
    return {key: value for key, value in suggestions.items() if key in known}


def layer_spec(spec: LayerSpec) -> tuple[str, Mapping[str, Any]]:
    """A layer of a hybrid as its name and options."""
    if isinstance(spec, str):
        return spec, {}
    pair = isinstance(spec, tuple | list) and len(spec) == 2 and isinstance(spec[1], Mapping)
    require(pair, f"A layer is a name or (name, options), not {spec!r}.")
    return spec[0], spec[1]


EMBEDDING_STD = 0.3
CallLayer = Callable[..., tuple[Tensor, Any, Any]]


class TiedHead(nn.Module):
    """Logits by the matrix of the embedding, which alone keeps it: a state dict has it once.

    The matrix is scaled as the untied head starts. A token whose own embedding comes out as it went in would then have
    a logit of √d, so the norm before (`start`) starts with gains of 1/√d: all logits are near 0, and the loss
    starts at ln V.
    """

    def __init__(self, embedding: nn.Embedding):
        super().__init__()
        self._embedding = (embedding,)  # in a tuple, so that it is no part of this module

    @staticmethod
    def start(norm: RMSNorm) -> None:
        nn.init.constant_(norm.gain, 1 / math.sqrt(len(norm.gain)))

    def forward(self, x: Tensor) -> Tensor:
        weight = self._embedding[0].weight
        return nn.functional.linear(x / (EMBEDDING_STD * math.sqrt(weight.shape[1])), weight)


class Decoder(nn.Module):
    """tokens → embedding → layers → norm → head → logits.

    ``streams``: it takes and returns a state, so a task can also score it when it reads its own predictions.
    ``checkpoint_activations``: in training each layer keeps only its input, and recomputes the rest in the
    backward pass: the same loss and gradients for less memory and a third more time.
    """

    streams = True
    checkpoint_activations = False

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        nn.init.normal_(self.embedding.weight, std=EMBEDDING_STD)
        self.layers = nn.ModuleList(
            LAYERS[layer.name].build(shape, layer.options) for layer, shape in zip(config.layers, config.layer_shapes())
        )
        self.norm = RMSNorm(config.d_model)
        if config.tie_head:
            self.head: nn.Module = TiedHead(self.embedding)
            TiedHead.start(self.norm)
            return
        head = self.head = linear(config.d_model, config.vocab_size)
        with torch.no_grad():  # equal at the start, free afterwards: a copied token is at once a predicted one
            head.weight.copy_(self.embedding.weight / (EMBEDDING_STD * math.sqrt(config.d_model)))

    @overload
    def forward(
        self,
        tokens: Tensor,
        *,
        reset: Tensor | None = None,
        padding_mask: Tensor | None = None,
        state: StreamState | None = None,
        return_state: Literal[False] = False,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        tokens: Tensor,
        *,
        reset: Tensor | None = None,
        padding_mask: Tensor | None = None,
        state: StreamState | None = None,
        return_state: Literal[True],
    ) -> tuple[Tensor, StreamState]: ...

    def forward(
        self,
        tokens: Tensor,
        *,
        reset: Tensor | None = None,
        padding_mask: Tensor | None = None,
        state: StreamState | None = None,
        return_state: bool = False,
    ) -> Tensor | tuple[Tensor, StreamState]:
        """(B, L) int64 -> logits (B, L, vocab), and the state to go on from if asked for.

        ``reset`` (B, L) bool: a new document, hence a new map, starts at this token.
        ``padding_mask`` (B, L) bool: True where the token is real.
        ``state``: what an earlier call returned; these tokens then follow those.
        """
        context = self._context(tokens, reset, padding_mask, state, keeps_state=return_state)
        state = state if context.past.length else None
        x, layer_states, _ = self.read(self.embedding(tokens), context, state)
        logits = self.head(x)
        if not return_state:
            return logits
        return logits, self.state_after(context, layer_states)

    @torch.no_grad()
    def observe(
        self,
        tokens: Tensor,
        *,
        reset: Tensor | None = None,
        padding_mask: Tensor | None = None,
        state: StreamState | None = None,
        movement_scale: Tensor | None = None,
        temperature: float | None = None,
    ) -> Observed:
        """Look inside: for each layer, those of `OBSERVABLES` that it has.

        ``.logits`` is what the model answered, and ``.state`` what to go on from: ``observe(more, state=seen.state)``.

        One can also intervene: ``movement_scale`` (B, L) multiplies the movement Δ_in of every token, ``temperature``
        divides all attention logits, and a state may hide tokens (`StreamState.hiding`).
        """
        with in_eval_mode(self):
            context = self._context(tokens, reset, padding_mask, state, keeps_state=True)
            context.movement_scale, context.temperature = movement_scale, temperature
            state = state if context.past.length else None
            x, layer_states, notes = self.read(self.embedding(tokens), context, state, record=True)
            return Observed(notes, self.head(x), self.state_after(context, layer_states))

    def _context(
        self,
        tokens: Tensor,
        reset: Tensor | None,
        padding_mask: Tensor | None,
        state: StreamState | None,
        keeps_state: bool = False,
    ) -> Context:
        self._check_tokens(tokens, state)
        past = EMPTY_PAST if state is None else state.past
        return Context.of(tokens, reset=reset, padding_mask=padding_mask, past=past, keeps_state=keeps_state)

    @torch.no_grad()
    def empty_state(self, batch_size: int = 1) -> StreamState:
        """The state before the first token: as good as None, but with every tensor that a later state has.

        Padding moves nothing and is never seen. So this is the state after some padding, less what is remembered of
        the padding itself: along whatever dimension a tensor grows from token to token, it is empty.
        """
        require_size("batch_size", batch_size)
        shorter, longer = (self._read_padding(batch_size, length) for length in (1, 2))
        return StreamState(EMPTY_PAST, map_tensors(_before_all, shorter, longer), batch_size, self.config)

    def _read_padding(self, batch_size: int, length: int) -> tuple[Any, ...]:
        tokens = torch.zeros(batch_size, length, dtype=torch.long, device=self.embedding.weight.device)
        nothing = torch.zeros_like(tokens, dtype=torch.bool)
        with in_eval_mode(self):
            return self(tokens, padding_mask=nothing, return_state=True)[1].layers

    def read(
        self,
        x: Tensor,
        context: Context,
        state: StreamState | None,
        record: bool = False,
        call: CallLayer | None = None,
    ) -> tuple[Tensor, tuple[Any, ...], list[dict[str, Tensor]]]:
        """Embedded tokens (B, L, d_model) through the layers and the last norm; layer by layer, its state and notes.

        ``call(layer, x, stream, state, context)`` stands in for ``layer(x, stream, state, context)``: for whoever looks
        at what passes from layer to layer, or computes it once more in the backward pass.
        """
        stream: Any = None
        layer_states, notes = [], []
        answer = call or (self._checkpointed if self.checkpoint_activations and self.training else _call)
        for index, layer in enumerate(self.layers):
            if record:
                context.recording = {}
                notes.append(context.recording)
            x, stream, layer_state = answer(layer, x, stream, None if state is None else state.layers[index], context)
            layer_states.append(layer_state)
        return self.norm(x), tuple(layer_states), notes

    def state_after(self, context: Context, layer_states: tuple[Any, ...]) -> StreamState:
        """The state to go on from, once `read` has read what the context tells of."""
        return StreamState(context.extended_past(), layer_states, context.batch_size, self.config)

    @staticmethod
    def _checkpointed(layer: nn.Module, *inputs: Any) -> Any:
        """What a layer answers; nothing is drawn at random in one, so no generator is put back."""
        return checkpoint(layer, *inputs, use_reentrant=False, preserve_rng_state=False)

    def _check_tokens(self, tokens: Tensor, state: StreamState | None) -> None:
        if torch.compiler.is_compiling():
            return
        require(
            isinstance(tokens, Tensor) and tokens.dim() == 2 and tokens.dtype in (torch.int64, torch.int32),
            f"tokens must be an int64 tensor of shape (batch, length), not {describe(tokens)}.",
        )
        require(tokens.numel() > 0, f"tokens must hold at least one token, not shape {tuple(tokens.shape)}.")
        if tokens.device.type == "cpu":  # elsewhere the look would stall the device
            low, high = (int(t) for t in tokens.aminmax())
            require(
                low >= 0 and high < len(self.embedding.weight),
                f"Token {low if low < 0 else high} is out of range: the model knows 0 to "
                f"{len(self.embedding.weight) - 1}.",
            )
        if state is not None:
            require(
                isinstance(state, StreamState), "The state is of another model; give the one that this model returned."
            )
            state.require_fit(tokens.shape[0], self.config)


def _before_all(shorter: Tensor, longer: Tensor) -> Tensor:
    """What a tensor was before the first token, from what it is after some padding and after some more."""
    for dim, (size, later_size) in enumerate(zip(shorter.shape, longer.shape)):
        if size != later_size:
            return shorter.narrow(dim, 0, 0).clone()
    return shorter.clone()


def _call(layer: nn.Module, *inputs: Any) -> Any:
    return layer(*inputs)


def build_model(
    name: str | None = None,
    *,
    vocab_size: int,
    n_layers: int | None = None,
    layers: Sequence[LayerSpec] | None = None,
    **settings: Any,
) -> Decoder:
    """A decoder by name, or a hybrid by a list of layers.

    Examples:
        >>> model = build_model("mapwm", vocab_size=21, d_model=64, n_layers=1, n_heads=1, rank=2)
        >>> hybrid = build_model(layers=["mapem", ("mapwm", {"rank": 4})], vocab_size=21, n_heads=2)

    ``settings`` are those of the decoder (d_model, n_heads, head_dim, mlp_ratio, tie_head) and, with ``name``, the
    layer's options.

    In a training loop of your own, models with a map need `mf.training.zero_mean_movement` in every step: without it
    some never find the map (docs/training.md). `mf.train` does it by itself.
    """
    return Decoder(model_config(name, vocab_size=vocab_size, n_layers=n_layers, layers=layers, **settings))
