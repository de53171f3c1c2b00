"""The exceptions a user is meant to read."""

import dataclasses
import difflib
import math
import re
from collections.abc import Iterable
from typing import Any


class UserError(ValueError):
    """Wrong input: the message is one sentence that names the remedy.

    In Python it is a ``ValueError``; on the command line it becomes that sentence and exit code 2.
    """


class Diverged(UserError):
    """A model whose answers are not finite numbers any more."""


def require(condition: bool, message: str) -> None:
    """Raise `UserError` with ``message`` unless ``condition`` holds."""
    if not condition:
        raise UserError(message)


def require_finite(config: Any) -> None:
    """Refuse infinities and NaN in any number of a config dataclass."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, float):
            require(math.isfinite(value), f"{field.name} must be a finite number, not {value}.")


# How torch (on a CPU and on devices) and numpy say that there is no memory left; the group is the size, if they tell.
NO_MEMORY = (
    r"can't allocate memory: you tried to allocate (\d+) bytes",
    r"not enough memory: you tried to allocate (\d+) bytes",
    r"out of memory.*?[Tt]ried to allocate ([\d.]+ \w+)",
    r"Unable to allocate ([\d.]+ \w+)",
    r"(?:CUDA|MPS|XPU|HIP)\b.*out of memory",
    r"Storage size calculation overflowed|numel: integer multiplication overflow",
)


def memory_asked_for(error: BaseException) -> str | None:
    """What was asked for when memory ran out: a size, or "more"; None if the error is another one."""
    for pattern in NO_MEMORY:
        found = re.search(pattern, str(error), re.DOTALL) if isinstance(error, MemoryError | RuntimeError) else None
        if found is not None:
            asked = found.group(1) if found.groups() else "more"
            return in_bytes(int(asked)) if asked.isdecimal() else asked
    return "more" if isinstance(error, MemoryError) else None


def in_bytes(size: int) -> str:
    """1536 -> 1.5 KiB."""
    power = min(6, max(0, size.bit_length() - 1) // 10)
    return f"{size / 1024**power:.1f} {'KMGTPE'[power - 1]}iB" if power else f"{size} bytes"


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
