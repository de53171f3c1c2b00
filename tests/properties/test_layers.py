"""What every registered layer must be, shown for every variant it registers and for a stack that mixes them.

Causal; the same in chunks as in one piece; blind to other documents and to padding; equal to its own plain
reference; differentiable; the same compiled; kept whole by a state dict. All parameters are random.
"""

import json
import shutil

import pytest
import safetensors.torch
import torch
from torch import Tensor

from helpers import (
    CASES,
    EVERYTHING,
    FIRST_CASES,
    HYBRID,
    LONG,
    MIXED,
    PACKED,
    PADDED,
    PLAIN,
    THOROUGH,
    VOCAB,
    Case,
    Layout,
    assert_bitwise,
    assert_same,
    draw_tokens,
    thorough,
)
from mapformers.model import Decoder, ModelConfig
from mapformers.modules.context import Context

each = pytest.mark.parametrize("case", CASES, ids=str)
each_and_hybrid = pytest.mark.parametrize("case", [*CASES, HYBRID, EVERYTHING], ids=str)
LENGTH = len(MIXED[0])
# Each takes some seconds: the others with --thorough. The fused path of an LSTM is taken without padding only.
OFTEN_COMPILED = ("rope", "mapwm", "mapem", "mamba", "lstm")
OFTEN_BY_INDUCTOR = ("mamba",)  # half a minute; a whole run of mapwm is compiled in tests/training/test_backends.py
COMPILED = [case for case in FIRST_CASES if THOROUGH or case.name in OFTEN_COMPILED]
BY_INDUCTOR = [case for case in FIRST_CASES if THOROUGH or case.name in OFTEN_BY_INDUCTOR]
SINGLE, UNEVEN, LATE, EARLY = (1,) * LENGTH, (3, 1, 5, 2, 1), (LENGTH - 1, 1), (1, LENGTH - 1)
CHUNKS = [SINGLE, UNEVEN, thorough(LATE), thorough(EARLY)]
ALL_FLAGS, NEEDED_FLAGS = False, True
FLAGGED_CHUNKS = [
    (UNEVEN, ALL_FLAGS),
    (UNEVEN, NEEDED_FLAGS),
    (SINGLE, NEEDED_FLAGS),
    thorough(SINGLE, ALL_FLAGS),
    *(thorough(sizes, flags) for sizes in (LATE, EARLY) for flags in (ALL_FLAGS, NEEDED_FLAGS)),
]


@each_and_hybrid
def test_a_token_changes_its_own_future_and_never_the_past(case: Case):
    tokens = draw_tokens(1, 10)
    length = tokens.shape[1]
    changed = tokens.repeat(length, 1)
    changed.diagonal().copy_((tokens[0] + 1) % VOCAB)
    logits = case.build()(torch.cat((tokens, changed)))
    base = logits[0]
    for t in range(length):
        assert_same(logits[t + 1, :t], base[:t])
        moved = (logits[t + 1] - base).abs().amax(dim=-1)
        assert moved[t] > 1e-6
        assert t == length - 1 or moved[t + 1 :].max() > 1e-6


@pytest.mark.parametrize("sizes", CHUNKS, ids=str)
@each_and_hybrid
def test_chunked_equals_one_shot(case: Case, sizes: tuple[int, ...]):
    model = case.build()
    tokens = draw_tokens(2, LENGTH)
    state, pieces = None, []
    for piece in tokens.split(sizes, dim=1):
        logits, state = model(piece, state=state, return_state=True)
        pieces.append(logits)
    assert_same(torch.cat(pieces, dim=1), model(tokens))


@pytest.mark.parametrize(("sizes", "only_where_needed"), FLAGGED_CHUNKS, ids=str)
@each_and_hybrid
def test_chunked_equals_one_shot_with_documents_and_padding(case: Case, sizes: tuple[int, ...], only_where_needed):
    model, layout = case.build(), Layout(MIXED)
    state, pieces = None, []
    for piece in layout.chunks(sizes, only_where_needed=only_where_needed):
        logits, state = model(**piece, state=state, return_state=True)
        pieces.append(logits)
    whole = model(layout.tokens, **layout.flags)
    assert_same(torch.cat(pieces, dim=1)[layout.padding_mask], whole[layout.padding_mask])


@each_and_hybrid
def test_gradients_of_chunks_are_those_of_one_shot(case: Case):
    model, tokens = case.build(), draw_tokens(2, 8)
    _, state = model(tokens[:, :5], return_state=True)
    parameters = [p for p in model.parameters() if p.requires_grad]
    chunked = torch.autograd.grad(model(tokens[:, 5:], state=state).square().sum(), parameters)
    whole = torch.autograd.grad(model(tokens)[:, 5:].square().sum(), parameters)
    for ours, theirs in zip(chunked, whole):
        assert_same(ours, theirs)


@each_and_hybrid
def test_a_state_can_be_continued_more_than_once(case: Case):
    model, tokens = case.build(), draw_tokens(2, 9)
    _, state = model(tokens[:, :5], return_state=True)
    first = model(tokens[:, 5:], state=state)
    model((tokens[:, 5:] + 1) % VOCAB, state=state)
    assert_bitwise(model(tokens[:, 5:], state=state), first)


@pytest.mark.parametrize(
    ("rows", "mark_first"),
    [(PACKED, False), (MIXED, True), thorough(PACKED, True), thorough(MIXED, False)],
    ids=["packed-first-unmarked", "mixed-first-marked", "packed-first-marked", "mixed-first-unmarked"],
)
@each_and_hybrid
def test_packed_equals_separate(case: Case, rows: tuple[str, ...], mark_first: bool):
    model, layout = case.build(), Layout(rows, mark_first=mark_first)
    packed = model(layout.tokens, reset=layout.reset, padding_mask=None if rows is PACKED else layout.padding_mask)
    assert_same(packed[layout.padding_mask], layout.alone(model)[layout.padding_mask])


@each_and_hybrid
def test_padding_does_not_matter_wherever_it_is_and_whatever_it_holds(case: Case):
    model, layout = case.build(), Layout(PADDED)
    real, expected = layout.padding_mask, layout.alone(model)
    garbage = torch.where(real, layout.tokens, draw_tokens(*real.shape, seed=1))
    assert not torch.equal(garbage, layout.tokens)
    for tokens in (layout.tokens, garbage):
        assert_same(model(tokens, padding_mask=real)[real], expected[real])


@each_and_hybrid
def test_long_rows_cross_every_tile_without_a_seam(case: Case):
    """Fast paths work on 32 to 64 tokens at a time: documents and pieces begin and end within and on their edges."""
    model, layout = case.build(), Layout(LONG)
    whole = model(layout.tokens, **layout.flags)
    assert_same(whole[layout.padding_mask], layout.alone(model)[layout.padding_mask])
    state, pieces = None, []
    for piece in layout.chunks((64, 1, 95, 40), only_where_needed=True):
        logits, state = model(**piece, state=state, return_state=True)
        pieces.append(logits)
    assert_same(torch.cat(pieces, dim=1)[layout.padding_mask], whole[layout.padding_mask])


@each_and_hybrid
def test_no_gradient_reaches_the_padding(case: Case):
    model, layout = case.build(), Layout(MIXED)
    unused = VOCAB - 1
    tokens = torch.where(layout.padding_mask, layout.tokens % unused, unused)
    model(tokens, **layout.flags)[layout.padding_mask].square().sum().backward()
    assert_bitwise(model.embedding.weight.grad[unused], torch.zeros(16, dtype=torch.float64))
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize("rows", [PLAIN, PACKED, thorough(PADDED), MIXED], ids=["plain", "packed", "padded", "mixed"])
@each
def test_fast_path_equals_the_reference(case: Case, rows: tuple[str, ...]):
    layer = case.build().layers[0]
    (module,) = (m for m in layer.modules() if hasattr(m, "reference"))
    layout = Layout(rows)

    def context() -> Context:
        if rows is PLAIN:
            return Context.of(layout.tokens)
        return Context.of(layout.tokens, reset=layout.reset) if rows is PACKED else layout.context()

    x = torch.randn(*layout.tokens.shape, 16, dtype=torch.float64, requires_grad=True)
    inputs = [x, *(p for p in module.parameters() if p.requires_grad)]
    fast, plain = module.mix(x, None, context())[0], module.reference(x, context())
    fast, plain = fast[layout.padding_mask], plain[layout.padding_mask]
    assert_same(fast, plain)
    weight = torch.randn_like(fast)
    for ours, theirs in zip(torch.autograd.grad(fast, inputs, weight), torch.autograd.grad(plain, inputs, weight)):
        assert_same(ours, theirs)


FINITE_DIFFERENCES = [
    *((case, "AA.BB") for case in CASES),
    *((case, "AAAAA") if case in FIRST_CASES else thorough(case, "AAAAA") for case in CASES),
]


@pytest.mark.parametrize(("case", "row"), FINITE_DIFFERENCES, ids=str)
def test_gradients_are_those_of_finite_differences(case: Case, row: str):
    layer = case.build(n_layers=1, mlp_ratio=1).layers[0]
    layout = Layout([row])
    names, values = zip(*((n, p.detach()) for n, p in layer.named_parameters() if p.requires_grad))

    def run(x: Tensor, *parameters: Tensor) -> Tensor:
        context = Context.of(layout.tokens) if row == "AAAAA" else layout.context()
        out, _, _ = torch.func.functional_call(layer, dict(zip(names, parameters)), (x, None, None, context))
        return out[layout.padding_mask]

    inputs = [torch.randn(*layout.tokens.shape, 16, dtype=torch.float64), *values]
    inputs = [t.clone().requires_grad_() for t in inputs]
    assert torch.autograd.gradcheck(run, inputs, atol=1e-9, rtol=1e-6, fast_mode=True)


def assert_compiles(model: Decoder, backend: str, layout: Layout | None) -> None:
    """Logits and gradients of the compiled model are those of the model."""
    tokens, flags = (draw_tokens(2, 6), {}) if layout is None else (layout.tokens, layout.flags)
    results = []
    torch._dynamo.reset()
    for run in (model, torch.compile(model, backend=backend, fullgraph=True)):
        logits = run(tokens, **flags)
        parameters = [p for p in model.parameters() if p.requires_grad]
        results.append((logits, *torch.autograd.grad(logits.square().sum(), parameters)))
    torch._dynamo.reset()
    for eager, compiled in zip(*results):
        assert_same(compiled, eager)


@pytest.mark.parametrize("case", CASES if THOROUGH else COMPILED, ids=str)
def test_compiled_equals_eager(case: Case):
    assert_compiles(case.build(n_layers=1), "aot_eager", None)


@pytest.mark.parametrize("case", FIRST_CASES, ids=str)
def test_compiled_equals_eager_with_documents_and_padding(case: Case):
    assert_compiles(case.build(n_layers=1), "aot_eager", Layout(MIXED))


@pytest.mark.parametrize("case", [case for case in COMPILED if THOROUGH or case.name in ("mapwm", "mamba")], ids=str)
def test_compiled_once_it_reads_other_lengths(case: Case):
    model = case.build(n_layers=1)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        for length in (6, 9, 40):
            tokens = draw_tokens(2, length)
            assert_same(compiled(tokens), model(tokens))
    torch._dynamo.reset()


@pytest.mark.skipif(not any(map(shutil.which, ("g++", "gcc", "cc"))), reason="inductor needs a C compiler")
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("case", BY_INDUCTOR, ids=str)
def test_compiled_by_inductor_equals_eager(case: Case):
    with torch._inductor.config.patch(compile_threads=1):
        assert_compiles(case.build(n_layers=1), "inductor", None)


@each_and_hybrid
def test_a_state_dict_brings_the_model_back(case: Case):
    model, tokens = case.build(seed=1), draw_tokens(2, 9)
    stored = safetensors.torch.save(model.state_dict()), json.dumps(model.config.to_dict())
    other = Decoder(ModelConfig.from_dict(json.loads(stored[1]))).double()
    assert not torch.allclose(other(tokens), model(tokens))
    other.load_state_dict(safetensors.torch.load(stored[0]), strict=True)
    assert_bitwise(other(tokens), model(tokens))


@each_and_hybrid
def test_every_trainable_parameter_gets_a_gradient(case: Case):
    model = case.build()
    model(draw_tokens(2, 9)).square().sum().backward()
    idle = [n for n, p in model.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())]
    assert idle == []


@pytest.mark.parametrize("rows", [PLAIN, MIXED], ids=["plain", "mixed"])
@each_and_hybrid
def test_bf16_autocast_stays_finite(case: Case, rows: tuple[str, ...]):
    model, layout = case.build(dtype=torch.float32), Layout(rows)
    state = None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        whole = model(layout.tokens) if rows is PLAIN else model(layout.tokens, **layout.flags)
        for piece in layout.chunks((5, 7), only_where_needed=True):
            logits, state = model(**piece, state=state, return_state=True)
            assert logits.dtype == torch.bfloat16 and logits.isfinite().all()
    assert whole.dtype == torch.bfloat16 and whole.isfinite().all()
    whole.float().square().mean().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)


@each_and_hybrid
def test_weights_may_be_bf16(case: Case):
    model, layout, state = case.build(dtype=torch.bfloat16), Layout(MIXED), None
    assert model(layout.tokens).isfinite().all()
    for piece in layout.chunks((5, 7), only_where_needed=True):
        logits, state = model(**piece, state=state, return_state=True)
        assert logits.dtype == torch.bfloat16 and logits.isfinite().all()


@each
def test_bf16_autocast_hardly_changes_what_is_read(case: Case):
    """Positions are computed outside it, so what is lost is bf16's own rounding, however long the path."""
    model, tokens = case.build(dtype=torch.float32, n_layers=1), draw_tokens(2, 256)
    with torch.no_grad():
        exact = model(tokens)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rounded = model(tokens).float()
    assert (rounded - exact).abs().mean() < 0.02 * exact.abs().mean()


@each_and_hybrid
def test_the_same_seed_builds_and_computes_the_same(case: Case):
    tokens, built = draw_tokens(2, 9), []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        built.append(Decoder(case.build().config))
    first, again, other = (model(tokens) for model in built)
    assert_bitwise(again, first)
    assert_bitwise(built[0](tokens), first)
    assert not torch.equal(other, first)


@each
def test_a_layer_keeps_its_contract(case: Case):
    layer = case.build().layers[0]
    owns_stream = getattr(layer, "owns_stream", False)  # TAPE's own tensor; others hand on what they are given
    x, stream = torch.randn(2, 5, 16, dtype=torch.float64), None if owns_stream else object()
    kept = x.clone()
    out, passed_on, state = layer(x, stream, None, Context.of(draw_tokens(2, 5)))
    assert out.shape == x.shape and out.dtype == x.dtype
    assert owns_stream or passed_on is stream
    assert state is not None
    assert_bitwise(x, kept)
