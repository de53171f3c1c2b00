"""Second derivatives of every registered layer, where a gradient written by hand could be wrong without a word.

A Hessian-vector product equals the finite difference of gradients. The one exception is torch's own fused attention,
which raises: it has no second derivative, and `sdpa_kernel(SDPBackend.MATH)` is attention that has.
"""

import functools
import re
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from helpers import CASES, FIRST_CASES, Case, Layout, assert_same, thorough
from mapformers.modules.context import Context
from mapformers.modules.layer import RMSNorm
from mapformers.training import zero_mean

each = pytest.mark.parametrize("case", CASES, ids=str)
FUSED_HAS_NONE = "derivative for aten::_scaled_dot_product_.*_backward is not implemented"
STEP, TINY = 1e-4, 1e-6
assert_near = functools.partial(torch.testing.assert_close, rtol=1e-5, atol=1e-6)  # of a finite difference


class Bent:
    """A scalar function of a layer's input and parameters: a weighted sum of what it returns, or of its squares.

    Of a sum, the gradient at the output is a constant: nothing but the layer itself is then differentiated twice.
    """

    def __init__(self, case: Case, row: str, power: int):
        self.layer, self.layout, self.power = case.build(n_layers=1, mlp_ratio=1).layers[0], Layout([row]), power
        self.x = torch.randn(1, len(row), 16, dtype=torch.float64, requires_grad=True)
        self.inputs = [self.x, *(p for p in self.layer.parameters() if p.requires_grad)]
        self.directions = [torch.randn_like(t) for t in self.inputs]
        self.weight = torch.randn(int(self.layout.padding_mask.sum()), 16, dtype=torch.float64)

    def context(self) -> Context:
        undivided = bool(self.layout.padding_mask.all()) and len(set(self.layout.rows[0])) == 1
        return Context.of(self.layout.tokens) if undivided else self.layout.context()

    def __call__(self, x: Tensor) -> Tensor:
        out, _, _ = self.layer(x, None, None, self.context())
        return (self.weight * out[self.layout.padding_mask] ** self.power).sum()

    def gradients(self, create_graph: bool = False) -> tuple[Tensor, ...]:
        some = {"allow_unused": True, "materialize_grads": True}  # an action that does not occur
        return torch.autograd.grad(self(self.x), self.inputs, create_graph=create_graph, **some)

    def product(self) -> tuple[Tensor, ...]:
        """The Hessian times the directions, by differentiating twice."""
        along = sum((g * d).sum() for g, d in zip(self.gradients(create_graph=True), self.directions))
        return torch.autograd.grad(along, self.inputs, allow_unused=True, materialize_grads=True)

    def difference(self) -> list[Tensor]:
        """The same by gradients one and two steps ahead and behind, which is exact to the fourth order."""
        found = {steps: self.gradients_at(steps) for steps in (-2, -1, 1, 2)}
        parts = zip(*(found[steps] for steps in (-2, -1, 1, 2)))
        return [(behind2 - 8 * behind + 8 * ahead - ahead2) / (12 * STEP) for behind2, behind, ahead, ahead2 in parts]

    def gradients_at(self, steps: int) -> tuple[Tensor, ...]:
        kept = [t.detach().clone() for t in self.inputs]
        with torch.no_grad():
            for t, direction in zip(self.inputs, self.directions):
                t.add_(direction, alpha=steps * STEP)
        gradients = self.gradients()
        with torch.no_grad():
            for t, before in zip(self.inputs, kept):
                t.copy_(before)
        return gradients


PLAIN, MIXED = ("AAAAA", 1), ("AA.BB", 2)


@pytest.mark.parametrize(
    ("case", "row", "power"),
    [
        *((case, *MIXED) for case in CASES),
        *((case, *PLAIN) if case in FIRST_CASES else thorough(case, *PLAIN) for case in CASES),
    ],
    ids=str,
)
def test_hessian_vector_products_are_those_of_finite_differences(case: Case, row: str, power: int):
    bent = Bent(case, row, power)
    with sdpa_kernel(SDPBackend.MATH):
        expected = bent.difference()
        for found, wanted in zip(bent.product(), expected):
            assert_near(found, wanted)
    try:
        products = bent.product()
    except RuntimeError as error:
        assert re.search(FUSED_HAS_NONE, str(error))
    else:
        for found, wanted in zip(products, expected):
            assert_near(found, wanted)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # torch's own, in `jvp`
@pytest.mark.parametrize("case", FIRST_CASES, ids=str)
def test_derivatives_carried_forward_are_those_carried_backward(case: Case):
    """`torch.func.jvp` of a layer alone, and of its gradient, the other way to a Hessian-vector product."""
    bent = Bent(case, "AAAAA", 2)
    (module,) = (m for m in bent.layer.modules() if hasattr(m, "reference"))
    x, direction = bent.x.detach(), bent.directions[0]

    def derivative(function: Callable[[Tensor], Tensor]) -> Tensor:
        return torch.func.jvp(function, (x,), (direction,))[1].detach()

    def mixed(x: Tensor) -> Tensor:
        return module.mix(x, None, bent.context())[0]

    with sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        ahead, behind = mixed(x + TINY * direction), mixed(x - TINY * direction)
        assert_near(derivative(mixed), (ahead - behind) / (2 * TINY))
    with sdpa_kernel(SDPBackend.MATH):
        (gradient,) = torch.autograd.grad(bent(bent.x), bent.x, create_graph=True)
        (backward,) = torch.autograd.grad((gradient * direction).sum(), bent.x)
        assert_same(derivative(torch.func.grad(bent)), backward)


def test_the_norm_can_be_differentiated_twice():
    norm = RMSNorm(5).double()
    x = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    gain = torch.randn(5, dtype=torch.float64, requires_grad=True)

    def run(x: Tensor, gain: Tensor) -> Tensor:
        return torch.func.functional_call(norm, {"gain": gain}, (x,))

    assert torch.autograd.gradcheck(run, (x, gain))
    assert torch.autograd.gradgradcheck(run, (x, gain))


def test_a_sum_over_processes_can_be_differentiated_twice(monkeypatch):
    """Two processes that hold the same: the sum is twice what each has, and so is every derivative of it."""
    monkeypatch.setattr(dist, "all_reduce", lambda total: total.detach().mul_(2))
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(zero_mean._Sum.apply, (x,))
    assert torch.autograd.gradgradcheck(lambda x: zero_mean._Sum.apply(x) ** 3, (x,))
