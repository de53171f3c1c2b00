"""The one exception a user is meant to read."""

import dataclasses
import difflib
import math
from collections.abc import Iterable
from typing import Any


class UserError(ValueError):
    """Wrong input: the message is one sentence that names the remedy.

    In Python it is a ``ValueError``; on the command line it becomes that sentence and exit code 2.
    """


def require(condition: bool, message: str) -> None:
    """Raise :class:`UserError` with ``message`` unless ``condition`` holds."""
    if not condition:
        raise UserError(message)


def require_finite(config: Any) -> None:
    """Refuse infinities and NaN in any number of a config dataclass."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, float):
            require(math.isfinite(value), f"{field.name} must be a finite number, not {value}.")


def describe(value: Any) -> str:
    """A tensor by its dtype and shape, anything else by its type."""
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else f"{value.dtype} of shape {tuple(shape)}"


def unknown(kind: str, name: object, known: Iterable[str], otherwise: str = "") -> UserError:
    """The error for a name that does not exist: the nearest one that does, or all there are and what else to try."""
    known = sorted(known)
    near = difflib.get_close_matches(str(name), known, n=1)
    if near:
        return UserError(f"There is no {kind} named {str(name)!r}; did you mean {near[0]!r}?")
    rest = f"; {otherwise}" if otherwise else ""
    return UserError(f"There is no {kind} named {str(name)!r}; choose one of: {', '.join(known)}{rest}.")
