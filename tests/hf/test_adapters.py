"""Adapters of PEFT on a model of this library, as the documentation says to make them."""

import pytest
import torch
from small import model, tokens

peft = pytest.importorskip("peft", reason="peft is not installed")
# peft asks transformers 5.23 by names that this calls old.
pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")


def test_lora_adapts_every_projection_and_trains_the_path():
    net, ids = model(), tokens()
    before = net(ids).logits
    settings = peft.LoraConfig(target_modules="all-linear", modules_to_save=["path"], task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(net, settings)
    assert torch.equal(adapted.eval()(input_ids=ids).logits, before)
    adapted(input_ids=ids, labels=ids).loss.backward()
    trained = {name: parameter.grad for name, parameter in adapted.named_parameters() if parameter.requires_grad}
    assert any("lora_A" in name for name in trained)
    paths = [gradient for name, gradient in trained.items() if ".path." in name]
    assert paths and all(gradient is not None and gradient.abs().max() > 0 for gradient in paths)


def test_a_prompt_is_tuned_when_the_number_of_heads_is_given():
    net, ids = model(), tokens()
    settings = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3, num_attention_heads=2)
    adapted = peft.get_peft_model(net, settings)
    adapted(input_ids=ids, labels=ids).loss.backward()
    [(name, prompt)] = [each for each in adapted.named_parameters() if each[1].requires_grad]
    assert "prompt" in name and prompt.grad.abs().max() > 0
