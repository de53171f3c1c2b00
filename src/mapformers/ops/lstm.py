"""An LSTM over packed and padded sequences: a loop over time, forward and backward.

`torch.lstm` is twice as fast (batch 32 x 64, H 64, one thread) but knows no resets and no padding within a row, and a
compiler unrolls it. This loop is for those.
"""

import torch
from torch import Tensor

from mapformers.ops.operator import gradients_of, in_forward_mode
from mapformers.ops.recurrent_cells import CELLS, cell_step, found

CELL = CELLS["lstm"]


def lstm(
    z: Tensor, weight: Tensor, h: Tensor, c: Tensor, reset: Tensor | None = None, real: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """h of every token (L, B, H), and the last c (B, H).

    ``z`` (L, B, 4H) what the tokens add to the gates; ``weight`` (4H, H) what h adds; ``h``, ``c`` (B, H) the state
    before; ``reset`` (B, L) bool: the state is 0 before this token; ``real`` (B, L) bool: False leaves it as it was.
    """
    if in_forward_mode():
        return lstm_loop(z, weight, h, c, reset, real)
    keep = None if reset is None else ~reset.T.unsqueeze(-1)
    y, cells, _ = _lstm(z, weight, h, c, keep, None if real is None else real.T.unsqueeze(-1))
    return y, cells[-1]


def lstm_loop(
    z: Tensor, weight: Tensor, h: Tensor, c: Tensor, reset: Tensor | None = None, real: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The same in plain torch: what `lstm` must equal."""
    outputs = []
    for t, z_t in enumerate(z):
        if reset is not None:
            h, c = (torch.where(reset[:, t, None], 0.0, state) for state in (h, c))
        after = cell_step("lstm", z_t + h @ weight.T, c)
        h, c = after if real is None else (torch.where(real[:, t, None], a, b) for a, b in zip(after, (h, c)))
        outputs.append(h)
    return torch.stack(outputs), c


@torch.library.custom_op("mapformers::lstm", mutates_args=())
def _lstm(
    z: Tensor, weight: Tensor, h: Tensor, c: Tensor, keep: Tensor | None, real: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """h, c and the gates of every token; an operator, so that it compiles. ``keep``, ``real`` (L, B, 1)."""
    gates = z.clone(memory_format=torch.contiguous_format)
    y, cells = (z.new_empty(*z.shape[:2], h.shape[-1]) for _ in range(2))
    across = weight.T
    for t, (z_t, h_t, c_t) in enumerate(zip(gates.unbind(), y.unbind(), cells.unbind())):
        if keep is not None:
            h, c = h * keep[t], c * keep[t]
        CELL.step(z_t.addmm_(h, across), c, c_t, h_t)
        if real is not None:
            torch.where(real[t], h_t, h, out=h_t)
            torch.where(real[t], c_t, c, out=c_t)
        h, c = h_t, c_t
    return y, cells, gates


@torch.library.custom_op("mapformers::lstm_backward", mutates_args=())
def _lstm_backward(
    grad_y: Tensor,
    grad_cells: Tensor,
    y: Tensor,
    cells: Tensor,
    gates: Tensor,
    weight: Tensor,
    h: Tensor,
    c: Tensor,
    keep: Tensor | None,
    real: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of z, weight, and of h and c at the start."""
    dz, dh, dc = torch.empty_like(gates), torch.zeros_like(h), torch.zeros_like(c)
    slopes = zip(*(slope.unbind() for slope in CELL.slopes(gates, found(c, cells, keep), cells, y)))
    for t, at in reversed(list(enumerate(slopes))):
        dh, dc = dh + grad_y[t], dc + grad_cells[t]
        if real is None:
            CELL.back(at, dh, dc, dz[t])
            dh = dz[t] @ weight
        else:
            past_h, past_c = dh * ~real[t], dc * ~real[t]  # padding hands them on
            dc = dc * real[t]
            CELL.back(at, dh * real[t], dc, dz[t])
            dh, dc = torch.addmm(past_h, dz[t], weight), dc + past_c
        if keep is not None:
            dh, dc = dh * keep[t], dc * keep[t]
    return dz, dz.flatten(0, 1).T @ found(h, y, keep).flatten(0, 1), dh, dc


@_lstm.register_fake
def _(z, weight, h, c, keep, real):  # type: ignore[no-untyped-def]
    y, cells = (z.new_empty(*z.shape[:2], h.shape[-1]) for _ in range(2))
    return y, cells, z.new_empty(z.shape)


@_lstm_backward.register_fake
def _(grad_y, grad_cells, y, cells, gates, weight, h, c, keep, real):  # type: ignore[no-untyped-def]
    return tuple(t.new_empty(t.shape) for t in (gates, weight, h, c))


def _save(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*output, *inputs)


def _backward(ctx, grad_y, grad_cells, _):  # type: ignore[no-untyped-def]
    y, cells, gates, z, *others = ctx.saved_tensors
    if torch.is_grad_enabled():
        return gradients_of(_plain, (z, *others), ctx.needs_input_grad, (grad_y, grad_cells[-1]))
    return *_lstm_backward(grad_y, grad_cells, y, cells, gates, *others), None, None


def _plain(
    z: Tensor, weight: Tensor, h: Tensor, c: Tensor, keep: Tensor | None, real: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`lstm_loop` as the operator is called."""
    reset, is_real = (None if flag is None else flag.squeeze(-1).T for flag in (keep, real))
    return lstm_loop(z, weight, h, c, None if reset is None else ~reset, is_real)


_lstm.register_autograd(_backward, setup_context=_save)
