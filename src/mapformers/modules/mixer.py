"""A token mixer: the part of a layer that looks along the sequence, usable alone in anyone's model (`mf.layers`)."""

import dataclasses
import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, overload

import torch
from torch import Tensor, nn

from mapformers.config import from_dict, require_choices
from mapformers.errors import describe, require, require_finite
from mapformers.modules.context import EMPTY_PAST, Context, StreamState


@dataclass(frozen=True)
class LayerShape:
    """The sizes all layers of one stack share, and which layers follow this one."""

    d_model: int = 64
    n_heads: int = 1
    head_dim: int = 64
    mlp_ratio: int = 4
    n_layers: int = 1
    later: tuple[str, ...] = ()  # names of the layers that come after this one


@dataclass(frozen=True)
class LayerOptions:
    """Base of every layer's options: a frozen dataclass whose checks need no model yet."""

    def __post_init__(self) -> None:
        require_finite(self)
        require_choices(self)

    def check_vocabulary(self, vocab_size: int) -> None:
        """Refuse options that do not fit a model of ``vocab_size`` tokens; most layers do not care."""


def head_size(d_model: int, n_heads: int, head_dim: int | None) -> int:
    """``head_dim``, or an equal share of d_model for each head."""
    for name, value in (("d_model", d_model), ("n_heads", n_heads), ("head_dim", head_dim)):
        if value is not None:
            require_size(name, value)
    if head_dim is not None:
        return head_dim
    require(
        d_model % n_heads == 0,
        f"d_model {d_model} cannot be divided into {n_heads} heads; change either, or give head_dim.",
    )
    return d_model // n_heads


def require_size(name: str, value: Any) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    require(whole, f"{name} must be a whole number, not {value!r}.")
    require(value >= 1, f"{name} must be at least 1, not {value}.")


def with_options(init: Any, options: type[LayerOptions]) -> inspect.Signature:
    """The signature of a layer's class: the arguments of ``init``, and its options as the arguments they are."""
    own = [p for p in inspect.signature(init).parameters.values() if p.name not in ("self", "options")]
    named = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type)
        for f in dataclasses.fields(options)
    ]
    return inspect.Signature([*own, *named])


AnyMixer = TypeVar("AnyMixer", bound="Mixer")


class Mixer(nn.Module, ABC):
    """Activations (B, L, d_model) in, mixed activations (B, L, d_model) out; no norm, residual or MLP of its own.

    ``d_model``   width of the activations.
    ``n_heads``   heads, each with a map (or a state) of its own.
    ``head_dim``  size of a head; d_model / n_heads unless given.
    ``n_layers``  how many layers add to the same residual stream: what is added starts smaller the more there are.
    ``causal``    False: a token also sees later ones, where the layer can (`reads_both_ways`).
    ``options``   those of the class `Options`, by name.

    A subclass builds its parameters after ``super().__init__(…)`` and has `mix` and `reference`.
    """

    Options: ClassVar[type[LayerOptions]] = LayerOptions
    reads_both_ways: ClassVar[bool] = False
    options: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """``help(MapWM)`` shows the options as the arguments they are."""
        super().__init_subclass__(**kwargs)
        cls.__signature__ = with_options(Mixer.__init__, cls.Options)  # type: ignore[attr-defined]

    def __init__(
        self,
        d_model: int,
        n_heads: int = 1,
        *,
        head_dim: int | None = None,
        n_layers: int = 1,
        causal: bool = True,
        **options: Any,
    ):
        super().__init__()
        size = head_size(d_model, n_heads, head_dim)
        self.shape = LayerShape(d_model, n_heads, size, n_layers=n_layers)
        self.options = from_dict(self.Options, options, f"option of {type(self).__name__}")
        require_size("n_layers", n_layers)
        require(isinstance(causal, bool), f"causal must be True or False, not {causal!r}.")
        self.causal = causal
        require(
            causal or self.reads_both_ways,
            f"{type(self).__name__} reads in one direction only; leave out causal=False.",
        )

    @classmethod
    def of_shape(cls: type[AnyMixer], shape: LayerShape, options: LayerOptions) -> AnyMixer:
        """The mixer of one layer of a decoder."""
        return cls(shape.d_model, shape.n_heads, head_dim=shape.head_dim, n_layers=shape.n_layers, **vars(options))

    @abstractmethod
    def mix(self, x: Tensor, state: Any, context: Context) -> tuple[Tensor, Any]:
        """The fast path: (B, L, d_model) and what this layer remembers -> the same, as a decoder calls it."""

    @abstractmethod
    def reference(self, x: Tensor, context: Context) -> Tensor:
        """The same by its definition, slow and obviously right: what `mix` must equal."""

    @overload
    def forward(
        self,
        x: Tensor,
        *,
        state: StreamState | None = None,
        reset: Tensor | None = None,
        padding_mask: Tensor | None = None,
        tokens: Tensor | None = None,
        return_state: Literal[False] = False,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        x: Tensor,
        *,
        state: StreamState | None = None,
        reset: Tensor | None = None,
        padding_mask: Tensor | None = None,
        tokens: Tensor | None = None,
        return_state: Literal[True],
    ) -> tuple[Tensor, StreamState]: ...

    def forward(
        self,
        x: Tensor,
        *,
        state: Any = None,
        reset: Tensor | None = None,
        padding_mask: Tensor | None = None,
        tokens: Tensor | None = None,
        return_state: bool = False,
        context: Context | None = None,
    ) -> Any:
        """(B, L, d_model) -> (B, L, d_model), and the state to go on from if asked for.

        ``state``         what an earlier call returned; these tokens then follow those.
        ``reset``         (B, L) bool: a new document, hence a new map, starts at this token.
        ``padding_mask``  (B, L) bool: True where the token is real.
        ``tokens``        (B, L) ids, for the one layer that is told which tokens act (`tem-t`).
        """
        if context is not None:  # a decoder calls, which keeps the past of all its layers: see `mix`
            context.require_past_of(state)
            y, memory = self.mix(x, state, context)
            return y, memory if context.keeps_state else None
        past = check_call(self, x, state, return_state)
        settings = {"reset": reset, "padding_mask": padding_mask, "tokens": tokens, "causal": self.causal}
        context = Context.of(x, past=past, **settings)
        memory = None if state is None else state.layers[0]
        context.require_past_of(memory)
        y, memory = self.mix(x, memory, context)
        if not return_state:
            return y
        return y, StreamState(context.extended_past(), (memory,), x.shape[0], self.identity)

    if TYPE_CHECKING:
        __call__ = forward

    @property
    def identity(self) -> Any:
        """What a state must have been made by to be continued here."""
        return type(self).__name__, self.shape, self.options


def check_call(layer: Any, x: Tensor, state: StreamState | None, return_state: bool) -> Any:
    """The past of a layer's call, once what it is given has been checked."""
    if not torch.compiler.is_compiling():
        width = layer.shape.d_model
        fits = isinstance(x, Tensor) and x.dim() == 3 and x.shape[-1] == width and x.is_floating_point()
        require(fits, f"x must be activations of shape (batch, length, {width}), not {describe(x)}.")
        require(x.shape[1] > 0, "x must hold at least one token.")
        both_ways = "A layer that reads both ways has no state to go on from; read the whole sequence at once."
        require(layer.causal or (state is None and not return_state), both_ways)
        if state is not None:
            given = isinstance(state, StreamState)
            require(given, f"state must be what this layer returned with return_state=True, not {describe(state)}.")
            state.require_fit(x.shape[0], layer.identity)
    return EMPTY_PAST if state is None else state.past
