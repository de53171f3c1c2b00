"""`tem-t`: TEM-transformer (Whittington 2022): a matrix per action moves on the map; told which tokens act (a control).

Position is a vector e that each action multiplies by a matrix of its own, whatever the observations say; attention
compares positions alone and reads out what was observed there. Nothing makes the matrices invertible or commuting,
and since each step needs the one before, it is a loop over time: what the maps of this library do without.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from mapformers.errors import require
from mapformers.modules.attention import HeadOptions, Projections, remember
from mapformers.modules.context import Context
from mapformers.modules.layer import register_layer
from mapformers.modules.memory import append
from mapformers.modules.mixer import Mixer
from mapformers.ops.action_products import Activation, action_products, activate, normed

# The start, the best of three on iid in 2D navigation, but by no more than seeds differ. Rotations near the identity
# commute to first order; from 0.1 on, opposite actions soon cancelled but after 300 steps others did not commute.
GENERATOR_STD = 0.02  # spread of the generators of W_a
COMPARISON_SCALE = 0.5  # W_e starts as this times the identity


@dataclass(frozen=True)
class TemTOptions(HeadOptions):
    """Those of attention, less `self_key`: here keys are strictly earlier by definition."""

    action_ids: tuple[int, ...] = ()
    """The tokens that are actions (those of the task); a model cannot be built without."""
    act: Activation = "linear"
    """What follows the matrix of an action, before the norm."""

    def __post_init__(self) -> None:
        super().__post_init__()
        ids = self.action_ids
        require(all(i >= 0 for i in ids), f"action_ids are tokens, counted from 0; {min(ids, default=0)} is none.")
        require(len(set(ids)) == len(ids), f"action_ids must name each action once, not {list(ids)}.")

    def check_vocabulary(self, vocab_size: int) -> None:
        beyond = [token for token in self.action_ids if token >= vocab_size]
        require(not beyond, f"action_ids names tokens {beyond}; the model knows 0 to {vocab_size - 1}.")


class TemMemory(NamedTuple):
    keys: Tensor  # (B, H, S, D) where each token stood, as it is compared
    values: Tensor  # (B, H, S, D)
    observed: Tensor  # (B, S) True where a token was an observation: neither an action nor padding
    place: Tensor  # (B, H, D) where we stand: e, in float32 or better


class TemT(Mixer):
    """e_t = norm(act(e_{t−1} W_a)) at an action a, e_t = e_{t−1} elsewhere; q = k = e W_e, v = x W_x.

    y_t = softmax(q_t K_{<t}ᵀ/√D) V_{<t} over the observations strictly earlier in the document; 0 where there are none.
    Every head moves on a map of its own, with its own W_a, W_e and start e_0. The layer norm has no parameters. As W_a
    counts at its own token, the query at an action already stands where the next observation will be made.
    """

    Options = TemTOptions
    options: TemTOptions
    action_of: Tensor

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        shape, ids = self.shape, self.options.action_ids
        require(
            len(ids) > 0,
            "tem-t must be told which tokens are actions: give action_ids=task.action_ids; "
            "a task that has none, such as selective-copy, is not for tem-t.",
        )
        self.heads = Projections(shape, self.options, parts=1)
        h, d = shape.n_heads, shape.head_dim
        self.moves = nn.Parameter(rotations(len(ids) * h, d).view(len(ids), h, d, d))  # W_a
        self.origin = nn.Parameter(torch.randn(h * d))  # e_0
        self.compare = nn.Parameter(COMPARISON_SCALE * torch.eye(d).repeat(h, 1, 1))  # W_e
        table = torch.full((max(ids) + 2,), -1)  # the last entry stands for all tokens beyond
        table[list(ids)] = torch.arange(len(ids))
        self.register_buffer("action_of", table, persistent=False)

    def actions(self, context: Context) -> Tensor:
        """(B, L) the number of the action each token is, −1 where it is none."""
        require(context.tokens is not None, "TemT is told which tokens act: call it with tokens=…, their ids (B, L).")
        assert context.tokens is not None
        action = self.action_of[context.tokens.clamp(max=len(self.action_of) - 1)]
        return action if context.padding_mask is None else action.masked_fill(~context.padding_mask, -1)

    def weights(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """W_a (A, H, D, D) and the normalised e_0 (H, D), in float32 or better."""
        wide = torch.promote_types(dtype, torch.float32)
        return self.moves.to(wide), normed(self.origin.to(wide).view(self.moves.shape[1:3]))

    def mix(self, x: Tensor, state: TemMemory | None, context: Context) -> tuple[Tensor, TemMemory]:
        (v,) = self.heads.split(x, context)
        action = self.actions(context)
        with torch.autocast(x.device.type, enabled=False):
            moves, origin = self.weights(x.dtype)
            start = origin.expand(len(x), -1, -1) if state is None else state.place
            places = action_products(moves, origin, start, action, context.reset, self.options.act)  # (B, L, H, D)
        k = (places.transpose(1, 2) @ self.compare.to(places.dtype)).to(v.dtype)
        observed = action < 0 if context.padding_mask is None else (action < 0) & context.padding_mask
        if state is not None:
            observed = append(state.observed, observed, dim=1)
        memory = TemMemory(**remember(state, keys=k, values=v), observed=observed, place=places[:, -1].clone())
        context.note(place=places)
        return self.heads.merge(self._recall(k, memory, context)), memory

    def _recall(self, q: Tensor, memory: TemMemory, context: Context) -> Tensor:
        scale, visible = self.heads.scale, self.visible(memory.observed, context)
        q = self.heads.sharpen(q, self.n_keys(visible))
        q = q if context.temperature is None else q / context.temperature
        found = visible.any(dim=-1, keepdim=True)
        shown = visible | ~found  # no row may be empty: who has nothing to see is shown everything, and told nothing
        if context.recording is not None:
            logits = q @ memory.keys.mT * scale
            weights = logits.masked_fill(~shown, -torch.inf).softmax(dim=-1)
            context.note(attn_p=logits, attention=weights.masked_fill(~found, 0.0))
        recalled = scaled_dot_product_attention(q, memory.keys, memory.values, attn_mask=shown, scale=scale)
        return recalled.masked_fill(~found, 0.0)

    @staticmethod
    def visible(observed: Tensor, context: Context) -> Tensor:
        """(B, 1, L, S + L): the observations of its document strictly before each token."""
        earlier = context.attention_mask(self_key=False).tril(context.past.length - 1)  # the first sees not even itself
        return earlier & observed[:, None, None]

    @staticmethod
    def n_keys(visible: Tensor) -> Tensor:
        """(B, L): how many observations each token sees; one where it sees none, and is told nothing."""
        return visible[:, 0].sum(dim=-1).clamp(min=1)

    def reference(self, x: Tensor, context: Context) -> Tensor:
        """Move token by token, then compare with every earlier observation."""
        (v,) = self.heads.split(x)
        action, (moves, origin) = self.actions(context), self.weights(x.dtype)
        place, places = origin.expand(len(x), -1, -1), []
        for t in range(x.shape[1]):
            if context.reset is not None:
                place = torch.where(context.reset[:, t, None, None], origin, place)
            moved = torch.einsum("bhi,bhij->bhj", place, moves[action[:, t].clamp(min=0)])
            place = torch.where(action[:, t, None, None] >= 0, normed(activate(moved, self.options.act)), place)
            places.append(place)
        q = torch.einsum("bthi,hij->bhtj", torch.stack(places, dim=1), self.compare)
        document, observed = context.documents(), (action < 0) & context.real()
        seen = (document[:, :, None] == document[:, None, :]) & observed[:, None, :]
        seen = seen.unsqueeze(1).tril(-1)
        logits = self.heads.sharpen(torch.einsum("bhti,bhsi->bhts", q, q) * self.heads.scale, self.n_keys(seen))
        weights = logits.exp() * seen
        total = weights.sum(dim=-1, keepdim=True)
        return self.heads.merge(weights @ v / torch.where(total > 0, total, 1.0))


def rotations(n: int, size: int) -> Tensor:
    """n random rotations near the identity, (n, size, size)."""
    skew = GENERATOR_STD * torch.randn(n, size, size)
    return torch.linalg.matrix_exp(skew - skew.mT)


register_layer(
    "tem-t",
    TemT,
    variants=(
        {"action_ids": (0, 1, 2)},
        {"action_ids": (7, 2, 5, 0), "act": "relu"},
        {"action_ids": (1, 4, 9, 10), "act": "tanh", "attn_temperature": 0.5},
        {"action_ids": (0, 1, 2), "length_scaling": "log", "typical_length": 6, "init": "ordinary"},
    ),
    benchmarked=({"action_ids": (0, 1, 2, 3)},),
)
