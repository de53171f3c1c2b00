"""`build_model` and its config: sizes, hybrids, round trip through plain data, one sentence for every wrong input."""

import json
from collections.abc import Callable

import pytest
import torch

import mapformers as mf
from helpers import CASES, HYBRID, Case, draw_tokens
from mapformers.model import Decoder, ModelConfig, from_dict, model_config
from mapformers.modules.layer import LAYERS


def test_every_registered_model_is_listed_and_built_by_name():
    assert mf.list_models() == list(LAYERS)
    assert {"rope", "nope", "mapwm", "mapem"} <= set(mf.list_models())


@pytest.mark.parametrize("case", [*CASES, HYBRID], ids=str)
def test_tokens_become_logits_and_a_state(case: Case):
    model, tokens = case.build(dtype=torch.float32), draw_tokens(3, 7)
    logits = model(tokens)
    assert logits.shape == (3, 7, 11) and logits.dtype == torch.float32
    with_state, state = model(tokens, return_state=True)
    assert torch.equal(with_state, logits)
    assert len(state.layers) == len(model.layers)
    more, _ = model(tokens[:, :2], state=state, return_state=True)
    assert more.shape == (3, 2, 11)
    assert not torch.allclose(more, logits[:, :2])


def test_sizes_reach_the_weights():
    model = mf.build_model("mapwm", vocab_size=21, d_model=24, n_heads=3, n_layers=5, rank=4, mlp_ratio=2)
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert len(model.layers) == 5
    assert shapes["embedding.weight"] == shapes["head.weight"] == (21, 24)
    assert shapes["layers.4.mixer.heads.project.weight"] == (3 * 24, 24)
    assert shapes["layers.4.mixer.path.w_in"] == (3 * 4, 24)
    assert shapes["layers.4.mixer.path.w_out"] == (3, 4, 4)
    assert shapes["layers.4.mlp.up.weight"] == (48, 24)


def test_head_dim_overrides_the_division_of_d_model():
    model = mf.build_model("rope", vocab_size=5, d_model=10, n_heads=3, head_dim=8)
    assert model.layers[0].mixer.heads.project.weight.shape == (3 * 3 * 8, 10)
    assert model.layers[0].mixer.heads.out.weight.shape == (10, 3 * 8)
    assert model(torch.tensor([[1, 2, 3]])).shape == (1, 3, 5)


def test_one_layer_unless_told():
    assert len(mf.build_model("nope", vocab_size=5).layers) == 1


def test_a_hybrid_has_each_layer_with_its_own_options():
    model = mf.build_model(layers=["mapem", ("mapwm", {"rank": 4}), "rope"], vocab_size=9, d_model=16)
    assert [type(layer.mixer).__name__ for layer in model.layers] == ["MapEM", "MapWM", "RoPE"]
    assert [layer.mixer.path.rank for layer in model.layers[:2]] == [2, 4]
    assert len(mf.build_model(layers=["rope", "nope"], n_layers=2, vocab_size=9).layers) == 2


@pytest.mark.parametrize("learn_omega", [True, False])
def test_omega_is_learned_only_if_asked_for(learn_omega: bool):
    model = mf.build_model("mapwm", vocab_size=9, d_model=16, n_heads=2, learn_omega=learn_omega)
    fixed = {name for name, p in model.named_parameters() if not p.requires_grad}
    assert fixed == (set() if learn_omega else {"layers.0.mixer.path.omega"})
    omega, w_out = mf.lie.ladders(4, 2)
    for head in range(2):
        assert torch.equal(model.layers[0].mixer.path.omega[head], omega.float())
        assert torch.equal(model.layers[0].mixer.path.w_out[head], w_out.float())


def test_config_goes_through_json_and_back():
    config = HYBRID.build(head_dim=24, mlp_ratio=3).config
    back = ModelConfig.from_dict(json.loads(json.dumps(config.to_dict())))
    assert back == config
    rebuilt, original = Decoder(back).state_dict(), Decoder(config).state_dict()
    assert {n: t.shape for n, t in rebuilt.items()} == {n: t.shape for n, t in original.items()}


def test_config_keeps_options_that_are_not_the_defaults():
    config = model_config("mapem", vocab_size=5, attend="s", rank=3, self_key=False, attn_temperature=2)
    options = ModelConfig.from_dict(config.to_dict()).layers[0].options
    assert (options.attend, options.rank, options.self_key, options.attn_temperature) == ("s", 3, False, 2)


def build(name: str | None = "mapwm", **settings) -> Callable[[], object]:
    return lambda: mf.build_model(name, **({"vocab_size": 7, "d_model": 8} | settings))


def run(tokens: object, **flags: object) -> Callable[[], object]:
    return lambda: mf.build_model("mapwm", vocab_size=7, d_model=8)(tokens, **flags)


def other_state() -> object:
    tokens = torch.tensor([[1, 2]])
    _, state = mf.build_model("rope", vocab_size=7, n_layers=2)(tokens, return_state=True)
    return mf.build_model("rope", vocab_size=7, n_layers=3)(tokens, state=state)


def other_batch() -> object:
    model = mf.build_model("rope", vocab_size=7)
    _, state = model(torch.ones(1, 2, dtype=torch.long), return_state=True)
    return model(torch.ones(3, 2, dtype=torch.long), state=state)


TWO = torch.tensor([[1, 2]])
WRONG = {
    "unknown name": (build("mapmw"), "'mapmw'", "did you mean 'mapwm'?"),
    "unknown name, nothing near": (build("xyz"), "'xyz'", "choose one of: ", "mapem", "rope"),
    "unknown name in a list": (build(None, layers=["rope", "mapmw"]), "'mapmw'", "did you mean 'mapwm'?"),
    "unknown option": (build(rnak=2), "'rnak'", "did you mean 'rank'?"),
    "unknown option in a list": (build(None, layers=[("mapwm", {"rnak": 2})]), "'rnak'", "did you mean 'rank'?"),
    "option of another model": (build("rope", rank=2), "'rank'", "rope_base"),
    "options beside a list": (build(None, layers=["mapwm"], rank=2), "per layer", "rank"),
    "name and list": (build("mapwm", layers=["mapwm"]), "either"),
    "neither name nor list": (build(None), "either"),
    "empty list": (build(None, layers=[]), "at least one layer"),
    "list and n_layers disagree": (build(None, layers=["rope"], n_layers=2), "1 layers", "n_layers says 2"),
    "layer of three": (build(None, layers=[("mapwm", {}, 1)]), "(name, options)"),
    "n_layers 0": (build(n_layers=0), "n_layers", "0"),
    "vocab_size 0": (build(vocab_size=0), "vocab_size", "0"),
    "d_model 0": (build(d_model=0), "d_model", "0"),
    "n_heads 0": (build(n_heads=0), "n_heads", "0"),
    "head_dim 0": (build(head_dim=0), "head_dim", "0"),
    "mlp_ratio 0": (build(mlp_ratio=0), "mlp_ratio", "0"),
    "rank 0": (build(rank=0), "rank", "at least 1", "0"),
    "rank above blocks": (build(rank=5), "rank 5", "a head of 8 has 4"),
    "rank not whole": (build(rank=1.5), "rank", "a whole number", "1.5"),
    "rank a bool": (build(rank=True), "rank", "a whole number", "True"),
    "odd head, mapwm": (build(head_dim=7), "even", "7"),
    "odd head, mapem": (build("mapem", head_dim=7), "even", "7"),
    "odd head, rope": (build("rope", head_dim=7), "even", "7"),
    "d_model not divisible": (build(n_heads=3), "d_model 8", "3 heads"),
    "temperature 0": (build(attn_temperature=0), "attn_temperature", "above 0"),
    "temperature below 0": (build("nope", attn_temperature=-1.0), "attn_temperature", "-1.0"),
    "temperature not a number": (build("rope", attn_temperature="hot"), "attn_temperature", "a number", "'hot'"),
    "temperature nan": (build("rope", attn_temperature=float("nan")), "attn_temperature", "nan"),
    "attend x": (build("mapem", attend="x"), "attend", "os, s, o", "'x'"),
    "self_key a number": (build("mapem", self_key=1), "self_key", "true or false"),
    "omega_max 0": (build(omega_max=0.0), "omega_max", "0.0"),
    "base below 1": (build(base=0.5), "base", "0.5"),
    "rope_base 1": (build("rope", rope_base=1.0), "rope_base", "1.0"),
    "origin_std 0": (build("mapem", origin_std=0.0), "origin_std", "0.0"),
    "token negative": (run(torch.tensor([[0, -1]])), "-1", "0 to 6"),
    "token too large": (run(torch.tensor([[0, 7]])), "Token 7", "0 to 6"),
    "tokens float": (run(TWO.float()), "int64", "torch.float32"),
    "tokens bool": (run(TWO.bool()), "int64", "torch.bool"),
    "tokens 1-D": (run(TWO[0]), "(batch, length)", "(2,)"),
    "tokens empty": (run(TWO[:, :0]), "at least one token", "(1, 0)"),
    "no rows": (run(TWO[:0]), "at least one token", "(0, 2)"),
    "reset of ints": (run(TWO, reset=TWO), "reset", "bool", "torch.int64"),
    "reset of another shape": (run(TWO, reset=torch.ones(1, 3, dtype=torch.bool)), "reset", "(1, 2)", "(1, 3)"),
    "padding_mask of floats": (run(TWO, padding_mask=torch.ones(1, 2)), "padding_mask", "bool", "torch.float32"),
    "padding_mask 1-D": (run(TWO, padding_mask=torch.ones(2, dtype=torch.bool)), "padding_mask", "(2,)"),
    "state of another depth": (other_state, "state is of another model"),
    "state of another batch": (other_batch, "batch of 1", "batch of 3"),
    "a layer that is a number": (lambda: mf.build_model(layers=[3], vocab_size=7), "name or (name, options)", "3"),
    "a list as the name": (lambda: mf.build_model(["rope"], vocab_size=7), "layers=[…]"),
    "a size in words": (lambda: mf.build_model("rope", vocab_size=7, d_model="8"), "d_model", "'8'"),
    "half a layer": (lambda: mf.build_model("rope", vocab_size=7, n_layers=1.5), "n_layers", "1.5"),
    "a ladder upside down": (lambda: mf.build_model("mapwm", vocab_size=7, base=1.0, omega_max=1.0), "base", "2π"),
    "config with an unknown setting": (lambda: from_dict(ModelConfig, {"d_modle": 8}), "'d_modle'", "'d_model'"),
    "config of a wrong type": (lambda: from_dict(ModelConfig, {"d_model": "8"}), "d_model", "a whole number", "'8'"),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_wrong_input_is_named_in_one_line(wrong: tuple):
    do, *parts = wrong
    with pytest.raises(mf.UserError) as caught:
        do()
    message = str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert ("\n" not in message and message.endswith((".", "?"))) or message.endswith("(name, options)")
    for part in parts:
        assert part in message
