"""The card of a saved folder says what is known of the model, and leaves a card that is there alone."""

import re

import small

import mapformers as mf
from mapformers.hf import from_run

SMALL = {"steps": 8, "grid": 4, "sequences": 64, "batch_size": 16, "d_model": 16}


def test_a_model_of_a_run_tells_of_its_training_and_scores(tmp_path):
    run = mf.train("navigation", "mapwm", scale="smoke", seed=5, out=tmp_path / "run", **SMALL)
    from_run(run).save_pretrained(tmp_path / "saved")
    card = (tmp_path / "saved" / "README.md").read_text(encoding="utf-8")
    assert "`navigation` (dims 2, steps 8, grid 4" in card and "64 sequences" in card and "seed 5" in card
    for split, scores in run.result["splits"].items():
        [row] = re.findall(rf"^\| {split} \|(.*)\|$", card, flags=re.MULTILINE)
        assert row.split("|")[0].strip() == f"{scores['accuracy']['value']:.4f}"
    assert card.count("To be filled in") == 1 and str(tmp_path) not in card


def test_a_model_without_a_run_leaves_it_to_be_filled_in_and_a_card_is_kept(tmp_path):
    model = small.model("mapwm")
    model.save_pretrained(tmp_path)
    card = tmp_path / "README.md"
    text = card.read_text(encoding="utf-8")
    assert text.startswith("---\nlibrary_name: transformers\n") and text.count("To be filled in") == 3
    assert f"vocab_size 40, hidden_size 32, num_hidden_layers 2, {model.num_parameters():,} parameters" in text
    assert "tokenizer" not in text
    card.write_text("mine", encoding="utf-8")
    model.save_pretrained(tmp_path)
    assert card.read_text(encoding="utf-8") == "mine"
