"""One config language: frozen dataclasses, the same for Python, the command line and run folders."""

import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from mapformers.errors import UserError, require, unknown

Config = TypeVar("Config")


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


def require_choices(config: Any) -> None:
    """Refuse a value that is not among the words its field allows; for configs that Python code builds directly."""
    for name, hint in typing.get_type_hints(type(config)).items():
        if typing.get_origin(hint) is typing.Literal and name in vars(config):
            value = getattr(config, name)
            require(_fits(value, hint), f"{name} must be {_spell(hint)}, not {value!r}.")


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
