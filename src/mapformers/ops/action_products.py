"""e ← norm(act(e W_a)) at every action: the positions of `tem-t`.

Each step needs the one before, so it is a loop: over the n-th action of all rows at once, however far apart those are
in the tokens, which takes half as many steps as a loop over tokens where every other token acts.

Measured (1 layer of 64, batch 32 x 256, one thread): a backward pass written by hand was 7 % slower than autograd
through this loop, in which every place is multiplied by the matrices of all actions and one product is picked.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

Activation = Literal["linear", "relu", "tanh"]
EPS = 1e-5  # of the layer norm


def normed(x: Tensor) -> Tensor:
    """A layer norm without parameters: it keeps e bounded after any number of steps."""
    return layer_norm(x, x.shape[-1:], eps=EPS)


def activate(x: Tensor, act: str) -> Tensor:
    return x if act == "linear" else x.relu() if act == "relu" else x.tanh()


class Steps(NamedTuple):
    """Which steps are made in a chunk. A path has N + 2 places: the start, those after each step, and last e_0."""

    action: Tensor  # (N, B) the n-th action of each row; rows that have fewer repeat other actions, to no effect
    restarts: Tensor | None  # (N, B) True where the step sets out from e_0, a document having begun since the last
    place: Tensor  # (B, L) the place of every token in the path


def plan(action: Tensor, reset: Tensor | None) -> Steps:
    acts = action >= 0
    made = acts.long().cumsum(dim=1)  # (B, L) steps up to each token
    # A compiler must know the number of steps beforehand: there may be as many as tokens.
    n = action.shape[1] if torch.compiler.is_compiling() else int(made[:, -1].max())
    token = acts.long().argsort(dim=1, descending=True, stable=True)[:, :n]
    steps = action.gather(1, token).clamp(min=0).T.contiguous()
    if reset is None:
        return Steps(steps, None, made)
    document = reset.long().cumsum(dim=1)
    of_place = torch.cat((torch.zeros_like(document[:, :1]), document.gather(1, token)), dim=1)  # (B, 1 + N)
    restarts = (of_place[:, 1:] != of_place[:, :-1]).T
    return Steps(steps, restarts, torch.where(of_place.gather(1, made) == document, made, n + 1))


def action_products(
    moves: Tensor, origin: Tensor, start: Tensor, action: Tensor, reset: Tensor | None, act: str
) -> Tensor:
    """The place e of every token, (B, L, H, D).

    ``moves`` (A, H, D, D), ``origin`` e_0 (H, D), ``start`` (B, H, D) where the chunk before ended, ``action`` (B, L)
    with −1 where there is none.
    """
    steps = plan(action, reset)
    n_actions, _, size, _ = moves.shape
    side_by_side = moves.permute(1, 2, 0, 3).flatten(2)  # (H, D, A·D)
    # Rows are heads from here on: (H, B, D).
    place, first = start.transpose(0, 1), origin.unsqueeze(1)
    picks = torch.nn.functional.one_hot(steps.action, n_actions).to(start.dtype)[:, None, :, :, None]  # (N, 1, B, A, 1)
    path = [place]
    for n in range(len(steps.action)):
        if steps.restarts is not None:
            place = torch.where(steps.restarts[n, :, None], first, place)
        moved = (torch.bmm(place, side_by_side).unflatten(-1, (n_actions, size)) * picks[n]).sum(dim=2)
        place = normed(activate(moved, act))
        path.append(place)
    path.append(first.expand_as(place))
    return torch.stack(path).permute(2, 0, 1, 3).take_along_dim(steps.place[:, :, None, None], dim=1)
