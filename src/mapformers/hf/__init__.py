"""The `transformers` interface: the decoder as a `PreTrainedModel`, and maps for a Llama that one already has.

Examples:
    >>> from mapformers.hf import MapFormerConfig, MapFormerForCausalLM
    >>> model = MapFormerForCausalLM(MapFormerConfig("mapwm", vocab_size=100, d_model=64, n_heads=2, rank=2))
    >>> model.save_pretrained("folder")  # doctest: +SKIP

Importing this package registers both with the Auto classes, so `AutoModelForCausalLM.from_pretrained("folder")` works.
"""

from importlib.util import find_spec

from mapformers.errors import require

require(find_spec("transformers") is not None, "mapformers.hf needs transformers: pip install 'mapformers[hf]'.")

from transformers import AutoConfig, AutoModelForCausalLM  # noqa: E402

from mapformers.hf.added_maps import (  # noqa: E402
    WITH_MAPS,
    LlamaWithMaps,
    LlamaWithMapsConfig,
    MistralWithMaps,
    MistralWithMapsConfig,
    Qwen2WithMaps,
    Qwen2WithMapsConfig,
    add_maps,
    load_with_maps,
)
from mapformers.hf.cache import MapFormerCache  # noqa: E402
from mapformers.hf.configuration import MapFormerConfig  # noqa: E402
from mapformers.hf.conversion import from_decoder, from_run, save_run  # noqa: E402
from mapformers.hf.modeling import MapFormerForCausalLM  # noqa: E402

AutoConfig.register(MapFormerConfig.model_type, MapFormerConfig, exist_ok=True)
AutoModelForCausalLM.register(MapFormerConfig, MapFormerForCausalLM, exist_ok=True)
for _model in WITH_MAPS.values():
    AutoConfig.register(_model.config_class.model_type, _model.config_class, exist_ok=True)
    AutoModelForCausalLM.register(_model.config_class, _model, exist_ok=True)

__all__ = [
    "LlamaWithMaps",
    "LlamaWithMapsConfig",
    "MapFormerCache",
    "MapFormerConfig",
    "MapFormerForCausalLM",
    "MistralWithMaps",
    "MistralWithMapsConfig",
    "Qwen2WithMaps",
    "Qwen2WithMapsConfig",
    "add_maps",
    "from_decoder",
    "from_run",
    "load_with_maps",
    "save_run",
]
