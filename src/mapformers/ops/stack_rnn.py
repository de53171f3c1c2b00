"""A recurrent network with continuous stacks: a loop over time, forward and backward (Joulin & Mikolov 2015).

A tape holds a stack of n cells between its two edges: cell 0 is what would be pushed, cells 1 to n are the stack from
its top, and cell n + 1 is 0. So the stacks after a push, after a pop and after neither are three windows of one tape,
and the next stack is their mean, weighted by the actions.

Autograd through `stack_loop` makes a training step 1.4 to 1.5 times as long (`mapformers bench ops`; batch 32,
64 and 256 tokens, one thread), and a compiler unrolls it.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from mapformers.ops.operator import gradients_of, in_forward_mode
from mapformers.ops.recurrent_cells import CELLS, cell_step, found


class StackState(NamedTuple):
    h: Tensor  # (B, H)
    c: Tensor  # (B, H), or (B, 0) of a controller that has no such cell
    stack: Tensor  # (B, S, n, W) the top first


class Run(NamedTuple):
    h: Tensor  # (L, B, H)
    last: StackState
    actions: Tensor  # (L, B, S, A): push, pop, and perhaps none
    stacks: Tensor  # (L, B, S, n, W) as each token finds them


def stack_rnn(
    z: Tensor,
    weight: Tensor,
    acting: Tensor,
    bias: Tensor,
    start: StackState,
    reset: Tensor | None,
    real: Tensor | None,
    controller: str,
) -> Run:
    """Every token in turn: gates from h and the tops, a new h, actions from h, new stacks.

    ``z`` (L, B, gates·H) what the tokens add to the gates; ``weight`` (gates·H, H + S·W) what h and the tops add;
    ``acting`` (S·(A + W), H) and ``bias``: of each stack the logits of its actions, and what would be pushed before its
    sigmoid; ``reset`` (B, L) bool: the state is 0 before this token; ``real`` (B, L) bool: False leaves it as it was.
    ``controller`` is a cell of `recurrent_cells.py`. Actions and stacks are to be looked at, and carry no gradient.
    """
    if in_forward_mode():
        return stack_loop(z, weight, acting, bias, start, reset, real, controller)
    keep = None if reset is None else ~reset.T.unsqueeze(-1)
    is_real = None if real is None else real.T.unsqueeze(-1)
    y, c, stack, _, _, actions, tapes = _run(z, weight, acting, bias, *start, keep, is_real, controller)
    return Run(y, StackState(y[-1], c, stack), actions.detach(), tapes[:, :, :, 1:-1].detach())


def stack_loop(
    z: Tensor,
    weight: Tensor,
    acting: Tensor,
    bias: Tensor,
    start: StackState,
    reset: Tensor | None,
    real: Tensor | None,
    controller: str,
) -> Run:
    """The same in plain torch: what `stack_rnn` must equal."""
    state, fresh = start, StackState(*(torch.zeros_like(part) for part in start))
    _, n_stacks, _, width = start.stack.shape
    outputs, actions, stacks = [], [], []
    for t, z_t in enumerate(z):
        if reset is not None:
            state = _choose(reset[:, t], fresh, state)
        stack = state.stack
        seen = torch.cat((state.h, stack[:, :, 0].flatten(1)), dim=-1)
        h, c = cell_step(controller, z_t + seen @ weight.T, state.c)
        logits, value = (h @ acting.T + bias).unflatten(-1, (n_stacks, -1)).tensor_split([-width], dim=-1)
        push = torch.cat((value.sigmoid().unsqueeze(2), stack[:, :, :-1]), dim=2)
        pop = torch.cat((stack[:, :, 1:], torch.zeros_like(stack[:, :, :1])), dim=2)
        action = logits.softmax(dim=-1)
        results = torch.stack((push, pop, stack)[: action.shape[-1]], dim=2)  # (B, S, A, n, W)
        after = StackState(h, c, (action[..., None, None] * results).sum(dim=2))
        state = after if real is None else _choose(real[:, t], after, state)
        outputs.append(state.h)
        actions.append(action)
        stacks.append(stack)
    return Run(torch.stack(outputs), state, torch.stack(actions).detach(), torch.stack(stacks).detach())


def _choose(where: Tensor, one: StackState, other: StackState) -> StackState:
    """``one`` in the rows that are True (B), ``other`` elsewhere."""
    return StackState(*(torch.where(where.view(-1, *(1,) * (a.dim() - 1)), a, b) for a, b in zip(one, other)))


@torch.library.custom_op("mapformers::stack_rnn", mutates_args=())
def _run(
    z: Tensor,
    weight: Tensor,
    acting: Tensor,
    bias: Tensor,
    h: Tensor,
    c: Tensor,
    stack: Tensor,
    keep: Tensor | None,
    real: Tensor | None,
    controller: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """h of every token, the last c and stacks, and what the backward pass needs; an operator, so that it compiles."""
    cell, stack, width = CELLS[controller], stack.clone(), stack.shape[-1]
    y, cells, gates, actions, tapes = _allocate(z, h, c, stack, bias)
    from_h, from_top, act = weight[:, : h.shape[-1]].T, weight[:, h.shape[-1] :].T, acting.T
    for t, (z_t, h_t, c_t, a_t, tape) in enumerate(zip(*(part.unbind() for part in (gates, y, cells, actions, tapes)))):
        if keep is not None:
            h, c = h * keep[t], c * keep[t]
            stack.mul_(keep[t, :, :, None, None])
        tape[:, :, 1:-1] = stack
        torch.addmm(z[t], h, from_h, out=z_t).addmm_(stack[:, :, 0].flatten(1), from_top)
        cell.step(z_t, c, c_t, h_t)
        chosen, pushed = torch.addmm(bias, h_t, act).view(*a_t.shape[:2], -1).split((a_t.shape[-1], width), dim=-1)
        torch.softmax(chosen, dim=-1, out=a_t)
        torch.sigmoid(pushed, out=tape[:, :, 0])
        _mean(_windows(tape), a_t, out=stack)
        if real is not None:
            torch.where(real[t], h_t, h, out=h_t)
            torch.where(real[t], c_t, c, out=c_t)
            torch.where(real[t, :, :, None, None], stack, tape[:, :, 1:-1], out=stack)
        h, c = h_t, c_t
    return y, c.clone(), stack, cells, gates, actions, tapes


@torch.library.custom_op("mapformers::stack_rnn_backward", mutates_args=())
def _run_backward(
    dy: Tensor,
    dc: Tensor,
    d_stack: Tensor,
    y: Tensor,
    cells: Tensor,
    gates: Tensor,
    actions: Tensor,
    tapes: Tensor,
    weight: Tensor,
    acting: Tensor,
    h: Tensor,
    c: Tensor,
    keep: Tensor | None,
    real: Tensor | None,
    controller: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of z, weight, acting, bias, and of h, c and the stacks at the start."""
    cell, size, dc, d_stack = CELLS[controller], h.shape[-1], dc.clone(), d_stack.clone()
    dz, dh, d_tape = torch.empty_like(gates), torch.zeros_like(h), torch.zeros_like(tapes[0])
    d_act = actions.new_empty(*actions.shape[:3], actions.shape[-1] + tapes.shape[-1])
    slopes = zip(*(slope.unbind() for slope in cell.slopes(gates, found(c, cells, keep), cells, y)))
    for t, at in reversed(list(enumerate(slopes))):
        dh = dh + dy[t]
        past = None
        if real is not None:
            flags = real[t], real[t], real[t, :, :, None, None]
            past = [d * ~flag for d, flag in zip((dh, dc, d_stack), flags)]  # padding hands them on
            dh, dc, d_stack = (d * flag for d, flag in zip((dh, dc, d_stack), flags))
        _act_backward(tapes[t], actions[t], d_stack, out=d_act[t])
        cell.back(at, torch.addmm(dh, d_act[t].flatten(1), acting), dc, dz[t])
        d_seen = dz[t] @ weight
        d_tape[:, :, 1:-1] = d_stack
        after_push, after_pop, *after_none = _windows(d_tape)  # what a push moved down, its gradient moves up
        _mean([after_pop, after_push, *after_none], actions[t], out=d_stack)
        d_stack[:, :, 0] += d_seen[:, size:].view_as(d_stack[:, :, 0])
        dh = d_seen[:, :size]
        if past is not None:
            dh, dc, d_stack = (d + passed for d, passed in zip((dh, dc, d_stack), past))
        if keep is not None:
            dh, dc, d_stack = dh * keep[t], dc * keep[t], d_stack * keep[t, :, :, None, None]
    seen = torch.cat((found(h, y, keep), tapes[:, :, :, 1].flatten(2)), dim=-1).flatten(0, 1)
    flat = d_act.flatten(2).flatten(0, 1)
    return dz, dz.flatten(0, 1).T @ seen, flat.T @ y.flatten(0, 1), flat.sum(dim=0), dh.contiguous(), dc, d_stack


def _allocate(z: Tensor, h: Tensor, c: Tensor, stack: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    """Tensors for what every token leaves behind: h, c, gates, actions and tapes, whose edges are 0."""
    length, (batch, n_stacks, depth, width) = len(z), stack.shape
    y, cells = (z.new_empty(length, batch, state.shape[-1]) for state in (h, c))
    actions = z.new_empty(length, batch, n_stacks, len(bias) // n_stacks - width)
    return y, cells, z.new_empty(z.shape), actions, z.new_zeros(length, batch, n_stacks, depth + 2, width)


def _windows(tape: Tensor) -> list[Tensor]:
    """The stack after a push, after a pop, and as it is, (B, S, n, W) each."""
    return [tape[:, :, :-2], tape[:, :, 2:], tape[:, :, 1:-1]]


def _mean(windows: list[Tensor], actions: Tensor, out: Tensor) -> None:
    first, *others = (a[..., None, None] for a in actions.unbind(-1))
    torch.mul(windows[0], first, out=out)
    for window, weight in zip(windows[1:], others):
        out.addcmul_(window, weight)


def _act_backward(tape: Tensor, actions: Tensor, d_stack: Tensor, out: Tensor) -> None:
    """Into ``out`` (B, S, A + W) the gradients of the logits, and of what is pushed before its sigmoid."""
    n_actions = actions.shape[-1]
    per_action = torch.stack([(d_stack * w).sum(dim=(-1, -2)) for w in _windows(tape)[:n_actions]], dim=-1)
    weighted = actions * per_action
    torch.addcmul(weighted, actions, weighted.sum(dim=-1, keepdim=True), value=-1, out=out[..., :n_actions])
    pushed = tape[:, :, 0]
    torch.mul(d_stack[:, :, 0] * actions[..., :1], pushed * (1 - pushed), out=out[..., n_actions:])


@_run.register_fake
def _(z, weight, acting, bias, h, c, stack, keep, real, controller):  # type: ignore[no-untyped-def]
    y, *others = _allocate(z, h, c, stack, bias)
    return y, c.new_empty(c.shape), stack.new_empty(stack.shape), *others


@_run_backward.register_fake
def _(dy, dc, d_stack, y, cells, gates, actions, tapes, weight, acting, h, c, keep, real, controller):  # type: ignore[no-untyped-def]
    d_bias = acting.new_empty(len(acting))
    gradients = (t.new_empty(t.shape) for t in (gates, weight, acting, d_bias, h, c, d_stack))
    return tuple(gradients)


def _save(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    *tensors, ctx.controller = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[0], *output[3:], *tensors)


def _backward(ctx, dy, dc, d_stack, *_):  # type: ignore[no-untyped-def]
    y, cells, gates, actions, tapes, *tensors = ctx.saved_tensors
    _, weight, acting, _, h, c, stack, keep, real = tensors
    given = [torch.zeros_like(t) if d is None else d for d, t in ((dy, y), (dc, c), (d_stack, stack))]
    if torch.is_grad_enabled():
        return gradients_of(_plain, (*tensors, ctx.controller), ctx.needs_input_grad, given)
    made = (y, cells, gates, actions, tapes, weight, acting, h, c, keep, real)
    return *_run_backward(*given, *made, ctx.controller), None, None, None


def _plain(z, weight, acting, bias, h, c, stack, keep, real, controller):  # type: ignore[no-untyped-def]
    """`stack_loop` as the operator is called: h of every token, the last c and stacks."""
    reset, is_real = (None if flag is None else flag.squeeze(-1).T for flag in (keep, real))
    start = StackState(h, c, stack)
    run = stack_loop(z, weight, acting, bias, start, None if reset is None else ~reset, is_real, controller)
    return run.h, run.last.c, run.last.stack


_run.register_autograd(_backward, setup_context=_save)
