"""Plain forms of what a graph of a model may hold: the library's own operators, and what exists in no browser.

An operator is opaque to whoever reads a graph. `torch.export` takes a table of functions that compute the same with
ordinary operators; these are for a single token, or for whole sequences where the same lines serve both.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from mapformers.errors import require
from mapformers.lie.generators import n_generators
from mapformers.ops import conjunctive_attention, contextual_attention, rotation_products, selective_scan, stack_rnn
from mapformers.ops import lstm as lstm_operator
from mapformers.ops.recurrent_cells import cell_step
from mapformers.ops.visibility import Visibility

TERMS, HALVINGS = 12, 10  # of the exponential of a matrix: exact in float64 up to a norm of a few hundred


class PlainForms(TorchFunctionMode):
    """Inside the ``with`` block, every operator of the table is computed by its plain form, whoever calls it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return TABLE.get(func, func)(*args, **(kwargs or {}))


class OneQuery(Visibility):
    """What a single query sees, the last token there is, whether or not there are others before it."""

    def mask(self, rows: slice, n_keys: int, device: torch.device | None = None, batch: slice | None = None) -> Tensor:
        assert self.real is not None
        if self.self_key:
            return self.real.unsqueeze(1)
        n = self.real.shape[1]
        own = torch.arange(n, device=self.real.device) == n - 1
        earlier = self.real & ~own
        return (earlier | (own & ~earlier.any(dim=-1, keepdim=True))).unsqueeze(1)

    def n_keys(self, length: int, device: torch.device | None = None) -> Tensor:
        return self.mask(slice(0, length), 0)[:, 0].sum(dim=-1, keepdim=True)


def _visibility(length: int, *settings: Any) -> Visibility:
    return (OneQuery if length == 1 else Visibility)(*settings)


def _require_one(length: int) -> None:
    require(length == 1, "This form is that of a single token.")


def conjunctive(
    q: Tensor, k: Tensor, q_place: Tensor, k_place: Tensor, v: Tensor, documents: Tensor | None, real: Tensor | None,
    scale: float, start: int, self_key: bool, causal: bool,
) -> Tensor:  # fmt: skip
    visibility = _visibility(q.shape[1], start, self_key, causal, documents, real)
    q, k, q_place, k_place, v = (t.unsqueeze(1) for t in (q, k, q_place, k_place, v))
    return conjunctive_attention.conjunctive_reference(q, k, q_place, k_place, v, scale, visibility).squeeze(1)


def contextual(
    q: Tensor, k: Tensor, v: Tensor, z: Tensor, sharpness: Tensor, documents: Tensor | None, real: Tensor | None,
    scale: float, start: int, self_key: bool,
) -> Tensor:  # fmt: skip
    """As in `ops/contextual_attention.py`, by running sums from the latest key back."""
    visibility = _visibility(q.shape[1], start, self_key, True, documents, real)
    allowed = visibility.mask(slice(0, q.shape[1]), k.shape[1], q.device)
    content = (q * scale) @ k.mT
    gates = torch.where(allowed, content.sigmoid(), 0.0)
    position = gates.flip(-1).cumsum(dim=-1).flip(-1).clamp(max=z.shape[-1] - 2)
    floor = position.floor()
    low = z.gather(-1, floor.long())
    high = z.gather(-1, floor.long() + 1)
    logits = (content + low + (high - low) * (position - floor)) * sharpness
    return torch.where(allowed, logits, -math.inf).softmax(dim=-1) @ v


def scan_one(
    delta: Tensor, rate: Tensor | None, omega: Tensor | None, v: Tensor, b: Tensor, c: Tensor, start: Tensor,
    reset: Tensor | None, chunk: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    _require_one(v.shape[1])
    y, last = selective_scan._one_step(delta, rate, omega, v, b, c, start, reset)
    return y, last, start.unsqueeze(1)


def lstm_one(
    z: Tensor, weight: Tensor, h: Tensor, c: Tensor, keep: Tensor | None, real: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    _require_one(z.shape[0])
    h, c = cell_step("lstm", z[0] + h @ weight.T, c)
    return h.unsqueeze(0), c.unsqueeze(0), torch.zeros_like(z)


def stack_one(
    z: Tensor, weight: Tensor, acting: Tensor, bias: Tensor, h: Tensor, c: Tensor, stack: Tensor, keep: Tensor | None,
    real: Tensor | None, controller: str,
) -> tuple[Tensor, ...]:  # fmt: skip
    _require_one(z.shape[0])
    _, n_stacks, _, width = stack.shape
    seen = torch.cat((h, stack[:, :, 0].flatten(1)), dim=-1)
    h, c = cell_step(controller, z[0] + seen @ weight.T, c)
    chosen = (h @ acting.T + bias).unflatten(-1, (n_stacks, -1))
    action = chosen[..., :-width].softmax(dim=-1)
    pushed, below = chosen[..., -width:].sigmoid().unsqueeze(2), torch.zeros_like(stack[:, :, :1])
    tape = torch.cat((pushed, stack, below), dim=2)
    windows = torch.stack((tape[:, :, :-2], tape[:, :, 2:], tape[:, :, 1:-1])[: action.shape[-1]], dim=2)
    after = (action[..., None, None] * windows).sum(dim=2)
    return h.unsqueeze(0), c.clone(), after, c.unsqueeze(0), torch.zeros_like(z), action.unsqueeze(0), tape.unsqueeze(0)


def accumulate(theta: Tensor, n: int) -> Tensor:
    """What only makes the gradient and the steps after it faster; `apply` does without."""
    _require_one(theta.shape[2] * theta.shape[3])
    shape = (4, n - 2) if n in (3, 4) else (n, n)
    return theta.new_zeros(*shape, *theta.shape[1:])


def apply(theta: Tensor, p: Tensor, x: Tensor, n: int, back: bool) -> Tensor:
    """P x, or Pᵀ x (``back``), of vectors x (n, V, G, 1, 1, B) after a single step of angles (K, G, 1, 1, B)."""
    turn = rotation(theta, n).squeeze(1).squeeze(1)  # (G, B, n, n)
    x = x.expand(*x.shape[:3], *theta.shape[2:])
    columns = x.squeeze(3).squeeze(3).permute(2, 3, 0, 1)  # (G, B, n, V)
    turned = (turn.mT if back else turn) @ columns
    return turned.permute(2, 3, 0, 1).unsqueeze(3).unsqueeze(3)


def rotation_at(theta: Tensor, p: Tensor, n: int, t: int) -> Tensor:
    return rotation(theta, n).squeeze(1).squeeze(1).permute(2, 3, 0, 1)


def rotation(theta: Tensor, n: int) -> Tensor:
    """exp(Σ_k θ_k S_k) of angles (K, …) as matrices (…, n, n): a cosine and a sine, or a series, halved and squared."""
    if n == 2:
        cos, sin = theta[0].cos(), theta[0].sin()
        return torch.stack((cos, -sin, sin, cos), dim=-1).unflatten(-1, (2, 2))
    skew = _skew(theta.to(torch.float64), n) * 2.0**-HALVINGS
    one = torch.eye(n, dtype=skew.dtype, device=skew.device)
    power = one + skew / TERMS
    for term in range(TERMS - 1, 0, -1):  # Horner
        power = one + (skew @ power) / term
    for _ in range(HALVINGS):
        power = power @ power
    return power.to(theta.dtype)


def _skew(theta: Tensor, n: int) -> Tensor:
    """Σ_k θ_k S_k as in `lie/generators.py`, (K, …) -> (…, n, n), without tables."""
    assert len(theta) == n_generators(n)
    numbers = iter(theta.unbind(0))
    zero = torch.zeros_like(theta[0])
    rows = [[zero] * n for _ in range(n)]
    for i in range(n):
        for j in range(i + 1, n):
            angle = next(numbers)
            rows[j][i], rows[i][j] = angle, -angle
    return torch.stack([entry for row in rows for entry in row], dim=-1).unflatten(-1, (n, n))


def solve_triangular(a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """Of the systems that `path` makes of a single token: one row, whose diagonal is 1."""
    _require_one(a.shape[-1])
    assert unitriangular and left
    return b.clone()


def argsort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """Of the actions of a single token: there is nothing to sort."""
    _require_one(x.shape[dim])
    return torch.zeros_like(x, dtype=torch.long)


def one_hot(x: Tensor, num_classes: int) -> Tensor:
    return (x.unsqueeze(-1) == torch.arange(num_classes, device=x.device)).long()


def take_along_dim(x: Tensor, index: Tensor, dim: int) -> Tensor:
    shape = list(x.shape)
    shape[dim] = index.shape[dim]
    return x.gather(dim, index.expand(shape))


TABLE: dict[Any, Callable[..., Any]] = {
    torch.linalg.solve_triangular: solve_triangular,
    torch.Tensor.argsort: argsort,
    torch.Tensor.take_along_dim: take_along_dim,
    torch.nn.functional.one_hot: one_hot,
    conjunctive_attention._attend._opoverload: conjunctive,
    contextual_attention._attend._opoverload: contextual,
    selective_scan._scan._opoverload: scan_one,
    lstm_operator._lstm._opoverload: lstm_one,
    stack_rnn._run._opoverload: stack_one,
    rotation_products.accumulate._opoverload: accumulate,
    rotation_products.apply._opoverload: apply,
    rotation_products.rotation_at._opoverload: rotation_at,
}
