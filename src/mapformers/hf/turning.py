"""Maps for a Llama that one already has: its angle becomes RoPE's plus a learned path integral that starts at zero.

R(rope + θ) q = R(rope) R(θ) q, as both turn the same planes: so queries and keys are turned by θ as they leave their
projections, and the model's own attention does the rest. The path starts with W_in = 0, hence θ = 0, and the first
forward is bit for bit the one it was; the gradient on W_in is not zero, as W_out and ω start as ladders.
"""

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from mapformers import lie
from mapformers.errors import require
from mapformers.hf.modeling import padding
from mapformers.modules.context import Context
from mapformers.modules.mixer import LayerShape
from mapformers.modules.movement import PathIntegrator, VelocityOptions, without_autocast

OTHER_CACHES = (
    "A model with maps keeps where it stands in a MapCache: leave cache_implementation out, and start from "
    "past_key_values=None, an empty DynamicCache, or the cache that an earlier call returned."
)
CALL = "map_call"  # the name under which a `Call` goes through the model


class MapCache(DynamicCache):
    """Keys and values, and for each layer the coordinates of all tokens read, (B, S, H, r) in float64.

    All of them, and not the last alone, so that a cropped cache (assisted generation) can be continued.
    """

    def coordinates_of(self, layer: int) -> Tensor | None:
        found: dict[int, Tensor] = self.__dict__.get("coordinates", {})
        return found.get(layer)

    def extend(self, layer: int, trajectory: Tensor) -> None:
        past = self.coordinates_of(layer)
        everything = trajectory if past is None else torch.cat((past, trajectory), dim=1)
        self.__dict__.setdefault("coordinates", {})[layer] = everything

    def _change(self, change: Any) -> None:
        for layer, trajectory in self.__dict__.get("coordinates", {}).items():
            self.__dict__["coordinates"][layer] = change(trajectory)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        super().reorder_cache(beam_idx.long())  # type: ignore[arg-type]
        self._change(lambda trajectory: trajectory.index_select(0, beam_idx.to(trajectory.device)))

    def batch_select_indices(self, indices: Tensor) -> None:
        super().batch_select_indices(indices)
        self._change(lambda trajectory: trajectory[indices.to(trajectory.device)])

    def batch_repeat_interleave(self, repeats: int) -> None:
        super().batch_repeat_interleave(repeats)
        self._change(lambda trajectory: trajectory.repeat_interleave(repeats, dim=0))

    def crop(self, *args: Any, **kwargs: Any) -> None:
        super().crop(*args, **kwargs)
        length = self.get_seq_length()
        self._change(lambda trajectory: trajectory[:, :length])

    def reset(self) -> None:
        super().reset()
        self.__dict__.pop("coordinates", None)


class AddedPath(PathIntegrator):
    """The path of one attention layer: one Δ_in for each key-value head, which all its query heads share."""

    def __init__(self, shape: LayerShape, rank: int, options: VelocityOptions):
        super().__init__(shape, rank, options)
        self.start(options)

    @torch.no_grad()
    def start(self, options: VelocityOptions) -> None:
        """No movement, whatever is read: θ = 0.

        Block i belongs to inner dimension i mod r. RoPE turns the last blocks slowest, and only there is the angle
        between two visits of a place nearly the same whatever lies in between. So every inner dimension must have some
        of them: with a run of blocks each, as in `lie.ladders`, the first dimension would have none.
        """
        n_blocks = self.omega.shape[-1]
        self.w_in.zero_()
        self.w_out.copy_(torch.eye(self.rank)[torch.arange(n_blocks) % self.rank].T)
        for dimension, size in enumerate(lie.blocks_per_dimension(n_blocks, self.rank)):
            self.omega[:, dimension :: self.rank] = lie.ladder(size, options.omega_max, options.base).to(self.omega)

    def forward(self, x: Tensor, start: Tensor | None, context: Context) -> tuple[Tensor, Tensor]:
        """(B, L, d_model) -> θ (B, H, L, n_b) and all coordinates (B, L, H, r), which a cache keeps."""
        with without_autocast(x.device):
            delta_in = self.integrated_movement(x, context)
            coordinate = lie.integrate(delta_in, initial=start, mask=context.padding_mask, reset=context.reset)
            return lie.angles(coordinate, self.w_out, self.omega, dtype=delta_in.dtype), coordinate


@dataclass(frozen=True)
class Call:
    """What all layers must know of a call: its padding, and the cache that keeps their coordinates."""

    padding: Tensor | None
    cache: MapCache | None


class Turning:
    """Hooks of one attention layer: before it, find θ; after its projections, turn what they give by θ."""

    def __init__(self, attention: Any, calls: "Calls"):
        self.attention, self.calls = attention, calls
        self.theta: Tensor | None = None
        self.hooked: dict[str, tuple[nn.Module, Any]] = {}
        attention.register_forward_pre_hook(self.before, with_kwargs=True)
        attention.register_forward_hook(self.after, always_call=True)
        self.follow_projections()

    def before(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        x = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
        call, index = kwargs.pop(CALL, self.calls.checkpointed), self.attention.layer_idx
        past = None if call.cache is None else call.cache.coordinates_of(index)
        context = Context.of(x, padding_mask=call.padding)
        self.theta, trajectory = self.attention.path(x, None if past is None else past[:, -1], context)
        if call.cache is not None:
            call.cache.extend(index, trajectory)
        self.follow_projections()
        return args, kwargs

    def after(self, *_: Any) -> None:
        """Keep no tensor of the call: with its graph, a model could not be copied."""
        self.theta = None

    def follow_projections(self) -> None:
        """Adapters (PEFT) put a module of their own in a projection's place: the turn comes after the new one."""
        for name in ("q_proj", "k_proj"):
            projection = getattr(self.attention, name)
            before, handle = self.hooked.get(name, (None, None))
            if projection is not before:
                if handle is not None:
                    handle.remove()
                self.hooked[name] = projection, projection.register_forward_hook(self.turn)

    def turn(self, _: nn.Module, __: Any, output: Tensor) -> Tensor:
        """(B, L, heads · D) turned by θ, head by head; query heads share the θ of their key-value head."""
        assert self.theta is not None
        theta = self.theta
        heads = output.unflatten(-1, (-1, 2 * theta.shape[-1])).transpose(1, 2)
        theta = theta.repeat_interleave(heads.shape[1] // theta.shape[1], dim=1)
        return turned(heads, theta).transpose(1, 2).flatten(-2)


def turned(x: Tensor, theta: Tensor) -> Tensor:
    """(B, H, L, D) with the planes (i, i + D/2), which are those of Llama's RoPE, turned by θ (B, H, L, D/2)."""
    first, second = x.to(theta.dtype).chunk(2, dim=-1)
    cos, sin = theta.cos(), theta.sin()
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


class Calls:
    """Gives every layer what it must know of a call, as an argument that goes down through the model with the others.

    So a layer that is computed again in the backward pass (gradient checkpointing) has what it had the first time,
    whatever the model has read since. Before version 4.52, `transformers` hands on no such argument to layers that are
    to be computed again: for them the last call is kept.
    """

    def __init__(self, model: PreTrainedModel):
        self.model = model
        self.checkpointed = Call(None, None)
        self.parameters = list(inspect.signature(model.forward).parameters)
        model.register_forward_pre_hook(self.before, with_kwargs=True)

    def before(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        kwargs = {**dict(zip(self.parameters, args)), **kwargs}
        given = kwargs.get("input_ids") if kwargs.get("inputs_embeds") is None else kwargs["inputs_embeds"]
        require(isinstance(given, Tensor), "Give input_ids or inputs_embeds.")
        told = "Give position_ids that begin again at 0 where a document begins; a Llama with maps takes no reset."
        require(kwargs.get("reset") is None, told)
        assert isinstance(given, Tensor)
        cache, use_cache = kwargs.get("past_key_values"), kwargs.get("use_cache")
        read_twice = self.model.training and recomputes(self.model)
        if read_twice:
            cache = kwargs["past_key_values"] = None
            use_cache = kwargs["use_cache"] = False
        if cache is None and (self.model.config.use_cache if use_cache is None else use_cache):
            cache = kwargs["past_key_values"] = new_cache(self.model.config)
        call = called_with(kwargs.get("attention_mask"), given, cache)
        if read_twice:
            self.checkpointed = call
        return (), {**kwargs, CALL: call}


def called_with(attention_mask: Any, given: Tensor, cache: Any) -> Call:
    """Masks of two dimensions say what is padding; any other says what tokens see, and is the model's own to read."""
    cache = None if cache is None else checked_cache(cache)
    if not isinstance(attention_mask, Tensor) or attention_mask.dim() != 2:
        return Call(None, cache)
    return Call(padding(attention_mask, given, past=0 if cache is None else cache.get_seq_length()), cache)


def recomputes(model: PreTrainedModel) -> bool:
    """Whether its layers are computed again on the way back, which `transformers` calls otherwise since 5.23."""
    new, old = "is_activation_checkpointing", "is_gradient_checkpointing"
    return bool(getattr(model, new if hasattr(model, new) else old))


def new_cache(config: Any) -> MapCache:
    takes_config = "config" in inspect.signature(DynamicCache.__init__).parameters
    return MapCache(config=config) if takes_config else MapCache()


def checked_cache(cache: Any) -> MapCache:
    """A cache that keeps coordinates; an empty `DynamicCache` becomes one."""
    if type(cache) is DynamicCache and cache.get_seq_length() == 0:
        cache.__class__ = MapCache
    require(isinstance(cache, MapCache), OTHER_CACHES)
    return cache
