"""One streaming step of a decoder as a module of plain tensors: token and state in, logits, state and what is seen out.

A state is a tuple of tuples; here it is flat, and every tensor has a name (``layer0.keys``). Keys and values grow by
one token with each step, so the step is traced with an open number of past tokens and an open batch size.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from mapformers.errors import require
from mapformers.explorer.decompositions import OneQuery, PlainForms
from mapformers.model import Decoder
from mapformers.modes import in_eval_mode
from mapformers.modules.attention import Projections
from mapformers.modules.context import Context, Past, map_tensors
from mapformers.modules.movement import find_movements

LONGEST = 2**31  # a size without a bound is at least that
OBSERVABLES = ("delta_in", "coordinate", "theta", "attention")
TRACED_BATCH, TRACED_PAST = 3, 7  # not 0 or 1, to which torch.export would specialise


class Part(NamedTuple):
    """A tensor of the state: its name, what it is before the first token, and along which dimension it grows."""

    name: str
    empty: Tensor
    grows_along: int | None


class StreamingStep(nn.Module):
    """(token, movement_scale, temperature, visible, …state) -> logits, the new state, and observables.

    ``token`` (B, 1); ``movement_scale`` () is 1, or 0 where this token is not to move, of models that move;
    ``temperature`` () divides attention logits, of models that attend; ``visible`` (B, past) bool: which past tokens
    may be seen, of models that keep their keys. `inputs` and `outputs` are the names of what a model has.
    """

    def __init__(self, model: Decoder, observables: Sequence[str] = OBSERVABLES):
        super().__init__()
        self.model, self.observables = model, tuple(observables)
        empty = model.empty_state()
        with torch.no_grad(), in_eval_mode(model):
            token = torch.zeros(1, 1, dtype=torch.long, device=model.embedding.weight.device)
            after = model(token, return_state=True)[1]
        self.structure = empty.layers
        self.parts = _parts(empty.layers, after.layers)
        remembers = any(part.grows_along is not None for part in self.parts)
        attends = any(isinstance(module, Projections) for module in model.modules())
        has = {"movement_scale": bool(find_movements(model)), "temperature": attends, "visible": remembers}
        self.inputs = ["token", *(name for name, is_there in has.items() if is_there)]
        with torch.no_grad(), in_eval_mode(model):
            self.outputs = list(self.named(*self.example(1)[0]))

    @property
    def state_names(self) -> list[str]:
        """The tensors that a step hands on to the next."""
        return [*(name for name in self.inputs if name == "visible"), *(part.name for part in self.parts)]

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Inputs in the order of `inputs` and then of the state; outputs in that of `outputs`."""
        return tuple(self.named(*tensors).values())

    def named(self, *tensors: Tensor) -> dict[str, Tensor]:
        """The same with the names of what comes out."""
        given = dict(zip(self.inputs, tensors))
        flat = iter(tensors[len(self.inputs) :])
        state = map_tensors(lambda empty: next(flat), self.structure)
        visible = given.get("visible")
        past = Past(1 if visible is None else visible.shape[1], None, visible)
        scale, temperature = given.get("movement_scale"), given.get("temperature")
        context = StepContext.of(given["token"], past=past, movement_scale=scale, temperature=temperature)
        model, notes = self.model, []
        x, stream, after = model.embedding(given["token"]), None, []
        for layer, layer_state in zip(model.layers, state):
            context.recording = {} if self.observables else None
            x, stream, layer_state = layer(x, stream, layer_state, context)
            notes.append(context.recording or {})
            after.append(layer_state)
        named = {"logits": model.head(model.norm(x))}
        named |= {} if visible is None else {"visible": context.real()}
        named |= dict(zip((part.name for part in self.parts), _tensors(tuple(after))))
        return named | _observed(notes, self.observables)

    def start(self, batch_size: int = 1) -> list[Tensor]:
        """All inputs but the token, before anything was read: interventions that change nothing, and an empty state."""
        neutral = {"movement_scale": torch.ones(()), "temperature": torch.ones(())}
        neutral["visible"] = torch.ones(batch_size, 0, dtype=torch.bool)
        state = [part.empty.expand(batch_size, *part.empty.shape[1:]).contiguous() for part in self.parts]
        return [*(neutral[name] for name in self.inputs[1:]), *state]

    def example(self, batch_size: int) -> tuple[list[Tensor], list[dict[int, str]]]:
        """Inputs to trace with, some tokens having been read, and the names of the dimensions that may differ."""
        inputs, dims = [torch.zeros(batch_size, 1, dtype=torch.long)], [{0: "batch"}]
        for name, tensor in zip(self.inputs[1:], self.start(batch_size)):
            inputs.append(tensor.new_ones(batch_size, TRACED_PAST) if name == "visible" else tensor)
            dims.append({0: "batch", 1: "past"} if name == "visible" else {})
        for part in self.parts:
            shape, open_dims = [batch_size, *part.empty.shape[1:]], {0: "batch"}
            if part.grows_along is not None:
                shape[part.grows_along] = TRACED_PAST
                open_dims[part.grows_along] = "past"
            inputs.append(torch.zeros(shape, dtype=part.empty.dtype))
            dims.append(open_dims)
        return inputs, dims


class StepContext(Context):
    """A single token after any number of others, some of which may be hidden; whether there are any is left open."""

    def visibility(self, self_key: bool = True) -> OneQuery:
        real = None if self.past.real is None else self.real()
        return OneQuery(self.past.length, self_key, True, None, real)


def export_step(step: StreamingStep, batch_size: int | None = 1) -> ExportedProgram:
    """The step as a graph with an open number of past tokens, for a batch of this size, or of any (None).

    It is traced with sizes that occur nowhere else, in plain forms (`PlainForms`).
    """
    inputs, dims = step.example(TRACED_BATCH if batch_size is None else batch_size)
    is_open = {"past", "batch"} if batch_size is None else {"past"}
    sizes = tuple({dim: Dim.AUTO for dim, name in named.items() if name in is_open} for named in dims)
    with torch.no_grad(), in_eval_mode(step), traced_plainly():
        program = torch.export.export(step, tuple(inputs), dynamic_shapes=(sizes,), strict=False)
    require_open(program, sizes)
    return program


def require_open(program: ExportedProgram, sizes: Sequence[Mapping[int, Any]]) -> None:
    """Refuse a graph in which a size that was to stay open has become a number, or is bounded."""
    given = program.graph_signature.user_inputs
    nodes = [node for node in program.graph.nodes if node.op == "placeholder" and node.name in given]
    for node, dims in zip(nodes, sizes, strict=True):
        fixed = [dim for dim in dims if str(node.meta["val"].shape[dim]).isdecimal()]  # a number, or a symbol for one
        require(not fixed, "The model works only with the batch size or the length that it was traced with.")
    bounded = [found.upper for found in program.range_constraints.values() if found.upper < LONGEST]
    require(not bounded, f"The model was traced in a way that holds only up to a size of {bounded}.")


@contextmanager
def traced_plainly() -> Iterator[None]:
    """Plain forms of all operators, and without PyTorch's warnings about its own parts."""
    with PlainForms(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _parts(empty: Any, after: Any) -> list[Part]:
    grows: list[int | None] = []

    def compare(before: Tensor, later: Tensor) -> Tensor:
        different = [dim for dim, sizes in enumerate(zip(before.shape, later.shape)) if sizes[0] != sizes[1]]
        require(len(different) <= 1, "A state that grows along several dimensions cannot be exported.")
        grows.append(different[0] if different else None)
        return before

    map_tensors(compare, empty, after)
    return [Part(name, tensor, dim) for (name, tensor), dim in zip(_named(empty), grows, strict=True)]


def _named(layers: tuple[Any, ...]) -> list[tuple[str, Tensor]]:
    """Every tensor of the layers' states by its path: ``layer0.keys``."""
    found: list[tuple[str, Tensor]] = []

    def walk(name: str, state: Any) -> None:
        if isinstance(state, Tensor):
            found.append((name, state))
        elif isinstance(state, tuple):
            fields = getattr(state, "_fields", range(len(state)))
            for field, part in zip(fields, state):
                walk(f"{name}.{field}", part)

    for index, state in enumerate(layers):
        walk(f"layer{index}", state)
    return found


def _tensors(state: Any) -> list[Tensor]:
    return [tensor for _, tensor in _named(state)]


def _observed(notes: Sequence[Mapping[str, Tensor]], wanted: Sequence[str]) -> dict[str, Tensor]:
    """What the layers noted, as ``observed.layer0.theta``."""
    return {
        f"observed.layer{index}.{name}": seen[name]
        for index, seen in enumerate(notes)
        for name in wanted
        if name in seen
    }
