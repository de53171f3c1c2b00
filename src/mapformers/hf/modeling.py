"""`MapFormerForCausalLM`: the decoder as a `transformers` model."""

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from mapformers.errors import UserError, describe, require
from mapformers.hf.cache import OTHER_CACHES, MapFormerCache, NoPagedCache, checked_cache
from mapformers.hf.configuration import MapFormerConfig
from mapformers.hf.hub import Package
from mapformers.hf.precision import cast_but_paths, cast_like
from mapformers.hf.starts import start, start_layer
from mapformers.model import EMBEDDING_STD, Decoder, TiedHead
from mapformers.modules.context import EMPTY_PAST, Context, StreamState
from mapformers.starts import in_float32, reset_parameters

# The decoder's own names -> those of `transformers`.
NAMED_HERE = {"padding_mask": "attention_mask", "state": "past_key_values", "return_state": "use_cache"}


class MapFormerForCausalLM(Package, NoPagedCache, PreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """tokens → logits, with `generate`, `Trainer`, `save_pretrained` and what else `transformers` has.

    ``decoder`` is the model itself, as `build_model` builds it: `decoder.observe(tokens)` looks inside.
    """

    config_class = MapFormerConfig
    base_model_prefix = "model"  # there is none beneath: this is the whole model
    auto_class = "AutoModelForCausalLM"
    supports_gradient_checkpointing = True
    gradient_checkpointing = False
    _keeps_weights = False
    _tied_weights_keys = {"decoder.head.weight": "decoder.embedding.weight"}
    _is_stateful = True  # a state cannot be taken back by some tokens
    _supports_cache_class = True
    _supports_sdpa = True

    def __init__(self, config: MapFormerConfig):
        super().__init__(config)
        dtype = torch.get_default_dtype()
        with in_float32():
            self.decoder = Decoder(config.decoder_config())
        self._start_tied_head()
        cast_but_paths(self.decoder, dtype)
        if any(name.endswith(".path") for name, _ in self.decoder.named_modules()):
            self._keep_in_fp32_modules_strict = {"path"}  # angles grow with the path, and the rounding of ω too
        self._no_split_modules = sorted({type(layer).__name__ for layer in self.decoder.layers})
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: MapFormerCache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        position_ids: Tensor | None = None,
        reset: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """(B, L) ids, or (B, L, d_model) embeddings -> logits (B, L, vocab), and what else is asked for.

        ``attention_mask``  (B, L), or (B, past + L): 0 where a token is padding, on either side.
        ``position_ids``    only where they are 0 counts: a new document, hence a new map, starts there (packed texts).
        ``reset``           (B, L) bool: the same, said directly.
        ``labels``          (B, L): the tokens themselves, −100 where there is no loss; they are shifted here.
        ``logits_to_keep``  logits of the last so many tokens only; or of those at these indices.
        """
        given = self._given(input_ids, inputs_embeds)
        for name in NAMED_HERE.keys() & kwargs.keys():
            raise UserError(f"{name!r} is called {NAMED_HERE[name]!r} here; give it by that name.")
        require(not output_attentions, "Attention is fused: call model.decoder.observe(tokens) to look at it.")
        cache = None if past_key_values is None else checked_cache(past_key_values)
        use_cache = self._keeps_state(use_cache, cache)
        state = None if cache is None else cache.state
        settings: dict[str, Any] = {
            "padding_mask": padding(attention_mask, given, past=0 if state is None else state.past.length),
            "reset": starts_of_documents(position_ids, reset, given, continues=state is not None),
            "keeps_state": use_cache,
        }
        context, x = self._begin(input_ids, inputs_embeds, state, settings)
        wants_hidden = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        hidden: list[Tensor] | None = [] if wants_hidden else None
        x, layer_states, _ = self.decoder.read(x, context, state, call=self._layer_call(hidden))
        logits = self.logits(x[:, slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=logits.shape[-1], **kwargs)
        if use_cache:
            cache = MapFormerCache() if cache is None else cache
            cache.state = self.decoder.state_after(context, layer_states)
        told: dict[str, Any] = {"logits": logits, "hidden_states": None if hidden is None else (*hidden, x)}
        output = CausalLMOutputWithPast(loss=loss, past_key_values=cache if use_cache else None, **told)
        as_dict = self.config.return_dict if return_dict is None else return_dict
        return output if as_dict else output.to_tuple()

    def _given(self, ids: Tensor | None, embedded: Tensor | None) -> Tensor:
        """What is read: ids (B, L) or embeddings (B, L, d_model)."""
        if ids is not None and embedded is None:
            require(ids.ndim == 2, f"input_ids must be of shape (batch, length), not {describe(ids)}.")
            return ids
        if embedded is None or ids is not None:
            raise UserError("Give either input_ids or inputs_embeds, and only one of them.")
        width = self.config.d_model
        fits = embedded.ndim == 3 and embedded.shape[-1] == width
        require(fits, f"inputs_embeds must have the shape (batch, length, {width}).")
        return embedded

    def _begin(
        self, ids: Tensor | None, embedded: Tensor | None, state: StreamState | None, settings: dict[str, Any]
    ) -> tuple[Context, Tensor]:
        """What surrounds the tokens, and what enters the first layer: embeddings of ids, or those that are given."""
        if ids is not None:
            return self.decoder._context(ids, state=state, **settings), self.decoder.embedding(ids)
        assert embedded is not None
        by_ids = any(layer.name == "tem-t" for layer in self.decoder.config.layers)
        require(not by_ids, "tem-t is told by ids which tokens act; give input_ids instead of inputs_embeds.")
        if state is not None:
            state.require_fit(embedded.shape[0], self.decoder.config)
        past = EMPTY_PAST if state is None else state.past
        return Context.of(embedded, past=past, **settings), embedded

    def logits(self, x: Tensor) -> Tensor:
        """What the head says of (B, L, d_model); with the embedding's own weights, scaled to the size it starts in."""
        if self.config.tie_word_embeddings:
            x = x / (EMBEDDING_STD * math.sqrt(self.config.d_model))
        return self.decoder.head(x)

    def _keeps_state(self, use_cache: bool | None, cache: MapFormerCache | None) -> bool:
        if self.gradient_checkpointing and self.training:
            return False
        return self.config.use_cache and (not self.training or cache is not None) if use_cache is None else use_cache

    def _layer_call(self, hidden: list[Tensor] | None) -> Any:
        """How layers are called: what enters each joins ``hidden``; layers may be recomputed in the backward pass."""
        recompute = self.gradient_checkpointing and self.training

        def without_state(layer: nn.Module, x: Tensor, stream: Any, context: Context) -> tuple[Tensor, Any]:
            x, stream, _ = layer(x, stream, None, context)
            return x, stream

        def call(layer: nn.Module, x: Tensor, stream: Any, state: Any, context: Context) -> Any:
            if hidden is not None:
                hidden.append(x)
            if not recompute:
                return layer(x, stream, state, context)
            require(state is None, "Gradient checkpointing reads whole sequences; leave past_key_values out.")
            return *self._gradient_checkpointing_func(without_state, layer, x, stream, context), None

        return call

    def get_input_embeddings(self) -> nn.Module:
        return self.decoder.embedding

    def set_input_embeddings(self, value: Any) -> None:
        self.decoder.embedding = value
        self._follow_vocabulary()

    def get_output_embeddings(self) -> nn.Module:
        return self.decoder.head

    def set_output_embeddings(self, new_embeddings: Any) -> None:
        self.decoder.head = new_embeddings

    def _follow_vocabulary(self) -> None:
        size = self.decoder.embedding.weight.shape[0]
        self.decoder.config = dataclasses.replace(self.decoder.config, vocab_size=size)

    def post_init(self) -> None:
        """A decoder is built with its weights; they stay, also if this is called again (by a subclass, for one)."""
        self._keeps_weights = True
        super().post_init()
        self._keeps_weights = False

    def init_weights(self) -> None:
        """All weights start anew, as after `to_empty`; `post_init`, which calls this too, only ties the head."""
        if not self._keeps_weights:
            reset_parameters(self.decoder)
            self._start_tied_head()
        self.tie_weights()

    def _start_tied_head(self) -> None:
        if self.config.tie_word_embeddings:
            TiedHead.start(self.decoder.norm)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """What a checkpoint does not have; also the rows that `resize_token_embeddings` adds."""
        start(self.decoder, module, self.config.tie_word_embeddings)

    @staticmethod
    def _fix_state_dict_key_on_load(key: str) -> Any:
        """`transformers` 4.48 makes "bias" of every "beta" in a name, PaTH's too. Later versions return pairs."""
        renamed = PreTrainedModel._fix_state_dict_key_on_load(key)  # type: ignore[attr-defined]
        return key if isinstance(renamed, str) else renamed

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        found: Any = super().from_pretrained(*args, **kwargs)
        model = found[0] if isinstance(found, tuple) else found  # output_loading_info=True
        with torch.no_grad():
            for index in range(len(model.decoder.layers)):
                start_layer(model.decoder, index, only_tables=True)
        return found

    def _prepare_cache_for_generation(  # type: ignore[override]
        self, generation_config: Any, model_kwargs: dict[str, Any], *_: Any
    ) -> None:
        """`generate` asks for a cache to begin with, or hands on the one that it was given."""
        given = model_kwargs.get("past_key_values")
        require(generation_config.cache_implementation in (None, "dynamic"), OTHER_CACHES)
        if given is not None:
            checked_cache(given)
        elif generation_config.use_cache is not False:
            model_kwargs["past_key_values"] = MapFormerCache()

    def prepare_inputs_for_generation(
        self, input_ids: Any, *args: Any, inputs_embeds: Any = None, **kwargs: Any
    ) -> dict[str, Any]:
        """What a step of `generate` reads: no token that was generated begins a document."""
        inputs: dict[str, Any] = super().prepare_inputs_for_generation(  # type: ignore[misc]
            input_ids, *args, inputs_embeds=inputs_embeds, **kwargs
        )
        reset, embedded = inputs.get("reset"), inputs.get("inputs_embeds")
        if reset is not None:
            given = inputs["input_ids"] if embedded is None else embedded
            generated = max(0, input_ids.shape[1] - reset.shape[1]) if embedded is None else 0
            inputs["reset"] = nn.functional.pad(reset, (0, generated))[:, -given.shape[1] :]
        return inputs

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # ours instead

    def to_decoder(self) -> Decoder:
        """The same model as `build_model` builds it, with a copy of the weights; a tied head stays tied."""
        tied = self.config.tie_word_embeddings
        with torch.device(self.decoder.norm.gain.device), in_float32():
            decoder = Decoder(dataclasses.replace(self.config.decoder_config(), tie_head=tied))
        cast_like(decoder, self.decoder)
        weights = dict(self.decoder.state_dict())
        if tied:
            del weights["head.weight"]
        decoder.load_state_dict(weights)
        return decoder.train(self.training)


def padding(attention_mask: Any, given: Tensor, past: int) -> Tensor | None:
    """(B, L) or (B, past + L) of ones and zeros -> (B, L) bool of this call's tokens; None if all are real."""
    if attention_mask is None:
        return None
    batch, length = given.shape[:2]
    if not isinstance(attention_mask, Tensor) or attention_mask.shape not in ((batch, length), (batch, past + length)):
        or_all = f" or {(batch, past + length)}" if past else ""
        raise UserError(
            f"attention_mask must be a tensor of shape {(batch, length)}{or_all}, 0 where a token is padding, not "
            f"{describe(attention_mask)}; the model itself decides which tokens a token sees."
        )
    real = attention_mask[:, -length:].to(given.device) != 0
    compiling = torch.compiler.is_compiling()  # to ask whether all are real would break the graph
    return None if not compiling and bool(real.all()) else real


def starts_of_documents(
    position_ids: Tensor | None, reset: Tensor | None, given: Tensor, continues: bool
) -> Tensor | None:
    """Where packed documents begin: said directly, or by positions that begin again at 0.

    A text that does not continue another begins at its first token without being told to.
    """
    if reset is not None or position_ids is None:
        return reset
    batch, length = given.shape[:2]
    fits = position_ids.shape in ((length,), (1, length), (batch, length))
    require(
        fits,
        f"position_ids must be of shape {(batch, length)} or {(1, length)}, not {describe(position_ids)}; unless they "
        "are given, `generate` makes them of attention_mask.",
    )
    begins = (position_ids == 0).expand(batch, length)
    return begins if bool((begins if continues else begins[:, 1:]).any()) else None
