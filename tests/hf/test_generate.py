"""`generate` with our cache: the same tokens as without, however they are chosen; other caches are refused."""

import copy

import pytest
import torch
from small import NAMES, model, tokens
from transformers import DynamicCache, GenerationMixin

from mapformers.errors import UserError
from mapformers.hf import MapFormerCache

GREEDY = {"do_sample": False, "max_new_tokens": 7}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "how", [GREEDY, {**GREEDY, "num_beams": 3, "num_return_sequences": 2}], ids=["greedy", "beams"]
)
def test_with_the_cache_as_without(name, how):
    net = model(name)
    assert torch.equal(net.generate(tokens(), **how), net.generate(tokens(), use_cache=False, **how))


def test_sampling_with_the_cache_as_without():
    net, drawn = model(), []
    for use_cache in (True, False):
        torch.manual_seed(0)
        drawn.append(
            net.generate(tokens(), do_sample=True, num_return_sequences=3, max_new_tokens=7, use_cache=use_cache)
        )
    assert drawn[0].shape == (6, 16) and torch.equal(*drawn)


@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_padded_on_the_left_goes_on_as_if_alone(name):
    net, ids = model(name), tokens()
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    together = net.generate(ids.masked_fill(mask == 0, 0), attention_mask=mask, **GREEDY)
    assert torch.equal(together[0, 4:], net.generate(ids[:1, 4:], **GREEDY)[0])
    assert torch.equal(together[1], net.generate(ids[1:], **GREEDY)[0])


@pytest.mark.parametrize("name", NAMES)
def test_logits_in_pieces_are_those_of_the_whole(name):
    net, ids = model(name), tokens(2, 12)
    with torch.no_grad():
        whole, cache, pieces = net(ids).logits, None, []
        for piece in ids.split([5, 1, 1, 5], dim=1):
            out = net(piece, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            pieces.append(out.logits)
    assert cache.get_seq_length() == 12 and len(cache) == 2
    assert torch.allclose(torch.cat(pieces, dim=1), whole, atol=1e-5)


def test_a_cache_is_gone_on_from():
    net, ids = model(), tokens()
    first = net.generate(ids, return_dict_in_generate=True, **GREEDY)
    kept = copy.deepcopy(first.past_key_values)
    more = net.generate(first.sequences, past_key_values=first.past_key_values, **GREEDY)
    assert torch.equal(more, net.generate(ids, do_sample=False, max_new_tokens=14))
    assert kept.get_seq_length() == 15  # a copy stays where it was
    assert torch.equal(net.generate(first.sequences, past_key_values=kept, **GREEDY), more)


def test_one_prompt_read_once_and_gone_on_from_many_times():
    net, ids = model(), tokens(1)
    with torch.no_grad():
        cache = net(ids[:, :-1], use_cache=True).past_key_values
    cache.batch_repeat_interleave(3)
    assert cache.batch_size == 3
    many = net.generate(ids.repeat(3, 1), past_key_values=cache, **GREEDY)
    assert torch.equal(many, net.generate(ids, **GREEDY).repeat(3, 1))
    cache.batch_select_indices(torch.tensor([2]))
    assert cache.batch_size == 1
    cache.reset()
    assert cache.get_seq_length() == 0


def test_from_embeddings():
    net, ids = model(), tokens()
    given = net.generate(inputs_embeds=net.decoder.embedding(ids), **GREEDY)
    assert torch.equal(given, net.generate(ids, **GREEDY)[:, 9:])


def test_tem_t_must_see_tokens():
    with pytest.raises(UserError, match="which tokens act; give input_ids instead of inputs_embeds"):
        model("tem-t")(inputs_embeds=torch.zeros(1, 3, 32))


@pytest.mark.parametrize("kind", ["static", "quantized", "offloaded"])
def test_other_caches_are_refused_by_name(kind):
    with pytest.raises(ValueError, match="MapFormer keeps its own state"):
        model().generate(tokens(), cache_implementation=kind, **GREEDY)


@pytest.mark.skipif(not hasattr(GenerationMixin, "generate_batch"), reason="before transformers 4.53")
def test_generation_in_pages_is_refused():
    for call in (
        lambda: model().generate(tokens(), cache_implementation="paged", **GREEDY),
        lambda: model().generate_batch(tokens().tolist()),
    ):
        with pytest.raises(UserError, match="it does not generate in pages: leave cache_implementation out"):
            call()


@pytest.mark.parametrize("how", [GREEDY, {**GREEDY, "num_beams": 3}], ids=["greedy", "beams"])
@pytest.mark.parametrize("use_cache", [True, False])
def test_a_prompt_of_packed_documents_goes_on(how, use_cache):
    net, ids = model(), tokens()
    reset = torch.zeros_like(ids, dtype=torch.bool)
    reset[:, 4] = True
    found = net.generate(ids, reset=reset, use_cache=use_cache, **how)
    assert torch.equal(found[:, 9:], net.generate(ids[:, 4:], **how)[:, 5:])
    embedded = net.generate(inputs_embeds=net.get_input_embeddings()(ids), reset=reset, use_cache=use_cache, **how)
    assert torch.equal(embedded, found[:, 9:])


def test_other_caches_are_refused_by_object():
    with pytest.raises(UserError, match="MapFormer keeps its own state"):
        model()(tokens(), past_key_values=DynamicCache())
    with pytest.raises(UserError, match="read the shorter text anew"):
        MapFormerCache().crop(3)
    with pytest.raises(UserError, match="batch of 2"):
        model()(tokens(3), past_key_values=model()(tokens(), use_cache=True).past_key_values)


def test_assisted_generation_is_refused():
    with pytest.raises(ValueError, match=r"(?i)stateful|assistant"):
        model().generate(tokens(1), assistant_model=model(), **GREEDY)
