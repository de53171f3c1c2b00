"""`Trainer` trains it, and what it saves is loaded again; lm-eval's own class for such models scores the folder."""

import pytest
import torch
from small import model, tokens

from mapformers.hf import MapFormerForCausalLM


def test_trainer_takes_a_step(tmp_path):
    from transformers import Trainer, TrainingArguments

    net = model().train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    rows = [{"input_ids": row, "labels": row} for row in tokens(4)]
    settings = TrainingArguments(
        output_dir=tmp_path / "out", max_steps=1, per_device_train_batch_size=2, report_to=[], use_cpu=True,
        save_strategy="no", learning_rate=1e-2, disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(model=net, args=settings, train_dataset=rows)
    result = trainer.train()
    assert 0 < result.training_loss < 20
    assert not torch.equal(net.state_dict()["decoder.embedding.weight"], before["decoder.embedding.weight"])
    trainer.save_model(tmp_path / "saved")
    loaded = MapFormerForCausalLM.from_pretrained(tmp_path / "saved")
    with torch.no_grad():
        assert torch.equal(loaded(tokens()).logits, net.eval()(tokens()).logits)


def test_a_step_of_trainer_is_a_step_of_ours():
    net, ids = model().train(), tokens(4)
    decoder = net.to_decoder()
    loss = net(ids, labels=ids).loss
    logits = decoder(ids)
    ours = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    assert torch.allclose(loss, ours)
    loss.backward()
    ours.backward()
    for one, other in zip(net.decoder.parameters(), decoder.parameters()):
        assert torch.allclose(one.grad, other.grad, atol=1e-6)


@pytest.mark.filterwarnings("ignore")  # lm-eval's own
def test_lm_eval_scores_a_saved_folder(tmp_path):
    pytest.importorskip("lm_eval", reason="lm-eval is not installed")
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<end>", *["the", "a", "cat", "dog", "sees", "likes", "runs", "it", "is", "small", "and", "big"]]
    inner = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<end>")
    net = model(vocab_size=len(words))
    net.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    scorer = HFLM(pretrained=str(tmp_path), device="cpu", batch_size=2, dtype="float32", trust_remote_code=True)
    texts = ["the cat sees a dog", "it runs"]
    asked = [Instance("loglikelihood", {}, ("", text), index) for index, text in enumerate(texts)]
    scores = scorer.loglikelihood(asked, disable_tqdm=True)
    for text, (score, _) in zip(texts, scores):
        ids = torch.tensor([[1, *tokenizer(text, add_special_tokens=False)["input_ids"]]])
        with torch.no_grad():
            logs = net(ids).logits.log_softmax(-1)[0, :-1].gather(1, ids[0, 1:, None]).sum()
        assert score == pytest.approx(float(logs), abs=1e-3)
