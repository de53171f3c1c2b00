"""Packed documents by FlexAttention, which a compiler takes: the values and gradients of the whole mask, without it."""

import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.attention import flex_attention as torch_flex

import mapformers as mf
from mapformers.modules.attention import attend
from mapformers.modules.context import Context
from mapformers.ops import flex_document_attention as ours
from mapformers.ops.document_attention import reference
from mapformers.ops.flex_document_attention import BLOCK, block_mask_of, flex_document_attention, flex_runs_on
from mapformers.ops.visibility import Visibility

eager = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")


def resets(rows, length):
    """(B, length) True where documents of these sizes begin; the last goes on to the end."""
    reset = torch.zeros(len(rows), length, dtype=torch.bool)
    for row, sizes in zip(reset, rows):
        row[[place for place in torch.tensor(sizes).cumsum(0).tolist() if place < length]] = True
    return reset


def inputs_for(reset, size, dtype=torch.float64):
    generator = torch.Generator().manual_seed(reset.numel())
    return [torch.randn(len(reset), 2, reset.shape[1], size, dtype=dtype, generator=generator) for _ in range(3)]


packings = st.lists(st.lists(st.integers(1, 300), min_size=1, max_size=6), min_size=1, max_size=3)


@eager
@settings(max_examples=10, deadline=None)
@given(rows=packings, length=st.integers(1, 400), size=st.sampled_from((2, 6, 16)), self_key=st.booleans())
def test_values_are_those_of_the_mask(rows, length, size, self_key):
    reset = resets(rows, length)
    q, k, v = inputs_for(reset, size)
    torch.testing.assert_close(
        flex_document_attention(q, k, v, 0.5, block_mask_of(reset, self_key)),
        reference(q, k, v, 0.5, reset, self_key),
        rtol=1e-10,
        atol=1e-12,
    )


@settings(max_examples=20, deadline=None)
@given(rows=packings, length=st.integers(1, 400), self_key=st.booleans())
def test_blocks_are_those_of_the_mask(rows, length, self_key):
    """No block that is seen is left out, none that is not is worked on, and one taken as a whole is seen as a whole."""
    reset = resets(rows, length)
    mask = Visibility(0, self_key, True, reset.long().cumsum(dim=1)).mask(slice(0, length), length)
    blocks = block_mask_of(reset, self_key)
    for kind, (count, indices) in {
        "some": (blocks.kv_num_blocks, blocks.kv_indices),
        "whole": (blocks.full_kv_num_blocks, blocks.full_kv_indices),
    }.items():
        for b, row in torch.cartesian_prod(torch.arange(len(reset)), torch.arange(count.shape[-1])).tolist():
            parts = mask[b, row * BLOCK : (row + 1) * BLOCK].split(BLOCK, dim=1)
            whole = [bool(part.all()) for part in parts]
            wanted = whole if kind == "whole" else [bool(part.any()) and not w for part, w in zip(parts, whole)]
            listed = indices[b, 0, row, : count[b, 0, row]].tolist()
            assert listed == [place for place, chosen in enumerate(wanted) if chosen]


@eager
@pytest.mark.parametrize("self_key", [True, False])
def test_gradients_are_those_of_the_mask(self_key, monkeypatch):
    """On a CPU nobody may ask FlexAttention for gradients, because no kernel there has them; its definition has."""
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *inputs: None)
    reset = resets([[5, 140, 1, 20], [150, 1, 1]], 200)
    inputs = [t.requires_grad_() for t in inputs_for(reset, 6)]
    upstream = torch.randn(inputs[0].shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    results = [
        torch.autograd.grad((mixed * upstream).sum(), inputs)
        for mixed in (
            flex_document_attention(*inputs, 0.5, block_mask_of(reset, self_key)),
            reference(*inputs, 0.5, reset, self_key),
        )
    ]
    for flexible, masked in zip(*results):
        torch.testing.assert_close(flexible, masked, rtol=1e-10, atol=1e-12)


class Attend(nn.Module):
    """`attend` in two layers."""

    def forward(self, q, k, v, reset, self_key):
        context = Context(len(reset), reset.shape[1], reset.device, reset=reset)
        return attend(attend(q, k, v, 0.5, context, self_key), k, v, 0.5, context, self_key)


def no_mask(*_):
    raise AssertionError("a mask of L × L was built")


def compiled(module, backend):
    torch._dynamo.reset()
    return torch.compile(module, backend=backend, fullgraph=True, dynamic=False)


@pytest.fixture
def no_dense_mask(monkeypatch):
    monkeypatch.setattr(Visibility, "mask", no_mask)
    yield
    torch._dynamo.reset()


needs_avx = pytest.mark.skipif(not ours.HAS_AVX, reason="FlexAttention has no kernel for this processor")


@needs_avx
@pytest.mark.parametrize("self_key", [True, False])
def test_compiled_layers_share_one_block_mask_and_build_no_other(self_key, no_dense_mask, monkeypatch):
    made = []
    monkeypatch.setattr(
        "mapformers.modules.context.block_mask_of", lambda *given: made.append(1) or block_mask_of(*given)
    )
    reset = resets([[5, 140, 1, 20], [150, 1, 1]], 200)
    inputs = inputs_for(reset, 6, torch.float32)
    apart = Attend()(*inputs, reset, self_key)
    assert made == []
    torch.testing.assert_close(compiled(Attend(), "aot_eager")(*inputs, reset, self_key), apart)
    assert made == [1]


@pytest.mark.parametrize("self_key", [True, False])
def test_what_flex_cannot_do_is_done_with_the_mask(self_key):
    reset = resets([[5, 14, 1, 2]], 30)
    inputs = [t.requires_grad_() for t in inputs_for(reset, 6, torch.float32)]
    assert not flex_runs_on(*inputs)
    results = []
    for run in (Attend(), compiled(Attend(), "aot_eager")):
        mixed = run(*inputs, reset, self_key)
        results.append((mixed, *torch.autograd.grad(mixed.square().sum(), inputs)))
    torch._dynamo.reset()
    for plain, masked in zip(*results):
        torch.testing.assert_close(masked, plain)


def test_where_flex_runs():
    class Cuda:
        """What is asked of a tensor of a device that is not here."""

        def __init__(self, size, dtype=torch.float32):
            self.device, self.dtype, self.shape, self.requires_grad = torch.device("cuda"), dtype, (1, 1, 1, size), True

    assert flex_runs_on(*[Cuda(16)] * 3)
    assert not flex_runs_on(*[Cuda(8)] * 3)
    assert not flex_runs_on(*[Cuda(16, torch.float64)] * 3)
    assert not flex_runs_on(*[torch.ones(1, 1, 1, 16, dtype=torch.float64)] * 3)
    assert flex_runs_on(*[torch.ones(1, 1, 1, 16)] * 3) == ours.HAS_AVX


def apart_and_packed(model, run):
    """Logits of documents that a model reads one by one, and those of the same in one row that ``run`` reads."""
    sizes = (5, 140, 1, 18)
    documents = [torch.randint(11, (1, size), generator=torch.Generator().manual_seed(size)) for size in sizes]
    tokens = torch.cat(documents, dim=1)
    reset = resets([sizes], tokens.shape[1])
    with torch.no_grad():
        return torch.cat([model(document) for document in documents], dim=1), run(tokens, reset=reset)


@needs_avx
@pytest.mark.parametrize("settings", [{}, {"self_key": False}], ids=str)
@pytest.mark.parametrize("name", ["rope", "mapwm"])
def test_a_compiled_model_reads_packed_documents_as_it_reads_them_apart(name, settings, no_dense_mask):
    torch.manual_seed(0)
    model = mf.build_model(name, vocab_size=11, d_model=24, n_heads=2, n_layers=2, **settings)
    apart, packed = apart_and_packed(model, compiled(model, "aot_eager"))
    torch.testing.assert_close(packed, apart, rtol=1e-4, atol=1e-5)


@needs_avx
@pytest.mark.skipif(not any(map(shutil.which, ("g++", "gcc", "cc"))), reason="inductor needs a C compiler")
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.parametrize(("length", "self_key"), [(200, True), (200, False), (90, True)])
def test_the_kernel_has_the_values_of_the_mask(length, self_key, monkeypatch):
    reset = resets([[5, 140, 1, 20], [150, 1, 1]], length)
    q, k, v = inputs_for(reset, 6, torch.float32)
    first = reference(q, k, v, 0.5, reset, self_key)
    second = reference(first, k, v, 0.5, reset, self_key)
    monkeypatch.setattr(Visibility, "mask", no_mask)
    with torch._inductor.config.patch(compile_threads=1):
        mixed = compiled(Attend(), "inductor")(q, k, v, reset, self_key)
    torch._dynamo.reset()
    torch.testing.assert_close(mixed, second)
    torch.testing.assert_close(mixed, Attend()(q, k, v, reset, self_key))
