"""A model that is read by hand: it keeps the state after every reading, so one more token costs one step."""

import dataclasses
import threading
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from mapformers.errors import require
from mapformers.model import Decoder
from mapformers.modules.context import StreamState

MAX_TOKENS = 20_000  # of one reading: a walk of 5000 steps and back
CHUNK = 256  # tokens that are read at once, which bounds the memory of recorded attention
LARGE_VOCABULARY, LIKELIEST = 2048, 64
DIGITS = 5  # of what is sent: a pixel needs no more
PER_TOKEN = ("delta_in", "coordinate", "delta", "place")  # (B, L, …) of a layer's observables
PER_HEAD = ("theta",)  # (B, H, L, …)


@dataclasses.dataclass(frozen=True)
class ReadRequest:
    """What is asked of a model.

    ``tokens``       all that it reads, from the first.
    ``start``        the first token of which the answer shall tell; earlier ones were told before.
    ``hidden``       positions whose keys no later token sees.
    ``still``        tokens whose movement on the map is taken to be zero.
    ``temperature``  what divides the logits of attention, besides the model's own.
    ``attention``    whether attention is told.
    """

    tokens: tuple[int, ...]
    start: int = 0
    hidden: frozenset[int] = frozenset()
    still: frozenset[int] = frozenset()
    temperature: float = 1.0
    attention: bool = True

    def __post_init__(self) -> None:
        require(1 <= len(self.tokens) <= MAX_TOKENS, f"A reading has 1 to {MAX_TOKENS} tokens, not {len(self.tokens)}.")
        require(0 <= self.start < len(self.tokens), f"start must lie within the tokens, but is {self.start}.")
        require(0.01 <= self.temperature <= 100, f"temperature must lie in 0.01 to 100, not be {self.temperature}.")

    @classmethod
    def of(cls, asked: Any) -> "ReadRequest":
        """From plain data that somebody sent; whatever is wrong with it is a sentence."""
        require(isinstance(asked, dict), "A reading is an object of its settings.")
        temperature = asked.get("temperature", 1.0)
        number = isinstance(temperature, int | float) and not isinstance(temperature, bool)
        require(number, "temperature must be a number.")
        start = asked.get("from", 0)
        require(isinstance(start, int) and not isinstance(start, bool), "from must be a whole number.")
        return cls(
            tokens=whole_numbers(asked.get("tokens"), "tokens"),
            start=start,
            hidden=frozenset(whole_numbers(asked.get("hidden", []), "hidden")),
            still=frozenset(whole_numbers(asked.get("still", []), "still")),
            temperature=float(temperature),
            attention=bool(asked.get("attention", True)),
        )

    def signature(self) -> list[tuple[int, bool, bool, float]]:
        """What each token does to the state; two readings share the states of what is the same at their beginnings."""
        return [
            (token, index in self.hidden, token in self.still, self.temperature)
            for index, token in enumerate(self.tokens)
        ]


def whole_numbers(values: Any, name: str) -> tuple[int, ...]:
    """A list of whole numbers, as a tuple."""
    plain = isinstance(values, list) and all(isinstance(value, int) and not isinstance(value, bool) for value in values)
    require(plain, f"{name} must be a list of whole numbers.")
    return tuple(values)


class Session:
    """A model and the states of what it has read last. Undo, edit and branch read only what is new."""

    def __init__(self, model: Decoder):
        self.model = model
        self._read: list[tuple[int, bool, bool, float]] = []
        self._states: dict[int, StreamState] = {}  # number of tokens read -> the state after them
        self._lock = threading.Lock()

    def read(self, reading: ReadRequest) -> dict[str, Any]:
        """What was seen from token ``start`` on: logits, and per layer what `Decoder.observe` names."""
        size = self.model.config.vocab_size
        for token in reading.tokens:
            require(0 <= token < size, f"Token {token} is out of range: the model knows 0 to {size - 1}.")
        with self._lock:
            return self._answer(reading)

    def _answer(self, reading: ReadRequest) -> dict[str, Any]:
        wanted = reading.signature()
        same = _common(self._read, wanted)
        self._states = {length: state for length, state in self._states.items() if length <= same}
        at = max((length for length in self._states if length <= reading.start), default=0)
        self._read = wanted if len(wanted) > same else self._read
        answers: list[dict[str, Any]] = []
        while at < len(wanted):
            stop = _next_stop(at, len(wanted), reading.hidden)
            seen = self._read_chunk(reading, at, stop)
            if stop > reading.start:
                answers.append(_plain(seen, max(0, reading.start - at), at, reading.attention))
            at = stop
        return {"from": reading.start, **_joined(answers)}

    def _read_chunk(self, reading: ReadRequest, start: int, stop: int) -> Any:
        """Tokens ``start`` to ``stop`` after those before them, whose state is known."""
        read = reading.tokens[start:stop]
        scale = torch.tensor([[float(token not in reading.still) for token in read]]) if reading.still else None
        seen = self.model.observe(
            torch.tensor([read]),
            state=self._states.get(start),
            movement_scale=scale,
            temperature=None if reading.temperature == 1 else reading.temperature,
        )
        self._states[stop] = seen.state.hiding([stop - 1]) if stop - 1 in reading.hidden else seen.state
        return seen


def _common(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many items two lists have in common at their beginnings."""
    for index, (left, right) in enumerate(zip(one, other)):
        if left != right:
            return index
    return min(len(one), len(other))


def _next_stop(start: int, end: int, hidden: Collection[int]) -> int:
    """Where a chunk ends: after a token that is to be hidden from those that follow, and never too long."""
    last = min(end, start + CHUNK)
    return next((index + 1 for index in range(start, last) if index in hidden), last)


def _plain(seen: Any, skip: int, before: int, attention: bool) -> dict[str, Any]:
    """The numbers of one chunk from its token ``skip`` on; ``before``: how many tokens there are before the chunk."""
    layers = []
    for notes in seen:
        layer: dict[str, Any] = {name: _rows(notes[name][0, skip:]) for name in PER_TOKEN if name in notes}
        layer |= {name: _rows(notes[name][0, :, skip:].transpose(0, 1)) for name in PER_HEAD if name in notes}
        if attention and "attention" in notes:
            heads = (_numbers(head) for head in notes["attention"][0, :, skip:])
            layer["attention"] = [[row[: before + skip + i + 1] for i, row in enumerate(rows)] for rows in heads]
        layers.append(layer)
    return {"logits": _logits(seen.logits[0, skip:]), "layers": layers}


def _logits(logits: Tensor) -> list[Any]:
    """(L, V) as L rows; of a large vocabulary only the likeliest tokens of each row, by their log-probabilities."""
    if logits.shape[-1] <= LARGE_VOCABULARY:
        return _numbers(logits)
    best = logits.log_softmax(dim=-1).topk(LIKELIEST)
    rows = zip(best.indices.tolist(), _numbers(best.values))
    return [{"tokens": tokens, "values": values} for tokens, values in rows]


def _rows(values: Tensor) -> list[list[float]]:
    """(L, …) as L rows of numbers."""
    return _numbers(values.flatten(1))


def _numbers(values: Tensor) -> list[Any]:
    rounded: list[Any] = torch.nan_to_num(values.double()).mul(10**DIGITS).round().div(10**DIGITS).tolist()
    return rounded


def _joined(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """The answers of successive chunks as one."""
    joined = answers[0]
    for answer in answers[1:]:
        joined["logits"] += answer["logits"]
        for layer, more in zip(joined["layers"], answer["layers"]):
            for name, rows in more.items():
                if name == "attention":
                    for head, new in zip(layer[name], rows):
                        head += new
                else:
                    layer[name] += rows
    return joined
