"""Runs and decoders of ours as `transformers` models; `MapFormerForCausalLM.to_decoder` is the way back."""

from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast

from mapformers.errors import require
from mapformers.hf.card import facts
from mapformers.hf.configuration import MapFormerConfig
from mapformers.hf.modeling import MapFormerForCausalLM
from mapformers.lm.evaluation import tokenizer_of
from mapformers.lm.tokenizer import Tokenizer, library
from mapformers.model import Decoder
from mapformers.runs.run import Run, load


def from_decoder(decoder: Decoder, **settings: Any) -> MapFormerForCausalLM:
    """A `transformers` model with a copy of the decoder's weights; ``settings`` are further ones of its config."""
    require(isinstance(decoder, Decoder), f"Give a Decoder, not a {type(decoder).__name__}.")
    tied = decoder.config.tie_head
    asked = settings.pop("tie_head", settings.pop("tie_word_embeddings", tied))
    require(asked == tied, "A converted model keeps its head tied or untied as it is; leave out tie_head.")
    model = MapFormerForCausalLM(MapFormerConfig.of_decoder(decoder.config, **settings))
    weights = decoder.state_dict()
    model.decoder.to(decoder.norm.gain).load_state_dict(
        {**weights, "head.weight": weights["embedding.weight"]} if tied else weights
    )
    return model.train(decoder.training)


def from_run(run: Run | str | Path, **settings: Any) -> MapFormerForCausalLM:
    """The model of a run, or of the folder of one, ready for `save_pretrained`.

    Examples:
        >>> from_run("runs/navigation-mapwm-seed0").save_pretrained("for-transformers")  # doctest: +SKIP
    """
    run = run if isinstance(run, Run) else load(run)
    require(
        isinstance(run.model, Decoder),
        f"The run trained a {type(run.model).__name__} of your own; only models of mf.build_model are converted.",
    )
    assert isinstance(run.model, Decoder)
    model = from_decoder(run.model, **settings).eval()
    model.trained = facts(run)
    return model


def save_run(run: Run | str | Path, folder: str | Path, **settings: Any) -> Path:
    """Save the model of a run on text together with its tokenizer: all that `transformers` and `lm-eval` ask for.

    Examples:
        >>> save_run("runs/text-mapwm-seed0", "for-transformers")  # doctest: +SKIP
    """
    run = run if isinstance(run, Run) else load(run)
    on_text = run.config.task == "text"
    require(on_text, f"The run is on {run.config.task}, which has no tokenizer; use from_run for its model.")
    require(not Path(folder).is_file(), f"{folder} is a file; name a folder to save to.")
    tokenizer = to_transformers(tokenizer_of(run))
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    model = from_run(run, **{**ends, **settings})
    tokenizer.save_pretrained(folder)  # first, so that the model's card tells of it
    model.save_pretrained(folder)
    return Path(folder)


def to_transformers(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """A tokenizer as `transformers` has it; the separator both ends a text and, before the first token, begins one.

    It pads on the left, where padding does not come between a prompt and what goes on from it.
    """
    name = tokenizer.token_name(tokenizer.separator)
    content = library().Tokenizer.from_str(tokenizer.to_json())
    settings = {"padding_side": "left", "model_input_names": ["input_ids", "attention_mask"]}
    return PreTrainedTokenizerFast(tokenizer_object=content, bos_token=name, eos_token=name, **settings)
