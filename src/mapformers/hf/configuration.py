"""`MapFormerConfig`: the arguments of `build_model` as a config of `transformers`."""

import dataclasses
import difflib
from collections.abc import Sequence
from typing import Any

from transformers import PretrainedConfig

from mapformers.config import to_dict
from mapformers.errors import UserError, require
from mapformers.hf.hub import NamedByPackage
from mapformers.model import SIZES, LayerSpec, ModelConfig, model_config
from mapformers.modules.layer import LAYERS

DEFAULT_MODEL = "mapwm"
GPT2_VOCABULARY = 50257
# What other models call it -> what it is here; None: there is no such thing.
ELSEWHERE = {
    "n_embd": "d_model", "dim": "d_model", "hidden_dim": "d_model", "n_layer": "n_layers", "n_head": "n_heads",
    "num_key_value_heads": None, "intermediate_size": "mlp_ratio", "mlp": "mlp_ratio", "rope_theta": "rope_base",
    "dropout": None, "tied": "tie_head", "tie": "tie_head", "r": "rank", "vocabulary_size": "vocab_size",
}  # fmt: skip


class MapFormerConfig(NamedByPackage, PretrainedConfig):
    """A decoder by a model's name and its layer's options, or a hybrid by ``layers``: as in `build_model`.

    Examples:
        >>> MapFormerConfig("mapwm", vocab_size=100, d_model=64, n_layers=2, n_heads=2, rank=2).rank
        2

    All options are written out, defaults too, so that a saved model stays what it is when a default changes.
    ``tie_head`` (`tie_word_embeddings`): the head reads the embedding's own weights, its logits scaled to start small.
    """

    model_type = "mapformer"
    keys_to_ignore_at_inference = ["past_key_values"]
    attribute_map = {
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "tie_head": "tie_word_embeddings",
    }

    def __init__(
        self,
        model: str | None = None,
        *,
        vocab_size: int = GPT2_VOCABULARY,
        n_layers: int | None = None,
        layers: Sequence[LayerSpec] | None = None,
        d_model: int = 64,
        n_heads: int = 1,
        head_dim: int | None = None,
        mlp_ratio: int = 4,
        use_cache: bool = True,
        tie_word_embeddings: bool = False,
        pad_token_id: int | None = None,
        bos_token_id: int | None = None,
        eos_token_id: int | list[int] | None = None,
        **settings: Any,
    ):
        given = {name: settings.pop(name) for name in self.attribute_map if name in settings}  # by their other names
        refuse_two_answers(given, {"d_model": (d_model, 64), "n_heads": (n_heads, 1), "n_layers": (n_layers, None)})
        d_model, n_heads = given.get("hidden_size", d_model), given.get("num_attention_heads", n_heads)
        n_layers = given.get("num_hidden_layers", n_layers)
        tie_word_embeddings = given.get("tie_head", tie_word_embeddings)
        model = DEFAULT_MODEL if model is None and layers is None else model
        known = option_names(model) if isinstance(model, str) else set()
        options = {name: settings.pop(name) for name in sorted(known) if name in settings}
        refuse_misspelt(settings, model, known)
        sizes = {"d_model": d_model, "n_heads": n_heads, "head_dim": head_dim, "mlp_ratio": mlp_ratio}
        built = model_config(model, vocab_size=vocab_size, n_layers=n_layers, layers=layers, **sizes, **options)

        self.model, self.vocab_size, self.n_layers = model, vocab_size, len(built.layers)
        self.layers = None if layers is None else [[layer.name, to_dict(layer.options)] for layer in built.layers]
        self.d_model, self.n_heads, self.head_dim, self.mlp_ratio = d_model, n_heads, built.head_size, mlp_ratio
        if layers is None:
            for name, value in to_dict(built.layers[0].options).items():
                setattr(self, name, value)
        self.use_cache = use_cache
        # Not every version of transformers gives a config these three, and programs ask for them.
        special: dict[str, Any] = {
            "pad_token_id": pad_token_id,
            "bos_token_id": bos_token_id,
            "eos_token_id": eos_token_id,
        }
        for name, token in special.items():
            setattr(self, name, token)
        settings["tie_word_embeddings"] = tie_word_embeddings
        super().__init__(**settings, **special)
        self.tie_word_embeddings = tie_word_embeddings

    def decoder_config(self) -> ModelConfig:
        """The config of the decoder, checked once more: attributes may have been set since."""
        sizes: dict[str, Any] = {name: getattr(self, name) for name in SIZES}
        sizes["tie_head"] = False  # `transformers` ties it, by a matrix that both modules have
        if self.head_dim * self.n_heads == self.d_model:
            sizes["head_dim"] = None  # an equal share, which need not be said
        options = {} if self.model is None else {name: getattr(self, name) for name in option_names(self.model)}
        layers: Any = None if self.layers is None else [(name, options) for name, options in self.layers]
        whole = layers is None or self.n_layers == len(layers)
        require(whole, f"n_layers is {self.n_layers}, but the hybrid has {len(layers or ())} layers; set `layers`.")
        n_layers = self.n_layers if layers is None else None
        return model_config(
            self.model, vocab_size=self.vocab_size, n_layers=n_layers, layers=layers, **sizes, **options
        )

    @classmethod
    def of_decoder(cls, config: ModelConfig, **settings: Any) -> "MapFormerConfig":
        """The config of a decoder that exists: by name if its layers are alike, else layer by layer."""
        built = {"model", "vocab_size", "n_layers", "layers", *SIZES, *cls.attribute_map}
        built.update(*(option_names(layer.name) for layer in config.layers))
        chosen = ", ".join(sorted(settings.keys() & built))
        require(not chosen, f"The decoder is built already, with its {chosen}; leave that out, or build another one.")
        sizes = {name: getattr(config, name) for name in ("vocab_size", *SIZES)}
        first, *others = config.layers
        if all(layer == first for layer in others):
            return cls(first.name, n_layers=len(config.layers), **sizes, **to_dict(first.options), **settings)
        return cls(layers=[(layer.name, to_dict(layer.options)) for layer in config.layers], **sizes, **settings)


def refuse_two_answers(given: dict[str, Any], ours: dict[str, tuple[Any, Any]]) -> None:
    """The same size by two names, with two values; ``ours``: the value by our own name, and what it is unless given."""
    for name, other in MapFormerConfig.attribute_map.items():
        value, unless_given = ours.get(other, (None, None))
        if name in given and value not in (unless_given, given[name]):
            raise UserError(f"{name} and {other} are the same, but are {given[name]} and {value}; give one of them.")


def option_names(model: str) -> set[str]:
    """The options of a model's layer."""
    return {field.name for field in dataclasses.fields(LAYERS[model].options)}


def refuse_misspelt(settings: dict[str, Any], model: str | None, known: set[str]) -> None:
    """`transformers` keeps whatever a config is given; another layer's option, or nearly one of ours, is a mistake."""
    of_layers = {name for layer in LAYERS for name in option_names(layer)} - known
    names = known | set(SIZES) | {"n_layers", "layers", "model"}
    for name in settings.keys() - vars(PretrainedConfig()).keys():
        if name in ELSEWHERE:
            ours = f"it is {ELSEWHERE[name]!r} here" if ELSEWHERE[name] else "there is no such thing here"
            raise UserError(f"{name!r} is of other models: {ours}.")
        if name in of_layers:
            where = "of a hybrid; give it to its layers" if model is None else f"of model {model!r}; leave it out"
            raise UserError(f"{name!r} is no option {where}.")
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
        if near:
            raise UserError(f"There is no option of model {model!r} named {name!r}; did you mean {near[0]!r}?")
