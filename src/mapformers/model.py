"""The decoder: embedding, layers, head. Hybrids are a list of layers; streaming is a state handed back and forth."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, overload

import torch
from torch import Tensor, nn

from mapformers.config import LayerConfig, ModelConfig, from_dict, layer_config
from mapformers.errors import describe, require, unknown
from mapformers.mixers import LAYERS, Context, LayerShape, Past
from mapformers.mixers.context import EMPTY_PAST
from mapformers.mixers.layer import RMSNorm, linear

EMBEDDING_STD = 0.3
LayerSpec = str | tuple[str, Mapping[str, Any]]


class DecoderState(NamedTuple):
    """All that must be kept to go on reading: the bookkeeping of past tokens and each layer's own state."""

    past: Past
    layers: tuple[Any, ...]
    batch_size: int
    made_by: ModelConfig


class Decoder(nn.Module):
    """tokens → embedding → layers → norm → head → logits."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        shape = LayerShape(config.d_model, config.n_heads, config.head_size, config.mlp_ratio, len(config.layers))
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        nn.init.normal_(self.embedding.weight, std=EMBEDDING_STD)
        names = [layer.name for layer in config.layers]
        self.layers = nn.ModuleList(
            LAYERS[name].build(dataclasses.replace(shape, is_last=name not in names[index + 1 :]), layer.options)
            for index, (name, layer) in enumerate(zip(names, config.layers))
        )
        self.norm = RMSNorm(config.d_model)
        self.head = linear(config.d_model, config.vocab_size)
        with torch.no_grad():  # equal at the start, free afterwards: a copied token is at once a predicted one
            self.head.weight.copy_(self.embedding.weight / (EMBEDDING_STD * math.sqrt(config.d_model)))

    @overload
    def forward(
        self,
        tokens: Tensor,
        *,
        reset: Tensor | None = None,
        padding_mask: Tensor | None = None,
        state: DecoderState | None = None,
        return_state: Literal[False] = False,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        tokens: Tensor,
        *,
        reset: Tensor | None = None,
        padding_mask: Tensor | None = None,
        state: DecoderState | None = None,
        return_state: Literal[True],
    ) -> tuple[Tensor, DecoderState]: ...

    def forward(
        self,
        tokens: Tensor,
        *,
        reset: Tensor | None = None,
        padding_mask: Tensor | None = None,
        state: DecoderState | None = None,
        return_state: bool = False,
    ) -> Tensor | tuple[Tensor, DecoderState]:
        """(B, L) int64 -> logits (B, L, vocab), and the state to go on from if asked for.

        ``reset`` (B, L) bool: a new document, hence a new map, starts at this token.
        ``padding_mask`` (B, L) bool: True where the token is real.
        ``state``: what an earlier call returned; these tokens then follow those.
        """
        logits, state, _ = self._run(tokens, reset, padding_mask, state, record=False)
        return (logits, state) if return_state else logits

    @torch.no_grad()
    def observe(
        self, tokens: Tensor, *, reset: Tensor | None = None, padding_mask: Tensor | None = None
    ) -> list[dict[str, Tensor]]:
        """Look inside: for each layer, what it noted under stable names.

        ``delta_in`` (B, L, H, r), ``coordinate`` (B, L, H, r), ``theta`` (B, H, L, n_b), ``values`` (B, H, L, D),
        ``attention``, ``attn_x``, ``attn_p`` (B, H, L, L), ``balance`` (B, H, L, 2), ``delta`` (B, L, E), ``place``
        (B, L, H, D): those the mixer has.
        """
        training = self.training
        self.eval()
        try:
            return self._run(tokens, reset, padding_mask, None, record=True)[2]
        finally:
            self.train(training)

    def _run(
        self,
        tokens: Tensor,
        reset: Tensor | None,
        padding_mask: Tensor | None,
        state: DecoderState | None,
        record: bool,
    ) -> tuple[Tensor, DecoderState, list[dict[str, Tensor]]]:
        self._check_tokens(tokens, state)
        past = EMPTY_PAST if state is None else state.past
        context = Context(tokens, reset, padding_mask, past)
        x = self.embedding(tokens)
        stream: Any = None
        layer_states, notes = [], []
        for index, layer in enumerate(self.layers):
            if record:
                context.recording = {}
                notes.append(context.recording)
            x, stream, layer_state = layer(x, stream, None if state is None else state.layers[index], context)
            layer_states.append(layer_state)
        new_state = DecoderState(context.extended_past(), tuple(layer_states), len(tokens), self.config)
        return self.head(self.norm(x)), new_state, notes

    def _check_tokens(self, tokens: Tensor, state: DecoderState | None) -> None:
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
                low >= 0 and high < self.config.vocab_size,
                f"Token {low if low < 0 else high} is out of range: the model knows 0 to {self.config.vocab_size - 1}.",
            )
        if state is not None:
            require(
                isinstance(state, DecoderState) and state.made_by == self.config,
                "The state is of another model; give the one that this model returned.",
            )
            require(
                state.batch_size == len(tokens),
                f"The state is of a batch of {state.batch_size}, the tokens are a batch of {len(tokens)}.",
            )


def build_model(
    name: str | None = None,
    *,
    vocab_size: int,
    n_layers: int | None = None,
    layers: Sequence[LayerSpec] | None = None,
    **settings: Any,
) -> Decoder:
    """A decoder by name, or a hybrid by a list of layers.

    >>> model = build_model("mapwm", vocab_size=21, d_model=64, n_layers=1, n_heads=1, rank=2)
    >>> hybrid = build_model(layers=["mapem", ("mapwm", {"rank": 4})], vocab_size=21, n_heads=2)

    ``settings`` are sizes (d_model, n_heads, head_dim, mlp_ratio) and, with ``name``, the mixer's options.
    """
    return Decoder(model_config(name, vocab_size=vocab_size, n_layers=n_layers, layers=layers, **settings))


SIZES = ("d_model", "n_heads", "head_dim", "mlp_ratio")


def model_config(
    name: str | None = None,
    *,
    vocab_size: int,
    n_layers: int | None = None,
    layers: Sequence[LayerSpec] | None = None,
    **settings: Any,
) -> ModelConfig:
    """The checked config that :func:`build_model` builds from."""
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
        stack = tuple(_layer_of(spec) for spec in layers)
    return from_dict(ModelConfig, {"vocab_size": vocab_size, "layers": stack, **sizes})


def suggested_settings(name: str, suggestions: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a task's suggestions (sizes, rank, base, …) that a model has a use for."""
    known = {field.name for field in dataclasses.fields(LAYERS[name].options)} | set(SIZES) | {"n_layers"}
    return {key: value for key, value in suggestions.items() if key in known}


def _layer_of(spec: LayerSpec) -> LayerConfig:
    if isinstance(spec, str):
        return layer_config(spec, {})
    pair = isinstance(spec, tuple) and len(spec) == 2 and isinstance(spec[1], Mapping)
    require(pair, f"A layer is a name or (name, options), not {spec!r}.")
    return layer_config(*spec)
