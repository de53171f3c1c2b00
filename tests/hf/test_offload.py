"""Weights that lie elsewhere are there when a layer is called: every model says what it says with them in place."""

import pytest
import torch
from small import VOCABULARY, tokens
from test_added_maps import IDS, with_maps

from mapformers.hf import MapFormerConfig, MapFormerForCausalLM
from mapformers.modules.layer import LAYERS

accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
CASES = [(name, LAYERS[name].variants[0]) for name in LAYERS]
GREEDY = {"do_sample": False, "max_new_tokens": 3}


@pytest.mark.filterwarnings("ignore:You are calling .generate:UserWarning")  # transformers 4 looks where weights lie
@pytest.mark.parametrize(("name", "options"), [*CASES, ("mapwm", {"decay": True}), ("mampa", {"decay": True})], ids=str)
def test_offloaded_it_says_the_same(name, options):
    sizes = {"vocab_size": VOCABULARY, "d_model": 32, "n_layers": 2, "n_heads": 2, "eos_token_id": None}
    net, ids = MapFormerForCausalLM(MapFormerConfig(name, **sizes, **options)).eval(), tokens()
    with torch.no_grad():
        logits, text = net(ids).logits, net.generate(ids, **GREEDY)
        accelerate.cpu_offload(net, execution_device="cpu")
        assert all(parameter.is_meta for parameter in net.parameters())
        assert torch.equal(net(ids).logits, logits)
        assert torch.equal(net.generate(ids, **GREEDY), text)


def test_an_offloaded_llama_with_maps_says_the_same():
    model = with_maps()
    with torch.no_grad():
        logits = model(IDS).logits
        accelerate.cpu_offload(model, execution_device="cpu")
        assert torch.equal(model(IDS).logits, logits)
