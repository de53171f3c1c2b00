"""The walk of `tem-t`: e ← norm(act(e W_a)) at every action, with its own backward pass."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

Activation = Literal["linear", "relu", "tanh"]
EPS = 1e-5  # of the layer norm


def normed(x: Tensor) -> Tensor:
    """A layer norm without parameters: it keeps e bounded on walks of any length."""
    return layer_norm(x, x.shape[-1:], eps=EPS)


def activate(x: Tensor, act: str) -> Tensor:
    return x if act == "linear" else x.relu() if act == "relu" else x.tanh()


def slope(x: Tensor, act: str) -> Tensor:
    """The derivative of the activation."""
    return torch.ones_like(x) if act == "linear" else (x > 0).to(x.dtype) if act == "relu" else 1 - x.tanh().square()


class Walk(NamedTuple):
    """Which steps are made in a chunk: the n-th action of all rows is one step, however far apart in the tokens.

    A path has N + 2 places: where the chunk starts, those after each step, and last e_0.
    """

    token: Tensor  # (B, N) the token that is the n-th action of its row; rows that have fewer repeat other tokens
    action: Tensor  # (N, B) which action that is
    restarts: Tensor | None  # (N, B) True where the step sets out from e_0, a document having begun since the last
    place: Tensor  # (B, L) the place of every token in the path


def plan(action: Tensor, reset: Tensor | None) -> Walk:
    acts = action >= 0
    made = acts.long().cumsum(dim=1)  # (B, L) steps up to each token
    n = int(made[:, -1].max())
    token = acts.long().argsort(dim=1, descending=True, stable=True)[:, :n]
    steps = action.gather(1, token).clamp(min=0).T.contiguous()
    if reset is None:
        return Walk(token, steps, None, made)
    document = reset.long().cumsum(dim=1)
    of_place = torch.cat((torch.zeros_like(document[:, :1]), document.gather(1, token)), dim=1)  # (B, 1 + N)
    restarts = (of_place[:, 1:] != of_place[:, :-1]).T
    return Walk(token, steps, restarts, torch.where(of_place.gather(1, made) == document, made, n + 1))


def set_out(places: Tensor, origin: Tensor, restarts: Tensor | None) -> Tensor:
    """From where steps are made: the place before, (…, B, H, D), or e_0 in a new document."""
    return places if restarts is None else torch.where(restarts[..., None, None], origin, places)


@torch.library.custom_op("mapformers::tem_walk", mutates_args=())
def walk(moves: Tensor, origin: Tensor, start: Tensor, action: Tensor, reset: Tensor | None, act: str) -> Tensor:
    """The place e of every token, (B, L, H, D), by a loop over actions.

    ``moves`` (A, H, D, D), ``origin`` e_0 (H, D), ``start`` (B, H, D) where the chunk before ended, ``action`` (B, L)
    with −1 where there is none.
    """
    steps = plan(action, reset)
    n_steps = len(steps.action)
    path = start.new_empty(n_steps + 2, *start.shape)
    path[0], path[-1] = start, origin
    for n in range(n_steps):
        before = set_out(path[n], origin, None if steps.restarts is None else steps.restarts[n])
        moved = torch.einsum("bhi,bhij->bhj", before, moves.index_select(0, steps.action[n]))
        path[n + 1] = normed(activate(moved, act))
    return path.transpose(0, 1).take_along_dim(steps.place[:, :, None, None], dim=1)


@torch.library.custom_op("mapformers::tem_walk_backward", mutates_args=())
def _walk_backward(
    grad: Tensor,
    places: Tensor,
    moves: Tensor,
    origin: Tensor,
    start: Tensor,
    action: Tensor,
    reset: Tensor | None,
    act: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """The walk backwards: only the gradient itself is a loop, all else is done for all steps at once.

    With z = e W_a and ê = norm(act(z)) = (act(z) − mean)·r: dz = r·act′(z) ⊙ (g − mean(g) − ê·mean(g ⊙ ê)).
    """
    steps = plan(action, reset)
    n_steps, mine = len(steps.action), [steps.action == a for a in range(len(moves))]
    walked = places.take_along_dim(steps.token[:, :, None, None], dim=1).transpose(0, 1)  # (N, B, H, D)
    path = torch.cat((start.unsqueeze(0), walked, origin.expand_as(start).unsqueeze(0)))
    before = set_out(path[:-2], origin, steps.restarts)
    z = torch.empty_like(before)
    for a, here in enumerate(mine):
        z[here] = torch.einsum("mhi,hij->mhj", before[here], moves[a])
    y = activate(z, act)
    variance = (y - y.mean(dim=-1, keepdim=True)).square().mean(dim=-1, keepdim=True)
    factor = slope(z, act) * (variance + EPS).rsqrt()

    d_path = torch.zeros_like(path)
    spread = steps.place[:, :, None, None].expand_as(grad)
    d_path.transpose(0, 1).scatter_add_(1, spread, grad)
    d_z = torch.empty_like(z)
    for n in reversed(range(n_steps)):
        g, unit = d_path[n + 1], path[n + 1]
        along = (g * unit).mean(dim=-1, keepdim=True)
        torch.mul((g - g.mean(dim=-1, keepdim=True)).addcmul_(unit, along, value=-1), factor[n], out=d_z[n])
        back = torch.einsum("bhj,bhij->bhi", d_z[n], moves.index_select(0, steps.action[n]))
        if steps.restarts is None:
            d_path[n] += back
        else:
            from_origin = steps.restarts[n, :, None, None]
            d_path[n] += back.masked_fill(from_origin, 0.0)
            d_path[-1] += back.masked_fill(~from_origin, 0.0)
    d_moves = torch.stack([torch.einsum("mhi,mhj->hij", before[here], d_z[here]) for here in mine])
    return d_moves, d_path[-1].sum(dim=0), d_path[0].clone()


@walk.register_fake
def _(moves: Tensor, origin: Tensor, start: Tensor, action: Tensor, reset: Tensor | None, act: str) -> Tensor:
    return start.new_empty(*action.shape, *origin.shape)


@_walk_backward.register_fake
def _(grad: Tensor, places: Tensor, moves: Tensor, origin: Tensor, start: Tensor, *rest: object) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(t, memory_format=torch.contiguous_format) for t in (moves, origin, start))


def _save(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    *tensors, ctx.act = inputs
    ctx.save_for_backward(output, *tensors)


def _backward(ctx, grad):  # type: ignore[no-untyped-def]
    return *_walk_backward(grad, *ctx.saved_tensors, ctx.act), None, None, None


walk.register_autograd(_backward, setup_context=_save)
