"""Packed documents attended to one by one: the values and gradients of the whole mask, in memory that grows with L."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import mapformers as mf
from mapformers.modules.attention import attend
from mapformers.modules.context import Context
from mapformers.ops.document_attention import document_attention, layout_of, reference


def packed(reset, dtype=torch.float64, heads=2, size=4):
    generator = torch.Generator().manual_seed(reset.numel())
    shape = (reset.shape[0], heads, reset.shape[1], size)
    return [torch.randn(shape, dtype=dtype, generator=generator, requires_grad=True) for _ in range(3)]


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=4), min_size=1, max_size=3),
    length=st.integers(1, 70),
    self_key=st.booleans(),
)
def test_values_and_gradients_are_those_of_the_mask(rows, length, self_key):
    reset = torch.zeros(len(rows), length, dtype=torch.bool)
    for row, sizes in zip(reset, rows):
        row[[place for place in torch.tensor(sizes).cumsum(0).tolist() if place < length]] = True
    inputs = packed(reset)
    upstream = torch.randn(inputs[0].shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    results = []
    for mixed in (
        document_attention(*inputs, 0.5, layout_of(reset), self_key),
        reference(*inputs, 0.5, reset, self_key),
    ):
        results.append((mixed, *torch.autograd.grad((mixed * upstream).sum(), inputs)))
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_every_token_of_a_document_comes_from_it_alone():
    """A change in one document changes nothing in the others, and nothing before it in its own."""
    reset = torch.zeros(1, 50, dtype=torch.bool)
    reset[0, [7, 30]] = True
    q, k, v = (t.detach() for t in packed(reset))
    before = document_attention(q, k, v, 1.0, layout_of(reset))
    k[:, :, 12] += 1
    changed = (document_attention(q, k, v, 1.0, layout_of(reset)) != before).any(dim=-1)[0, 0]
    assert changed.nonzero().flatten().tolist() == list(range(12, 30))


class LargestTensor(TorchDispatchMode):
    """Notes how many elements the largest tensor has that any operation returns."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        sizes = [t.untyped_storage().nbytes() for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
        self.largest = max(self.largest, *sizes, 0)
        return out


def largest_of_a_step(length, dense):
    """Bytes of the largest tensor that a step of attention makes in one row of packed documents, forth and back."""
    reset = torch.zeros(1, length, dtype=torch.bool)
    reset[0, ::100] = True
    inputs = packed(reset, torch.float32, heads=1, size=8)
    with LargestTensor() as seen:
        context = Context(1, length, reset.device, reset=reset)
        mixed = reference(*inputs, 1.0, reset) if dense else attend(*inputs, 1.0, context, True)
        mixed.sum().backward()
    return seen.largest


def test_memory_grows_with_the_length_and_not_with_its_square():
    short, long = (largest_of_a_step(length, dense=False) for length in (512, 4096))
    assert long <= 9 * short
    assert largest_of_a_step(4096, dense=True) >= 4096**2  # so a mask would have been seen


@pytest.mark.parametrize("name", ["rope", "mapwm", "mapwm-nc"])
def test_a_model_reads_packed_documents_as_it_reads_them_apart(name):
    torch.manual_seed(0)
    model = mf.build_model(name, vocab_size=11, d_model=32, n_heads=2, n_layers=2)
    documents = [torch.randint(11, (1, size)) for size in (5, 40, 1, 18)]
    tokens = torch.cat(documents, dim=1)
    reset = torch.zeros_like(tokens, dtype=torch.bool)
    reset[0, [5, 45, 46]] = True
    apart = torch.cat([model(document) for document in documents], dim=1)
    torch.testing.assert_close(model(tokens, reset=reset), apart, rtol=1e-4, atol=1e-5)
