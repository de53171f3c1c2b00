"""A Llama with maps: bit for bit the model one had, then one that learns a path; generated from, saved, adapted."""

import copy
import gc
import json
import math
import weakref

import pytest
import torch
import transformers
from packaging.version import Version
from small import recompute
from torch.nn.attention.flex_attention import create_block_mask
from transformers import (
    AutoModelForCausalLM,
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from mapformers.errors import UserError
from mapformers.hf import LlamaWithMaps, add_maps, load_with_maps
from mapformers.hf.turning import CALL
from mapformers.modules.movement import find_movements
from mapformers.starts import tensors

GREEDY = {"do_sample": False, "max_new_tokens": 8}
# peft asks transformers 5.23 by names that this calls old.
of_peft = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
FAMILIES = [(LlamaConfig, LlamaForCausalLM), (MistralConfig, MistralForCausalLM), (Qwen2Config, Qwen2ForCausalLM)]
IDS = torch.randint(3, 50, (2, 9), generator=torch.Generator().manual_seed(1))


def plain(family=FAMILIES[0], **settings):
    sizes = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    tokens = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": None, "initializer_range": 0.3}
    torch.manual_seed(0)
    return family[1](family[0](**{**sizes, **heads, **tokens, **settings})).eval()


def with_maps(family=FAMILIES[0], **settings):
    """Maps that have moved away from their start, or nothing would be seen of them."""
    model = add_maps(plain(family, **settings), rank=2)
    with torch.no_grad():
        for movement in find_movements(model):
            movement.w_in.normal_(std=0.5)
    return model


@pytest.mark.parametrize("family", FAMILIES, ids=["llama", "mistral", "qwen2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_first_forward_is_bit_for_bit_the_one_it_was(family, dtype):
    model = plain(family).to(dtype)
    before = model(IDS).logits
    assert add_maps(model, rank=4) is model and isinstance(model, family[1])
    assert torch.equal(model(IDS).logits, before)


def test_gradients_reach_the_path_from_the_first_step_and_move_it():
    model = add_maps(plain())
    before = model(IDS).logits
    model(IDS, labels=IDS).loss.backward()
    for movement in find_movements(model):
        assert movement.w_in.grad.abs().max() > 0
    torch.optim.AdamW(model.parameters(), lr=0.01).step()
    assert all(movement.w_in.abs().max() > 0 for movement in find_movements(model))
    assert not torch.equal(model(IDS).logits, before)


def test_every_dimension_of_the_map_has_planes_that_rope_turns_quickly_and_slowly():
    path = add_maps(plain(), rank=3, omega_max=2.0, base=64.0).model.layers[0].self_attn.path
    owner = path.w_out[0].argmax(dim=0)
    assert owner.tolist() == [0, 1, 2, 0] and torch.equal(path.w_out[0].sum(dim=0), torch.ones(4))
    slowest = 2 * torch.pi / 64
    assert torch.allclose(path.omega[0], torch.tensor([2.0, 2.0, 2.0, slowest]))  # a ladder of one block is omega_max


def test_the_angle_is_that_of_rope_and_of_the_path_together():
    """Turned before RoPE by θ is turned by RoPE's angle plus θ: a constant movement is RoPE with other angles."""
    model = add_maps(plain(num_hidden_layers=1), rank=1, omega_max=1.0, base=10.0)
    attention = model.model.layers[0].self_attn
    seen = {}
    attention.path.forward = lambda x, start, context: (
        torch.arange(9.0)[None, None, :, None] * torch.full((1, 2, 1, 4), 0.25).expand(2, 2, 1, 4),
        torch.zeros(2, 9, 2, 1),
    )
    with torch.no_grad():
        turned = model(IDS, use_cache=False).logits
        rotary, frequencies = model.model.rotary_emb, model.model.rotary_emb.inv_freq.clone()
        rotary.inv_freq.copy_(frequencies + 0.25)
        del attention.path.forward
        seen = model(IDS, use_cache=False).logits
    assert torch.allclose(turned, seen, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES, ids=["llama", "mistral", "qwen2"])
def test_in_pieces_from_the_cache_it_says_what_it_says_of_the_whole(family):
    """In float64: products of other sizes are summed in another order, and in float32 that shows on some processors."""
    model, cache, pieces = with_maps(family).double(), None, []
    with torch.no_grad():
        whole = model(IDS).logits
        for piece in IDS.split([4, 1, 4], dim=1):
            out = model(piece, past_key_values=cache)
            cache = out.past_key_values
            pieces.append(out.logits)
        assert (whole - plain(family).double()(IDS).logits).abs().max() > 1e-2  # the maps do something
    assert torch.allclose(torch.cat(pieces, dim=1), whole, rtol=0, atol=1e-9)


@pytest.mark.parametrize("family", FAMILIES, ids=["llama", "mistral", "qwen2"])
@pytest.mark.parametrize("how", [GREEDY, {**GREEDY, "num_beams": 3}], ids=["greedy", "beams"])
def test_it_generates_with_the_cache_as_without(family, how):
    model = with_maps(family)
    assert torch.equal(model.generate(IDS, **how), model.generate(IDS, use_cache=False, **how))


def test_padding_on_the_left_changes_nothing():
    model, mask = with_maps(), torch.ones_like(IDS)
    mask[0, :3] = 0
    together = model.generate(IDS, attention_mask=mask, **GREEDY)
    assert torch.equal(together[0, 3:], model.generate(IDS[:1, 3:], **GREEDY)[0])


@pytest.mark.parametrize("mask", [None, torch.ones(2, 9), torch.ones(2, 9).triu(2)], ids=["none", "ones", "padding"])
def test_it_compiles_to_one_graph_before_any_other_call(mask):
    compiled, real = (
        torch.compile(with_maps(), fullgraph=True, backend="eager"),
        slice(None) if mask is None else mask > 0,
    )
    with torch.no_grad():
        found, wanted = (each(IDS, attention_mask=mask).logits[real] for each in (compiled, with_maps()))
    assert torch.allclose(found, wanted, atol=1e-5)


def test_masks_that_say_what_tokens_see_are_those_of_the_plain_model():
    seen = torch.ones(2, 1, 9, 9, dtype=torch.bool).tril()
    model = with_maps()
    with torch.no_grad():
        assert torch.allclose(model(IDS, attention_mask=seen).logits, model(IDS).logits, atol=1e-5)
        seen[:, :, 4:, :4] = False
        assert torch.allclose(model(IDS, attention_mask=seen).logits[:, 4:], model(IDS[:, 4:]).logits, atol=1e-4)


def test_a_block_mask_is_the_models_own_to_read():
    block_mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 9, 9, device="cpu")
    given = []
    model = with_maps()
    model.model.forward = lambda **kwargs: given.append(kwargs)
    model.model(IDS, attention_mask=block_mask, use_cache=False)
    assert given[0]["attention_mask"] is block_mask and given[0][CALL].padding is None


def test_a_cache_is_gone_on_from_copied_and_cropped():
    model = with_maps()
    first = model.generate(IDS, return_dict_in_generate=True, **GREEDY)
    kept = copy.deepcopy(first.past_key_values)
    more = model.generate(first.sequences, past_key_values=first.past_key_values, **GREEDY)
    assert torch.equal(more, model.generate(IDS, do_sample=False, max_new_tokens=16))
    assert torch.equal(model.generate(first.sequences, past_key_values=kept, **GREEDY), more)
    empty = DynamicCache()
    assert torch.equal(model.generate(IDS, past_key_values=empty, **GREEDY), first.sequences)


def test_assisted_generation_takes_back_what_was_guessed_wrong():
    model, guesser = with_maps(), plain()
    assert torch.equal(model.generate(IDS[:1], assistant_model=guesser, **GREEDY), model.generate(IDS[:1], **GREEDY))


def test_saved_and_loaded_it_says_the_same(tmp_path):
    model = with_maps()
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "llama-with-maps"
    assert "mapformers.hf import LlamaWithMapsConfig, LlamaWithMaps" in (tmp_path / "modeling_mapformer.py").read_text()
    for loaded in (load_with_maps(tmp_path), AutoModelForCausalLM.from_pretrained(tmp_path)):
        assert type(loaded) is LlamaWithMaps and loaded.config.map_rank == 2
        with torch.no_grad():
            assert torch.equal(loaded(IDS).logits, model(IDS).logits)
    assert torch.equal(loaded.generate(IDS, **GREEDY), model.generate(IDS, **GREEDY))


def test_a_checkpoint_without_maps_loads_with_maps_that_do_nothing_yet(tmp_path):
    model = plain()
    model.save_pretrained(tmp_path)
    loaded = LlamaWithMaps.from_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.equal(loaded(IDS).logits, model(IDS).logits)
    assert all(movement.omega.abs().min() > 0 for movement in find_movements(loaded))


def dtypes_of_paths(model):
    return {tensor.dtype for movement in find_movements(model) for tensor in tensors(movement).values()}


def test_paths_are_in_float32_however_a_model_comes_to_be_in_bf16(tmp_path):
    plain().to(torch.bfloat16).save_pretrained(tmp_path / "plain")
    how = {"torch_dtype": torch.bfloat16}
    loaded = LlamaWithMaps.from_pretrained(tmp_path / "plain", **how)
    built = AutoModelForCausalLM.from_config(with_maps().config, **how)
    for model in (loaded, built, add_maps(LlamaForCausalLM.from_pretrained(tmp_path / "plain", **how))):
        assert model.dtype == torch.bfloat16 and dtypes_of_paths(model) == {torch.float32}
    without = LlamaForCausalLM.from_pretrained(tmp_path / "plain", **how)
    assert torch.equal(loaded(IDS).logits, without(IDS).logits)


def test_built_on_meta_its_paths_start_without_movement():
    with torch.device("meta"):
        empty = LlamaWithMaps(with_maps().config)
    empty.to_empty(device="cpu")
    for tensor in tensors(empty).values():
        tensor.detach().fill_(math.nan if tensor.is_floating_point() else 0)
    empty.init_weights()
    start = {name: tensor for name, tensor in tensors(add_maps(plain(), rank=2)).items() if ".path." in name}
    assert len(start) == 8
    for name, tensor in start.items():
        assert torch.equal(tensors(empty)[name], tensor), name


def test_weights_stay_if_init_weights_is_called_again():
    model = with_maps()
    before = model(IDS).logits
    model.init_weights()
    assert torch.equal(model(IDS).logits, before)


def test_gradient_checkpointing_gives_the_same_gradients():
    plainly, again = with_maps().train(), with_maps().train()
    recompute(again, False)
    for model in (plainly, again):
        model(IDS, labels=IDS).loss.backward()
    for one, other in zip(plainly.parameters(), again.parameters()):
        assert torch.allclose(one.grad, other.grad, atol=1e-5)


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_gives_the_same_gradients_after_two_calls(reentrant):
    """They are padded otherwise, and layers are computed again after both."""
    if Version(transformers.__version__) < Version("4.52"):
        pytest.skip("before 4.52, transformers hands on no padding to layers that are computed again")
    plainly, again = with_maps().train(), with_maps().train()
    recompute(again, reentrant)
    masks = torch.ones_like(IDS), torch.ones_like(IDS)
    masks[0][:, :4] = 0
    for first, second in (masks, (masks[0], None), (None, masks[0])):
        for model in (plainly, again):
            model.zero_grad()
            better = model(IDS, attention_mask=first, labels=IDS).loss
            (better - 0.5 * model(IDS.flip(1), attention_mask=second, labels=IDS).loss).backward()
        for one, other in zip(plainly.parameters(), again.parameters()):
            assert torch.allclose(one.grad, other.grad, atol=1e-5)


def test_it_can_be_copied_after_a_call_and_keeps_nothing_of_it():
    model = with_maps().train()
    output = model(IDS, labels=IDS)
    output.loss.backward()
    cache = weakref.ref(output.past_key_values)
    twin = copy.deepcopy(model)
    assert torch.equal(twin(IDS).logits, model(IDS).logits)
    with torch.no_grad():
        for movement in find_movements(twin):
            movement.w_in.mul_(2)
    assert not torch.equal(twin(IDS).logits, model(IDS).logits), "the hooks of the copy are those of its own layers"
    del output
    gc.collect()
    assert cache() is None
    torch.optim.swa_utils.AveragedModel(model)


def test_another_model_of_the_same_config_stays_as_it_is(tmp_path):
    config = plain().config
    mapped, left = LlamaForCausalLM(config), LlamaForCausalLM(config)
    add_maps(mapped)
    assert mapped.config.model_type == mapped.model.config.model_type == "llama-with-maps"
    assert left.config.model_type == config.model_type == "llama" and not hasattr(config, "map_rank")
    left.save_pretrained(tmp_path)
    assert type(AutoModelForCausalLM.from_pretrained(tmp_path)) is LlamaForCausalLM


@of_peft
def test_adapters_come_on_top(tmp_path):
    peft = pytest.importorskip("peft", reason="peft is not installed")
    model = with_maps()
    before = model(IDS).logits
    settings = peft.LoraConfig(target_modules=["q_proj", "v_proj"], modules_to_save=["path"], task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(model, settings).eval()
    assert torch.equal(adapted(input_ids=IDS).logits, before)
    optimizer = torch.optim.AdamW([p for p in adapted.parameters() if p.requires_grad], lr=0.05)
    trained = {name for name, parameter in adapted.named_parameters() if parameter.requires_grad}
    assert any("lora_A" in name for name in trained) and any("path" in name and "w_in" in name for name in trained)
    for _ in range(2):
        adapted(input_ids=IDS, labels=IDS).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    after = adapted(input_ids=IDS).logits
    assert not torch.allclose(after, before, atol=1e-3)
    short = {"input_ids": IDS, **GREEDY}
    assert torch.equal(adapted.generate(**short), adapted.generate(use_cache=False, **short))
    adapted.save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(with_maps(), tmp_path).eval()
    assert torch.allclose(loaded(input_ids=IDS).logits, after, atol=1e-6)
    assert torch.allclose(loaded.merge_and_unload()(IDS).logits, after, atol=1e-4)


@of_peft
def test_adapters_do_not_come_before(tmp_path):
    """An adapter's file would not have the maps: neither its model nor the one within it is given any."""
    peft = pytest.importorskip("peft", reason="peft is not installed")
    adapted = peft.get_peft_model(plain(), peft.LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM"))
    for model in (adapted, adapted.base_model.model):
        with pytest.raises(UserError, match="adapters"):
            add_maps(model)
    assert type(adapted.base_model.model) is LlamaForCausalLM


def test_mistakes_are_named(tmp_path):
    with pytest.raises(UserError, match="already has maps"):
        add_maps(with_maps())
    with pytest.raises(UserError, match="LlamaForCausalLM"):
        add_maps(torch.nn.Linear(2, 2))
    model = plain()
    with pytest.raises(UserError, match="rank 9"):
        add_maps(model, rank=9)
    with pytest.raises(UserError, match="rank must be at least 1, not 0"):
        add_maps(model, rank=0)
    for rank in (2.5, True):
        with pytest.raises(UserError, match=f"rank must be a whole number, not {rank}"):
            add_maps(model, rank=rank)
    for settings, message in (
        ({"omega_max": "2"}, "omega_max must be a number, not '2'"),
        ({"learn_omega": "yes"}, "learn_omega must be true or false, not 'yes'"),
    ):
        with pytest.raises(UserError, match=message):
            add_maps(model, **settings)
    with pytest.raises(UserError, match="LlamaConfig has no maps; build the plain model, and give it maps with add_m"):
        LlamaWithMaps(plain().config)
    with pytest.raises(UserError, match="again at 0 where a document begins; a Llama with maps takes no reset"):
        with_maps()(IDS, reset=IDS == 3)
    with pytest.raises(UserError, match=r"org/name is no folder with a config.json; for a model of the hub, use Auto"):
        load_with_maps("org/name")
    assert type(model) is LlamaForCausalLM and model.config.model_type == "llama"
    assert not [name for name in model.config.to_dict() if name.startswith("map_")]
    with pytest.raises(UserError, match="MapCache"):
        with_maps().generate(IDS, cache_implementation="static", **GREEDY)
    if hasattr(model, "generate_batch"):
        with pytest.raises(UserError, match="it does not generate in pages"):
            with_maps().generate(IDS, cache_implementation="paged", **GREEDY)
    plain().save_pretrained(tmp_path)
    with pytest.raises(UserError, match="without maps"):
        load_with_maps(tmp_path)
