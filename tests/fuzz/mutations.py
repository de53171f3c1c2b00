"""Files that were whole once: real ones, changed as hardware, editors and people change them."""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

ODD_TEXT = [
    "", " ", "null", "é", "\u2028", "\ud800", "\x00", "../..", "nan", "1e999", "-0", "x" * 3000, "mapwm", "{", "[]",
]  # fmt: skip
ODD_NUMBERS = [0, -1, 1, 2, 7, 2**31, 2**53 + 1, 2**63, 2**64, 10**30, 10**400, 0.5, -0.0, 1e-320, 1e308, 1e18]
RAW = ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "[" * 3000 + "]" * 3000, '{"a":' * 2000 + "1" + "}" * 2000]
odd_values = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(ODD_NUMBERS),
    st.sampled_from(ODD_TEXT),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from([[], {}, [[]], [1, 2], [None], {"a": 1}, {"": {}}, ["x"]]),
)


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value within nested lists and dicts."""
    found = [path]
    if isinstance(data, dict):
        found += [place for key, value in data.items() for place in places(value, (*path, key))]
    elif isinstance(data, list):
        found += [place for index, value in enumerate(data) for place in places(value, (*path, index))]
    return found


def at(data: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    """The data after ``change(container, key)`` was applied at a path."""
    for key in path[:-1]:
        data = data[key]
    change(data, path[-1])
    return data


@st.composite
def changed_values(draw: Any, text: str) -> bytes:
    """One to three values of a JSON text replaced, removed, doubled or renamed; or one of them raw, beyond JSON."""
    data = json.loads(text)
    marker, raw = "@@raw@@", None
    for _ in range(draw(st.integers(1, 3))):
        known = [path for path in places(data) if path]
        if not known:
            break
        path = draw(st.sampled_from(known))
        kind = draw(st.sampled_from(["replace", "replace", "replace", "remove", "rename", "raw", "double"]))
        value = marker if kind == "raw" else deepcopy(draw(odd_values))
        raw = draw(st.sampled_from(RAW)) if kind == "raw" else raw
        name = draw(st.sampled_from(["", "step", "ranks", "\ud800", "näme"]))

        def change(holder: Any, key: Any, kind: str = kind, value: Any = value, name: str = name) -> None:
            if kind == "remove":
                del holder[key]
            elif kind == "rename" and isinstance(holder, dict):
                holder[name] = holder.pop(key)
            elif kind == "double" and isinstance(holder, list):
                holder.insert(0, deepcopy(holder[key]))
            else:
                holder[key] = value

        at(data, path, change)
    written = json.dumps(data)
    return (written if raw is None else written.replace(f'"{marker}"', raw)).encode()


@st.composite
def damaged_bytes(draw: Any, content: bytes) -> bytes:
    """Bits flipped, the end cut off, a stretch of zeros or of noise, a part twice."""
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(changed) - 1)))
        kind = draw(st.sampled_from(["flip", "flip", "cut", "zeros", "noise", "twice", "byte order mark"]))
        if kind == "flip" and changed:
            changed[place] ^= 1 << draw(st.integers(0, 7))
        elif kind == "cut":
            del changed[place:]
        elif kind == "zeros":
            changed[place : place + 9] = bytes(9)
        elif kind == "noise":
            changed[place:place] = draw(st.binary(max_size=12))
        elif kind == "twice":
            changed[place:place] = changed[place : place + 40]
        elif kind == "byte order mark":
            changed[:0] = b"\xef\xbb\xbf"
    return bytes(changed)


def mutations(content: bytes) -> st.SearchStrategy[bytes]:
    """A JSON file, changed in its values or in its bytes."""
    return st.one_of(changed_values(content.decode()), damaged_bytes(content))


@st.composite
def mutated_lines(draw: Any, content: bytes) -> bytes:
    """A file of JSON lines: some lines changed, moved, doubled or left out; or its bytes damaged."""
    lines = content.splitlines()
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(lines) - 1)) if lines else 0
        kind = draw(st.sampled_from(["change", "change", "damage", "remove", "double", "swap"]))
        if not lines or kind == "remove":
            del lines[place : place + 1]
        elif kind == "change":
            try:
                lines[place] = draw(changed_values(lines[place].decode()))
            except (ValueError, RecursionError):  # it is broken already
                continue
        elif kind == "damage":
            lines[place] = draw(damaged_bytes(lines[place]))
        elif kind == "double":
            lines.insert(place, lines[place])
        else:
            lines[place], lines[-1] = lines[-1], lines[place]
    return b"\n".join(lines) + draw(st.sampled_from([b"\n", b""]))
