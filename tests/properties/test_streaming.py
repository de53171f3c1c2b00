"""A stream read without gradients: equal to the whole, never copying its past, and a value that can be gone back to."""

import copy
import io
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from helpers import (
    CASES,
    EVERYTHING,
    FIRST_CASES,
    HYBRID,
    MIXED,
    VOCAB,
    Case,
    Layout,
    assert_bitwise,
    assert_same,
    draw_tokens,
    thorough,
)
from mapformers.modules.context import StreamState, map_tensors
from mapformers.modules.memory import NAME, SMALLEST, GrowingBuffer, append

each_and_hybrid = pytest.mark.parametrize("case", [*CASES, HYBRID, EVERYTHING], ids=str)
# What a state is made of differs from layer to layer, and hardly from variant to variant.
OFTEN = [*FIRST_CASES, HYBRID, EVERYTHING]
once_each = pytest.mark.parametrize("case", FIRST_CASES, ids=str)
once_each_and_hybrid = pytest.mark.parametrize(
    "case", [case if case in OFTEN else thorough(case) for case in [*CASES, HYBRID, EVERYTHING]], ids=str
)
MODES = [
    *((case, torch.no_grad) for case in [*CASES, HYBRID, EVERYTHING]),
    *(
        (case, torch.inference_mode) if case in OFTEN else thorough(case, torch.inference_mode)
        for case in [*CASES, HYBRID, EVERYTHING]
    ),
]
MAIN = ("rope", "nope", "mapwm", "mapem", "mapwm-nc", "mapem-nc", "mamba")
LENGTHS = [("mapwm", 2000), *((name, 300) for name in MAIN if name != "mapwm")]
COPIES = {"cat", "copy_", "clone", "_to_copy", "flip", "constant_pad_nd", "index", "repeat_interleave", "stack"}
# Their keys are computed anew for every query: PaTH's are reflected by every token, those that fade are shrunk.
COMPUTES_ALL_KEYS = [c for c in CASES if c.name == "path" or c.options.get("decay")]


def one_by_one(model: Any, tokens: Tensor, state: StreamState | None = None) -> tuple[Tensor, StreamState]:
    pieces = []
    for token in tokens.split(1, dim=1):
        logits, state = model(token, state=state, return_state=True)
        pieces.append(logits)
    assert state is not None
    return torch.cat(pieces, dim=1), state


def tensors(state: Any) -> list[Tensor]:
    found: list[Tensor] = []
    map_tensors(lambda tensor: found.append(tensor) or tensor, (state.past, state.layers))
    return found


@pytest.mark.parametrize(("case", "mode"), MODES, ids=str)
def test_one_token_at_a_time_equals_the_whole(case: Case, mode):
    model, tokens, layout = case.build(), draw_tokens(2, 9), Layout(MIXED)
    with mode():
        assert_same(one_by_one(model, tokens)[0], model(tokens))
        state, pieces = None, []
        for piece in layout.chunks((1,) * layout.tokens.shape[1], only_where_needed=True):
            logits, state = model(**piece, state=state, return_state=True)
            pieces.append(logits)
        whole = model(layout.tokens, **layout.flags)
    assert_same(torch.cat(pieces, dim=1)[layout.padding_mask], whole[layout.padding_mask])


@pytest.mark.parametrize(("name", "length"), [*LENGTHS, *(thorough(name, 2000) for name in MAIN if name != "mapwm")])
@torch.no_grad()
def test_a_long_stream_equals_the_full_forward(name: str, length: int):
    model = Case(name).build(dtype=torch.float32, n_layers=1)
    tokens = draw_tokens(1, length)
    assert (one_by_one(model, tokens)[0] - model(tokens)).abs().max() < 1e-4


@once_each_and_hybrid
@torch.no_grad()
def test_two_continuations_of_one_state_do_not_know_of_each_other(case: Case):
    model, tokens = case.build(), draw_tokens(2, 12)
    _, fork = one_by_one(model, tokens[:, :6])
    kept = [tensor.clone() for tensor in tensors(fork)]
    others = (tokens[:, 6:] + 1) % VOCAB
    alone, _ = one_by_one(model, torch.cat((tokens[:, :6], others), dim=1))
    first, after_first = one_by_one(model, tokens[:, 6:9], fork)
    second, _ = one_by_one(model, others, fork)
    rest, _ = one_by_one(model, tokens[:, 9:], after_first)
    assert_same(torch.cat((first, rest), dim=1), model(tokens)[:, 6:])
    assert_same(second, alone[:, 6:])
    beam, _ = one_by_one(model, others[[1, 1, 0]], fork.rows([1, 1, 0]))
    assert_same(beam, alone[[1, 1, 0], 6:])
    for before, now in zip(kept, tensors(fork), strict=True):
        assert_bitwise(now, before)


@once_each_and_hybrid
@torch.no_grad()
def test_memory_stays_where_it_is_until_its_room_is_full(case: Case):
    model, tokens = case.build(n_layers=1), draw_tokens(2, 2 * SMALLEST)
    _, state = one_by_one(model, tokens[:, : SMALLEST + 2])
    places = [tensor.data_ptr() for tensor in tensors(state) if NAME in tensor.__dict__]
    _, later = one_by_one(model, tokens[:, SMALLEST + 2 : -4], state)
    grown = [tensor for tensor in tensors(later) if NAME in tensor.__dict__]
    assert [tensor.data_ptr() for tensor in grown] == places
    per_token = [t for t in tensors(later) if later.past.length in t.shape[1:3]]
    assert len(per_token) - len(grown) == (1 if case.name == "path" or case is EVERYTHING else 0)  # PaTH's keys change


class Copied(TorchDispatchMode):
    """Counts the numbers that copying operators wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in COPIES:
            self.numbers += (args[1] if func.overloadpacket.__name__ == "copy_" else out).numel()
        return out


@pytest.mark.parametrize(
    "case", [c if c in FIRST_CASES else thorough(c) for c in CASES if c not in COMPUTES_ALL_KEYS], ids=str
)
@torch.no_grad()
def test_what_a_step_copies_does_not_grow_with_the_past(case: Case):
    model, tokens = case.build(n_layers=1), draw_tokens(1, 2 * SMALLEST)
    _, state = one_by_one(model, tokens[:, : SMALLEST + 2])
    counts = []
    for token in tokens[:, SMALLEST + 2 : SMALLEST + 22].split(1, dim=1):
        with Copied() as copied:
            _, state = model(token, state=state, return_state=True)
        counts.append(copied.numbers)
    assert counts[0] > 0
    assert counts[-1] - counts[0] < 19 * 16 / 2  # the keys of 19 tokens more, 16 numbers each, would be twice as many


@once_each
def test_a_stream_without_gradients_goes_on_with_them_and_back(case: Case):
    """Autograd keeps views of the memory that a later step, without gradients, writes behind."""
    model, tokens = case.build(), draw_tokens(2, 10)
    with torch.no_grad():
        _, state = one_by_one(model, tokens[:, :5])
    loss = model(tokens[:, 5:], state=state).square().sum()
    with torch.no_grad():
        logits, _ = one_by_one(model, tokens[:, 5:], state)
    assert_same(logits, model(tokens)[:, 5:].detach())
    loss.backward()
    with torch.inference_mode():
        _, made = one_by_one(model, tokens[:, :5])
    with torch.no_grad():
        assert_same(one_by_one(model, tokens[:, 5:], made)[0], logits)


@once_each
@torch.no_grad()
def test_copies_of_a_state_go_on_alone(case: Case):
    model, tokens = case.build(), draw_tokens(2, 10)
    _, state = one_by_one(model, tokens[:, :5])
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    copies = [copy.deepcopy(state), torch.load(file, weights_only=False), state.detach(), state.to("cpu")]
    expected, _ = one_by_one(model, tokens[:, 5:], state)
    for other in copies:
        assert_same(one_by_one(model, tokens[:, 5:], other)[0], expected)


@pytest.mark.parametrize("grad", [False, True])
def test_layers_build_states_for_those_who_ask(grad: bool):
    model, tokens = EVERYTHING.build(), draw_tokens(1, 4)
    returned: list[Any] = []
    for layer in model.layers:
        layer.register_forward_hook(lambda module, given, out: returned.append(out[2]))
    with nullcontext() if grad else torch.no_grad():
        model(tokens)
        assert len(returned) == len(model.layers) and all(state is None for state in returned)
        model(tokens, return_state=True)
    assert all(state is not None for state in returned[len(model.layers) :])


@torch.no_grad()
def test_only_who_ends_where_the_room_is_filled_may_write():
    start = torch.zeros(1, 2, 3, 4)
    first = append(start, torch.ones(1, 2, 1, 4), dim=2)
    on, branch = (append(first, torch.full((1, 2, 2, 4), value), dim=2) for value in (2.0, 3.0))
    assert on.data_ptr() == first.data_ptr() != branch.data_ptr()
    for grown, value in ((on, 2.0), (branch, 3.0)):
        assert_bitwise(grown, torch.cat((start, torch.ones(1, 2, 1, 4), torch.full((1, 2, 2, 4), value)), dim=2))
    growing: GrowingBuffer = on.__dict__[NAME]
    assert not growing.claim(4, 5, torch.float32) and not growing.claim(6, 7, torch.float64)
    assert growing.claim(6, 7, torch.float32) and not growing.claim(6, 7, torch.float32)
    wide = append(first, torch.ones(1, 2, 1, 4, dtype=torch.float64), dim=2)
    assert wide.dtype == torch.float64 and wide.shape[2] == 5


def test_under_autograd_nothing_is_written_to():
    past, here = torch.zeros(1, 2, 3, 4, requires_grad=True), torch.ones(1, 2, 1, 4)
    grown = append(past, here, dim=2)
    assert NAME not in grown.__dict__ and grown.requires_grad
