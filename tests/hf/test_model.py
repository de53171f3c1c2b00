"""The transformers model is our decoder: same weights, logits, loss and gradients, saved and loaded in every way."""

import json
import math

import pytest
import torch
import transformers
from packaging.version import Version
from safetensors.torch import load_file, save_file
from small import NAMES, VARIANTS, VOCABULARY, config, model, recompute, tokens
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig

import mapformers as mf
from mapformers.errors import UserError
from mapformers.hf import MapFormerConfig, MapFormerForCausalLM, from_decoder, from_run
from mapformers.hf.modeling import NAMED_HERE
from mapformers.modules.layer import LAYERS


@pytest.mark.parametrize("name", NAMES)
def test_it_starts_as_the_decoder_of_the_same_seed_and_says_the_same(name):
    torch.manual_seed(3)
    ours = mf.build_model(name, vocab_size=VOCABULARY, d_model=32, n_layers=2, n_heads=2, **dict(VARIANTS)[name])
    torch.manual_seed(3)
    theirs = MapFormerForCausalLM(config(name)).eval()
    assert all(torch.equal(value, theirs.decoder.state_dict()[key]) for key, value in ours.state_dict().items())
    ids, mask = tokens(), torch.ones(2, 9, dtype=torch.bool)
    mask[0, :3] = False
    with torch.no_grad():
        assert torch.equal(theirs(ids).logits, ours.eval()(ids))
        assert torch.equal(theirs(ids, attention_mask=mask.long()).logits, ours(ids, padding_mask=mask))


@pytest.mark.parametrize("name", NAMES)
def test_saved_and_loaded_it_says_the_same(name, tmp_path):
    saved = model(name)
    saved.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(loaded) is MapFormerForCausalLM and not loaded.training
    assert loaded.config.decoder_config() == saved.config.decoder_config()
    with torch.no_grad():
        assert torch.equal(loaded(tokens()).logits, saved(tokens()).logits)


def test_in_shards_and_as_a_hybrid(tmp_path):
    layers = ["mapem", ("mapwm", {"rank": 3}), "mamba"]
    saved = MapFormerForCausalLM(MapFormerConfig(layers=layers, vocab_size=40, d_model=32, n_heads=2)).eval()
    saved.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert [name for name, _ in loaded.config.layers] == ["mapem", "mapwm", "mamba"]
    assert loaded.config.num_hidden_layers == 3
    with torch.no_grad():
        assert torch.equal(loaded(tokens()).logits, saved(tokens()).logits)


def test_a_saved_folder_names_the_package(tmp_path):
    model().save_pretrained(tmp_path)
    assert (tmp_path / "modeling_mapformer.py").read_text().startswith("from mapformers.hf import MapFormerConfig")
    settings = json.loads((tmp_path / "config.json").read_text())
    assert settings["auto_map"]["AutoModelForCausalLM"] == "modeling_mapformer.MapFormerForCausalLM"
    assert settings["model"] == "mapwm" and settings["rank"] == 2
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, trust_remote_code=True)
    assert type(loaded) is MapFormerForCausalLM
    loaded.save_pretrained(tmp_path / "again")
    assert {path.name for path in (tmp_path / "again").glob("*.py")} == {"modeling_mapformer.py"}


@pytest.mark.parametrize("name", NAMES)
def test_in_bf16(name, tmp_path):
    saved = model(name)
    saved.save_pretrained(tmp_path)
    half = MapFormerForCausalLM.from_pretrained(tmp_path, torch_dtype=torch.bfloat16)
    assert half.dtype == torch.bfloat16
    kept = {key for key, value in half.named_parameters() if value.dtype == torch.float32}
    paths = {key for key, _ in half.named_parameters() if ".path." in key}
    assert kept == paths if Version(transformers.__version__) >= Version("5") else kept in (paths, set())
    assert all(value.dtype == torch.bfloat16 for key, value in half.named_parameters() if key not in paths)
    with torch.no_grad():
        difference = (half(tokens()).logits.float() - saved(tokens()).logits).abs().max()
        assert difference < 0.15 * saved(tokens()).logits.abs().max()
    built = AutoModelForCausalLM.from_config(config(name), torch_dtype=torch.bfloat16)
    assert built.dtype == torch.bfloat16 and torch.get_default_dtype() == torch.float32
    assert {key for key, value in built.named_parameters() if value.dtype == torch.float32} == paths
    with torch.no_grad():  # the decoder is in the same precision, weight by weight
        assert torch.equal(half.to_decoder()(tokens()), half(tokens()).logits)


def test_a_path_that_a_checkpoint_does_not_have_is_in_float32_too(tmp_path):
    model().save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    kept = {key: value for key, value in weights.items() if ".path." not in key}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    half = MapFormerForCausalLM.from_pretrained(tmp_path, torch_dtype=torch.bfloat16)
    paths = [value for key, value in half.named_parameters() if ".path." in key]
    assert paths and {value.dtype for value in paths} == {torch.float32}


@pytest.mark.parametrize("name", NAMES)
def test_built_on_meta(name):
    with torch.device("meta"):
        empty = MapFormerForCausalLM(config(name))
    assert all(parameter.is_meta for parameter in empty.parameters())
    filled = empty.to_empty(device="cpu")
    for parameter in filled.parameters():
        torch.nn.init.constant_(parameter, math.nan)
    filled.init_weights()
    assert filled.eval()(tokens()).logits.isfinite().all()
    new = MapFormerForCausalLM(config(name))
    for key, value in new.named_buffers():
        assert torch.equal(value, filled.get_buffer(key)), key
    shapes = {key: value.shape for key, value in filled.state_dict().items()}
    assert shapes == {key: value.shape for key, value in new.state_dict().items()}


@pytest.mark.parametrize("name", NAMES)
def test_weights_that_a_checkpoint_does_not_have_start_as_new_ones(name, tmp_path):
    saved = model(name)
    saved.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    kept = {key: value for key, value in weights.items() if "layers.1." not in key and "embedding" not in key}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    loaded = MapFormerForCausalLM.from_pretrained(tmp_path)
    new = MapFormerForCausalLM(config(name))
    for key, value in loaded.state_dict().items():
        if key in kept:
            assert torch.equal(value, kept[key]), key
        else:
            assert not torch.equal(value, weights[key]) or value.numel() == 1 or "mean" in key, key
            start = new.state_dict()[key]
            assert torch.allclose(value.float().std(), start.float().std(), atol=0.1, rtol=0.3), key
    inner = loaded.decoder.layers[1]
    if name in ("mapwm", "rope"):  # W_o starts as the transpose of W_v: the weights of a layer start together
        heads = inner.mixer.heads
        assert torch.allclose(heads.out.weight, heads.project.weight[-32:].T / 2**0.5)


@pytest.mark.parametrize("tied", [False, True])
def test_the_loss_is_that_of_the_next_token(tied):
    net, ids = model(tie_head=tied), tokens()
    labels = ids.clone()
    labels[0, :4] = -100
    out = net(ids, labels=labels)
    logits, targets = out.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    assert torch.allclose(out.loss, torch.nn.functional.cross_entropy(logits, targets, ignore_index=-100))
    assert torch.equal(net(ids, labels=labels, return_dict=False)[0], out.loss)


def test_a_tied_head_starts_at_the_loss_of_guessing_and_stays_tied(tmp_path):
    torch.manual_seed(0)
    net = MapFormerForCausalLM(config(tie_head=True, vocab_size=4000, d_model=64))
    assert net.decoder.head.weight is net.decoder.embedding.weight
    ids = torch.randint(0, 4000, (4, 32))
    assert net(ids, labels=ids).loss < 2 * torch.log(torch.tensor(4000.0))
    net.save_pretrained(tmp_path)
    assert len(load_file(tmp_path / "model.safetensors")) == len(net.state_dict()) - 1
    loaded = MapFormerForCausalLM.from_pretrained(tmp_path).eval()
    assert loaded.decoder.head.weight is loaded.decoder.embedding.weight
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, net.eval()(ids).logits)
        assert torch.allclose(loaded.to_decoder()(ids), net(ids).logits, atol=1e-5)


def test_there_and_back(tmp_path):
    decoder = mf.build_model("mapwm", vocab_size=40, d_model=32, n_heads=2, n_layers=2, rank=3).eval()
    back = from_decoder(decoder).to_decoder()
    assert back.config == decoder.config
    assert all(torch.equal(value, back.state_dict()[key]) for key, value in decoder.state_dict().items())


def test_a_run_becomes_a_transformers_model(tmp_path):
    run = mf.train("navigation", "mapwm", scale="smoke", seed=0, out=tmp_path / "run", rank=2)
    converted = from_run(tmp_path / "run")
    converted.save_pretrained(tmp_path / "hub")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "hub")
    batch = run.task.sample("iid", batch_size=2, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(loaded(batch.tokens).logits, run.model.eval()(batch.tokens))
    assert mf.evaluate(loaded, run.task, "iid", n_sequences=4) == mf.evaluate(run.model, run.task, "iid", n_sequences=4)


def test_hidden_states_lead_from_the_embedding_to_the_head():
    net, ids = model(), tokens()
    hidden = net(ids, output_hidden_states=True).hidden_states
    assert len(hidden) == 3
    assert torch.equal(hidden[0], net.decoder.embedding(ids))
    assert torch.equal(net.logits(hidden[-1]), net(ids).logits)
    assert torch.equal(net(ids, logits_to_keep=2).logits, net(ids).logits[:, -2:])


def test_embeddings_instead_of_tokens():
    net, ids = model(), tokens()
    assert torch.equal(net(inputs_embeds=net.decoder.embedding(ids)).logits, net(ids).logits)


def test_the_vocabulary_can_grow_and_shrink():
    net, ids = model(), tokens()
    before = net(ids).logits
    net.resize_token_embeddings(50)
    assert net.config.vocab_size == net.decoder.config.vocab_size == 50
    assert torch.allclose(net(ids).logits[..., :40], before, atol=1e-6)
    assert net(torch.full((1, 2), 49)).logits.shape == (1, 2, 50)
    net.resize_token_embeddings(45)
    with pytest.raises(UserError, match="0 to 44"):
        net(torch.full((1, 2), 49))


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_gives_the_same_gradients(reentrant):
    plain, ids = model().train(), tokens()
    plain(ids, labels=ids).loss.backward()
    again = model().train()
    recompute(again, reentrant)
    again(ids, labels=ids).loss.backward()
    for one, other in zip(plain.parameters(), again.parameters()):
        assert torch.allclose(one.grad, other.grad, atol=1e-6)


@pytest.mark.parametrize("real", [torch.ones(2, 9), torch.ones(2, 9).triu(2)], ids=["no padding", "padding"])
def test_it_compiles_to_one_graph_with_an_attention_mask(real):
    net, ids = model(), tokens()
    compiled = torch.compile(net, fullgraph=True, backend="eager")
    with torch.no_grad():
        found, wanted = (each(ids, attention_mask=real).logits[real > 0] for each in (compiled, net))
    assert torch.allclose(found, wanted, atol=1e-5)


def test_packed_documents_are_as_if_alone():
    net, ids = model(), tokens(1, 9)
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    packed = net(ids, position_ids=positions).logits
    alone = torch.cat((net(ids[:, :4]).logits, net(ids[:, 4:]).logits), dim=1)
    assert torch.allclose(packed, alone, atol=1e-5)


def test_a_document_that_begins_after_a_cache_is_as_if_alone():
    net, ids = model(), tokens(1, 9)
    cache = net(ids[:, :4], use_cache=True).past_key_values
    after = net(ids[:, 4:], past_key_values=cache, position_ids=torch.arange(5).unsqueeze(0)).logits
    assert torch.allclose(after, net(ids[:, 4:]).logits, atol=1e-5)


def test_no_setting_of_transformers_is_taken_for_one_of_ours():
    theirs = set(vars(PretrainedConfig()))
    for name in LAYERS:
        options = set(LAYERS[name].options.__dataclass_fields__)
        assert not options & theirs, name
        MapFormerConfig(
            name, vocab_size=10, **{"action_ids": [1]} if name == "tem-t" else {}, **PretrainedConfig().to_dict()
        )


def test_special_tokens_are_none_unless_given(tmp_path):
    """Programs ask a config for them, whether it was given any or not."""
    config = MapFormerConfig("rope", vocab_size=9, eos_token_id=3)
    config.save_pretrained(tmp_path)
    for each in (config, AutoConfig.from_pretrained(tmp_path)):
        assert (each.pad_token_id, each.bos_token_id, each.eos_token_id) == (None, None, 3)


def test_positions_of_one_row_are_those_of_all(batch=3):
    net, ids = model(), tokens(batch)
    packed = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 4])
    whole = net(ids, position_ids=packed.expand(batch, 9)).logits
    assert not torch.equal(whole, net(ids).logits)
    for given in (packed, packed[None]):
        assert torch.equal(net(ids, position_ids=given).logits, whole)
    with pytest.raises(UserError, match=r"position_ids must be of shape \(3, 9\) or \(1, 9\), not .*\(2, 9\)"):
        net(ids, position_ids=packed.expand(2, 9))


def test_mistakes_are_named():
    for name, theirs in NAMED_HERE.items():
        with pytest.raises(UserError, match=f"'{name}' is called '{theirs}' here; give it by that name"):
            model()(tokens(), **{name: None})
    for settings, message in (
        ({"model": "mapwm", "n_embd": 128}, "'n_embd' is of other models: it is 'd_model' here"),
        ({"model": "mapwm", "dropout": 0.1}, "'dropout' is of other models: there is no such thing here"),
        (
            {"model": "rope", "hidden_size": 64, "d_model": 128},
            "hidden_size and d_model are the same, but are 64 and 128",
        ),
        ({"model": "mapem", "decay": True}, "'decay' is no option of model 'mapem'; leave it out"),
        ({"model": "rope", "rank": 2}, "'rank' is no option of model 'rope'"),
        ({"layers": ["mapwm", "rope"], "rank": 2}, "'rank' is no option of a hybrid; give it to its layers"),
    ):
        with pytest.raises(UserError, match=message):
            MapFormerConfig(vocab_size=9, **settings)
    with pytest.raises(UserError, match=r"inputs_embeds must have the shape \(batch, length, "):
        model()(inputs_embeds=torch.ones(1, 2, 3))
    with pytest.raises(UserError, match="did you mean 'rank'"):
        MapFormerConfig("mapwm", rnak=4)
    with pytest.raises(UserError, match="mapwm"):
        MapFormerConfig("mapwn")
    with pytest.raises(UserError, match="only one"):
        model()(tokens(), inputs_embeds=torch.zeros(2, 9, 32))
    with pytest.raises(UserError, match="look at it"):
        model()(tokens(), output_attentions=True)
    for mask, said in (
        (torch.ones(2, 1, 9, 9), r"\(2, 9\), 0 where a token is padding, not torch.float32 of shape \(2, 1, 9, 9\)"),
        (torch.ones(2, 30), r"\(2, 9\), 0 where a token is padding, not torch.float32 of shape \(2, 30\)"),
        (torch.ones(2, 9).tolist(), r"\(2, 9\), 0 where a token is padding, not list"),
    ):
        with pytest.raises(UserError, match="attention_mask must be a tensor of shape " + said):
            model()(tokens(), attention_mask=mask, position_ids=torch.arange(8))
    cache = model()(tokens(), use_cache=True).past_key_values
    with pytest.raises(UserError, match=r"attention_mask must be a tensor of shape \(2, 9\) or \(2, 18\), 0 where"):
        model()(tokens(), past_key_values=cache, attention_mask=torch.ones(2, 12))
    with pytest.raises(
        UserError, match=r"input_ids must be of shape \(batch, length\), not torch.int64 of shape \(9,\)"
    ):
        model()(tokens()[0], attention_mask=torch.ones(9))
    decoder = mf.build_model("mapwm", vocab_size=9, d_model=8)
    for settings in ({"rank": 3}, {"vocab_size": 7}, {"hidden_size": 16}):
        with pytest.raises(UserError, match=f"The decoder is built already, with its {next(iter(settings))}; leave"):
            from_decoder(decoder, **settings)
    with pytest.raises(UserError, match="of your own"):
        from_run(mf.Run(None, None, torch.nn.Linear(2, 2), {}, 0))
    assert AutoConfig.for_model("mapformer").model == "mapwm"
    hybrid = MapFormerConfig(layers=["mapwm", "rope"], vocab_size=9)
    hybrid.num_hidden_layers = 5
    with pytest.raises(UserError, match="n_layers is 5, but the hybrid has 2 layers; set `layers`"):
        MapFormerForCausalLM(hybrid)


@pytest.mark.parametrize("again", [False, True], ids=["built", "started anew"])
def test_a_tied_model_starts_as_build_model_does(again):
    """The norm before a tied head has small gains, so that the loss starts at ln V."""
    settings = {"vocab_size": 50, "d_model": 64, "n_layers": 1, "n_heads": 2, "rank": 2, "tie_head": True}
    torch.manual_seed(3)
    model = MapFormerForCausalLM(MapFormerConfig("mapwm", **settings))
    torch.manual_seed(3)
    wanted = mf.build_model("mapwm", **settings)
    if again:
        model.decoder.norm.gain.data.fill_(7.0)
        model.init_weights()
    torch.testing.assert_close(model.decoder.norm.gain, wanted.norm.gain, rtol=0, atol=0)
    if not again:
        tokens = torch.arange(20).view(2, 10)
        torch.testing.assert_close(model(tokens).logits, wanted(tokens))
        loss = model(tokens, labels=tokens).loss
        assert loss.item() == pytest.approx(math.log(50), abs=0.1)
