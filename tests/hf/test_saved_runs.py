"""A run on text, saved with its tokenizer: what the Auto classes load is the same model and the same tokens."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import mapformers as mf
from helpers import words
from mapformers.errors import UserError
from mapformers.hf import save_run
from mapformers.lm import prepare
from runs import quiet


@pytest.mark.parametrize("tokenizer", ["bytes", "bpe:300"])
def test_a_saved_run_has_its_model_and_its_tokenizer(tokenizer, tmp_path):
    (tmp_path / "text.txt").write_text(words(300))
    prepare(tmp_path / "text.txt", tmp_path / "data", tokenizer=tokenizer, val=0.2, console=quiet())
    settings = {"data": tmp_path / "data", "context": 16, "d_model": 16, "n_heads": 1, "console": quiet()}
    run = mf.train("text", "mapwm", scale="smoke", out=tmp_path / "run", **settings)
    folder = save_run(tmp_path / "run", tmp_path / "saved")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert 'tokenizer = AutoTokenizer.from_pretrained("this folder")' in (folder / "README.md").read_text("utf-8")
    corpus = run.task.corpus
    for text in (" A naïve sentence.", "two\nlines", "…"):
        assert tokenizer(text, add_special_tokens=False).input_ids == corpus.tokenizer.encode([text])[0].tolist()
    assert tokenizer.eos_token_id == tokenizer.bos_token_id == corpus.separator == model.config.eos_token_id
    tokens = torch.randint(0, 257, (2, 9))
    with torch.no_grad():
        torch.testing.assert_close(model(tokens).logits, run.model.eval()(tokens), rtol=0, atol=0)


def test_prompts_of_different_lengths_go_on_in_a_batch_as_alone(tmp_path):
    (tmp_path / "text.txt").write_text(words(300))
    prepare(tmp_path / "text.txt", tmp_path / "data", tokenizer="bytes", val=0.2, console=quiet())
    settings = {"data": tmp_path / "data", "context": 16, "d_model": 16, "n_heads": 1, "console": quiet()}
    run = mf.train("text", "mapwm", scale="smoke", out=tmp_path / "run", **settings)
    folder = save_run(run, tmp_path / "saved")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = tokenizer.eos_token
    prompts, how = ["a", "a longer prompt", "some words"], {"do_sample": False, "max_new_tokens": 12}
    together = model.generate(**tokenizer(prompts, return_tensors="pt", padding=True), **how)
    for prompt, text in zip(prompts, together[:, -12:]):
        alone = model.generate(**tokenizer(prompt, return_tensors="pt"), **how)[0]
        assert tokenizer.decode(text) == tokenizer.decode(alone[-12:])


def test_a_run_without_text_has_no_tokenizer_to_save(tmp_path):
    run = mf.train("selective-copy", "rope", scale="smoke", out=tmp_path / "run", console=quiet())
    with pytest.raises(UserError, match="is on selective-copy, which has no tokenizer; use from_run"):
        save_run(run, tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
