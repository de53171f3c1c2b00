"""Weights that a checkpoint does not have start as new ones do: in every registered model, in float32 and bf16."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from helpers import CASES, FIRST_CASES, Case, thorough
from mapformers.hf import MapFormerConfig, MapFormerForCausalLM
from mapformers.hf.starts import LOADS_FIRST

SIZES = {"vocab_size": 40, "d_model": 32, "n_heads": 2, "n_layers": 2}
LOADED = 7.0  # added to what is saved: no weight starts near it


@pytest.fixture
def nan_in_new_memory():
    """Memory that nobody has written to reads as NaN, or as the largest integer."""
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def new(config: MapFormerConfig, seed: int) -> MapFormerForCausalLM:
    torch.manual_seed(seed)
    return MapFormerForCausalLM(config)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", [case if case in FIRST_CASES else thorough(case) for case in CASES], ids=str)
@torch.no_grad()
def test_whatever_is_missing_starts_as_in_a_new_model(case: Case, dtype: torch.dtype, tmp_path, nan_in_new_memory):
    config = MapFormerConfig(case.name, **SIZES, **case.options)
    one, other = new(config, 0), new(config, 1)
    saved = new(config, 2)
    for parameter in saved.parameters():
        parameter.add_(LOADED)
    saved.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    keys = sorted(weights)
    for missing in (keys[1:], keys[::2], keys[1::2]):
        kept = {key: weights[key] for key in keys if key not in missing}
        save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
        torch.manual_seed(3)
        loaded = MapFormerForCausalLM.from_pretrained(tmp_path, torch_dtype=dtype)
        for key, value in loaded.state_dict().items():
            first, second = one.state_dict()[key], other.state_dict()[key]
            if key in kept:
                assert torch.equal(value, kept[key].to(value.dtype)), key
            elif torch.equal(first, second):  # not a random start
                assert torch.equal(value, first.to(value.dtype)), key
            else:
                assert value.isfinite().all() and not torch.equal(value, first.to(value.dtype)), key
                few = value.numel() < 16  # too few to tell how they were drawn
                assert few or 0.5 < value.float().std() / first.std() < 2, key
        for key, value in loaded.named_buffers():
            assert key in weights or torch.equal(value, one.get_buffer(key)), key


@torch.no_grad()
def test_a_tied_embedding_of_another_size_starts_as_an_embedding(tmp_path):
    """Also where `transformers` starts the head, which is the same tensor, after it."""
    new(MapFormerConfig("mapwm", **SIZES, tie_head=True), 0).save_pretrained(tmp_path)
    config = MapFormerConfig("mapwm", **{**SIZES, "vocab_size": 400}, tie_head=True)
    loaded = MapFormerForCausalLM.from_pretrained(tmp_path, config=config, ignore_mismatched_sizes=True)
    assert float(loaded.decoder.embedding.weight.std()) == pytest.approx(0.3, rel=0.1)


@pytest.mark.parametrize(
    "answer, wanted", [(lambda key: key.replace("beta", "bias"), "beta"), (lambda key: (key, 1), ("beta", 1))]
)
def test_no_version_of_transformers_renames_a_weight(answer, wanted, monkeypatch):
    monkeypatch.setattr(PreTrainedModel, "_fix_state_dict_key_on_load", staticmethod(answer), raising=False)
    assert MapFormerForCausalLM._fix_state_dict_key_on_load("beta") == wanted


@pytest.mark.skipif(not LOADS_FIRST, reason="this version of transformers starts the head before it loads the rest")
@torch.no_grad()
@pytest.mark.parametrize("missing", [["head"], ["embedding", "head"]], ids=str)
def test_a_missing_head_starts_as_the_embedding(missing, tmp_path):
    new(MapFormerConfig("mapwm", **SIZES), 0).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    kept = {key: value for key, value in weights.items() if key.split(".")[1] not in missing}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    loaded = MapFormerForCausalLM.from_pretrained(tmp_path).decoder
    ratio = loaded.head.weight / loaded.embedding.weight
    assert torch.allclose(ratio, torch.full_like(ratio, 1 / (0.3 * 32**0.5)))


@torch.no_grad()
@pytest.mark.parametrize("tied", [False, True])
def test_started_anew_it_is_as_a_new_model_of_that_seed(tied):
    """However often, and whether it had values or was built on meta."""
    config = MapFormerConfig("mapwm", **SIZES, tie_head=tied)
    with torch.device("meta"):
        empty = MapFormerForCausalLM(config)
    for model in (new(config, 0), empty.to_empty(device="cpu")):
        for seed in (3, 4):
            torch.manual_seed(seed)
            model.init_weights()
            wanted = new(config, seed).state_dict()
            assert all(torch.equal(value, wanted[key]) for key, value in model.state_dict().items())
            assert (model.decoder.head.weight is model.decoder.embedding.weight) == tied


@torch.no_grad()
@pytest.mark.parametrize("tied", [False, True])
def test_post_init_called_again_leaves_the_weights(tied):
    """As a subclass does with more layers of its own, or a caller after the vocabulary has grown."""
    model = new(MapFormerConfig("mapwm", **SIZES, tie_head=tied), 0)
    model.decoder.norm.gain.fill_(7.0)
    model.resize_token_embeddings(SIZES["vocab_size"] + 10)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    model.post_init()
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    torch.manual_seed(3)
    model.init_weights()
    assert (model.decoder.norm.gain != 7.0).all()
