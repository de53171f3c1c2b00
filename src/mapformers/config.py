"""One config language: frozen dataclasses, spoken alike by Python, the command line and run folders."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from mapformers.errors import UserError, require, unknown
from mapformers.mixers import LAYERS

Config = TypeVar("Config")


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

    def __post_init__(self) -> None:
        for name in ("vocab_size", "d_model", "n_heads", "mlp_ratio"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}.")
        require(len(self.layers) >= 1, "A model needs at least one layer; give n_layers of 1 or more.")
        if self.head_dim is None:
            require(
                self.d_model % self.n_heads == 0,
                f"d_model {self.d_model} cannot be divided into {self.n_heads} heads; change either, or give head_dim.",
            )
        else:
            require(self.head_dim >= 1, f"head_dim must be at least 1, not {self.head_dim}.")
        for layer in self.layers:
            beyond = [token for token in getattr(layer.options, "action_ids", ()) if token >= self.vocab_size]
            require(not beyond, f"action_ids names tokens {beyond}; the model knows 0 to {self.vocab_size - 1}.")

    @property
    def head_size(self) -> int:
        return self.head_dim if self.head_dim is not None else self.d_model // self.n_heads

    def to_dict(self) -> dict[str, Any]:
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return plain | {"layers": [layer.to_dict() for layer in self.layers]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ModelConfig":
        layers = tuple(layer_config(layer["name"], layer["options"]) for layer in data["layers"])
        return from_dict(cls, {**data, "layers": layers})


def layer_config(name: str, options: Mapping[str, Any]) -> LayerConfig:
    """A layer by name, its options checked against the mixer's own dataclass."""
    return LayerConfig(name, from_dict(LAYERS[name].options, options, kind=f"option of {name!r}"))


def to_dict(config: Any) -> dict[str, Any]:
    """A config dataclass as plain JSON-ready data."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(config).items()}


def from_dict(cls: type[Config], data: Mapping[str, Any], kind: str = "setting") -> Config:
    """Build a config dataclass from plain data; unknown names and wrong types are refused in one sentence."""
    require(isinstance(data, Mapping), f"Settings are given by name, not as {type(data).__name__}.")
    hints = typing.get_type_hints(cls)
    data = dict(data)
    for name, value in data.items():
        if name not in hints:
            raise unknown(kind, name, hints)
        if typing.get_origin(hints[name]) is tuple and isinstance(value, list):
            data[name] = value = tuple(value)  # JSON has no tuples
        if not _fits(value, hints[name]):
            raise UserError(f"{name} must be {_spell(hints[name])}, not {value!r}.")
    return cls(**data)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the annotated type; an int passes for a float, a bool never for a number."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, option) for option in typing.get_args(hint))
    if origin is typing.Literal:
        return value in typing.get_args(hint)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(element, typing.get_args(hint)[0]) for element in value)
    if origin is not None or not isinstance(hint, type):
        return True
    return isinstance(value, hint)


def _spell(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return "one of " + ", ".join(map(str, typing.get_args(hint)))
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join("nothing" if t is type(None) else _spell(t) for t in typing.get_args(hint))
    if hint == tuple[int, ...]:
        return "a list of whole numbers"
    return names.get(hint, str(hint))
