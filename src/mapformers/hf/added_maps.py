"""`add_maps` turns a Llama, Mistral or Qwen2 that one already has into a MapFormer, in place."""

import copy
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from mapformers.config import from_dict
from mapformers.errors import require
from mapformers.files import read_json
from mapformers.hf.cache import NoPagedCache
from mapformers.hf.hub import NamedByPackage, Package
from mapformers.hf.turning import OTHER_CACHES, AddedPath, Calls, Turning, checked_cache, new_cache
from mapformers.modules.mixer import LayerShape
from mapformers.modules.movement import VelocityOptions, require_rank
from mapformers.starts import in_float32, tensors

STARTED = "_path_started"  # on a tensor of a path that has its values


class WithMaps(Package, NoPagedCache):
    """Mixed into a causal language model: each attention layer has a `path`, whose angle is added to RoPE's."""

    auto_class = "AutoModelForCausalLM"
    config: Any
    model: Any

    def __init__(self, config: Any):
        super().__init__(config)  # type: ignore[call-arg]
        self.attach()

    def attach(self) -> None:
        """Give every attention layer a path, and the hooks that turn its queries and keys by it."""
        calls = Calls(self.model)
        for layer in self.model.layers:
            attention = layer.self_attn
            with torch.device(attention.q_proj.weight.device):
                attention.path = new_path(self.config)  # in float32, whatever the model is in
            Turning(attention, calls)
        self.start_paths(())  # which are as they should be, unless all this is on the device meta
        self._keep_in_fp32_modules_strict = {"path"}  # only now: transformers 4 looks for what is named before this

    def path_tensors(self) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in tensors(self.model).items() if ".self_attn.path." in name}

    @torch.no_grad()
    def start_paths(self, without_values: Collection[str]) -> None:
        """Paths start at zero movement, as far as their tensors have no values yet."""
        start = tensors(new_path(self.config))
        for name, tensor in self.path_tensors().items():
            if name in without_values:
                tensor.copy_(start[name.rpartition(".")[2]])
            setattr(tensor, STARTED, True)

    def init_weights(self) -> None:
        """Also after `to_empty`, which makes other tensors of those that were started."""
        super().init_weights()  # type: ignore[misc]
        self.start_paths([name for name, tensor in self.path_tensors().items() if not hasattr(tensor, STARTED)])

    @classmethod
    def from_pretrained(cls, *args: Any, output_loading_info: bool = False, **kwargs: Any) -> Any:
        """A checkpoint without maps is that of the plain model: its paths start at zero movement."""
        load: Any = super().from_pretrained  # type: ignore[misc]
        model, found = load(*args, output_loading_info=True, **kwargs)
        model.start_paths([name.removeprefix("model.") for name in found["missing_keys"]])
        return (model, found) if output_loading_info else model

    def _prepare_cache_for_generation(self, generation_config: Any, model_kwargs: dict[str, Any], *_: Any) -> None:
        require(generation_config.cache_implementation in (None, "dynamic"), OTHER_CACHES)
        if model_kwargs.get("past_key_values") is not None:
            checked_cache(model_kwargs["past_key_values"])
        elif generation_config.use_cache is not False:
            model_kwargs["past_key_values"] = new_cache(self.config)
            if getattr(generation_config, "is_assistant", False):
                model_kwargs["past_key_values"].activate_past_recording()


def new_path(config: Any) -> AddedPath:
    """The path of one layer, without movement."""
    of_maps = hasattr(config, "map_rank")
    require(of_maps, f"{type(config).__name__} has no maps; build the plain model, and give it maps with add_maps.")
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    shape = LayerShape(config.hidden_size, getattr(config, "num_key_value_heads", None) or heads, head_dim)
    options = VelocityOptions(config.map_omega_max, config.map_base, config.map_learn_omega)
    with in_float32():
        return AddedPath(shape, config.map_rank, options)


@dataclass(
    init=False, repr=False, eq=False
)  # fields for configs that are dataclasses, attributes for those that are not
class MapFields(NamedByPackage):
    """Mixed into a config: what the paths of its model are built with."""

    map_rank: int = 4
    map_omega_max: float = 1.0
    map_base: float = 1024.0
    map_learn_omega: bool = True


class LlamaWithMapsConfig(MapFields, LlamaConfig):
    model_type = "llama-with-maps"


class MistralWithMapsConfig(MapFields, MistralConfig):
    model_type = "mistral-with-maps"


class Qwen2WithMapsConfig(MapFields, Qwen2Config):
    model_type = "qwen2-with-maps"


class LlamaWithMaps(WithMaps, LlamaForCausalLM):  # type: ignore[misc]
    config_class = LlamaWithMapsConfig


class MistralWithMaps(WithMaps, MistralForCausalLM):  # type: ignore[misc]
    config_class = MistralWithMapsConfig


class Qwen2WithMaps(WithMaps, Qwen2ForCausalLM):  # type: ignore[misc]
    config_class = Qwen2WithMapsConfig


WITH_MAPS: dict[type[PreTrainedModel], Any] = {
    LlamaForCausalLM: LlamaWithMaps,
    MistralForCausalLM: MistralWithMaps,
    Qwen2ForCausalLM: Qwen2WithMaps,
}


def add_maps(
    model: PreTrainedModel, rank: int = 4, *, omega_max: float = 1.0, base: float = 1024.0, learn_omega: bool = True
) -> PreTrainedModel:
    """Turn a model into a MapFormer, in place: its first forward is bit for bit the one it was. Returns the model.

    The angle of every layer becomes RoPE's plus θ = ω ⊙ W_out Σ W_in x, one path for each key-value head, with W_in
    zero at the start. ``omega_max``, ``base`` are ω's ladder, ``learn_omega`` whether it is learned.

    Examples:
        >>> add_maps(LlamaForCausalLM.from_pretrained("folder"), rank=4)  # doctest: +SKIP
    """
    require(not isinstance(model, WithMaps), "This model already has maps; use it as it is, or load the plain one.")
    known = ", ".join(plain.__name__ for plain in WITH_MAPS)
    require(
        type(model) in WITH_MAPS,
        f"Maps are added to {known}, not to {type(model).__name__}; adapters (PEFT) come after the maps.",
    )
    adapted = next((name for name, module in model.named_modules() if hasattr(module, "base_layer")), None)
    require(adapted is None, f"{adapted} is an adapter's (PEFT); add the maps first, and adapters after them.")
    mapped: Any = WITH_MAPS[type(model)]
    settings = {"map_rank": rank, "map_omega_max": omega_max, "map_base": base, "map_learn_omega": learn_omega}
    require(isinstance(rank, int) and not isinstance(rank, bool), f"rank must be a whole number, not {rank!r}.")
    require_rank(rank)
    from_dict(VelocityOptions, {"omega_max": omega_max, "base": base, "learn_omega": learn_omega})
    plain = model.config
    config: Any = copy.deepcopy(plain)  # another model may have been built from it
    config.__class__ = mapped.config_class
    for name, value in settings.items():
        setattr(config, name, value)
    new_path(config)  # refuses settings that fit no path, before anything is changed
    for module in model.modules():
        if getattr(module, "config", None) is plain:
            module.config = config
    model.__class__ = mapped
    model.attach()  # type: ignore[operator]
    return model


def load_with_maps(folder: str | Path, **settings: Any) -> PreTrainedModel:
    """A model that `add_maps` made and `save_pretrained` saved; ``settings`` as of `from_pretrained`."""
    there = (Path(folder) / "config.json").is_file()
    require(there, f"{folder} is no folder with a config.json; for a model of the hub, use AutoModelForCausalLM.")
    kind = read_json(Path(folder) / "config.json").get("model_type")
    known = {model.config_class.model_type for model in WITH_MAPS.values()}
    require(kind in known, f"{folder} holds a model of type {kind!r}, without maps; load it with from_pretrained.")
    return AutoModelForCausalLM.from_pretrained(folder, **settings)
