"""The task `text`: what is trained on, what is measured, and that neither depends on how it is cut up."""

import json
import math
import shlex

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import mapformers as mf
from helpers import tiny_corpus, words
from mapformers.cli.main import main
from mapformers.lm import Corpus, prepare
from mapformers.lm.text import Text
from runs import assert_same_run, quiet


@pytest.fixture(scope="module")
def data():
    return tiny_corpus()


@pytest.fixture(scope="module")
def bigrams(data):
    """A model: the logits of the next token depend on the present one alone."""
    table = torch.randn(257, 257, generator=torch.Generator().manual_seed(0))
    return lambda tokens: table[tokens]


def task(data, **settings):
    return mf.build_task("text", data=data, **{"context": 50, **settings})


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_windows_are_the_text(data):
    text = Corpus.open(data).texts["train"]
    whole, size = text.read(0, len(text)), len(text)
    batch = task(data).sample("iid", 64, generator())
    for start, tokens, targets in zip(batch.info["start"].tolist(), batch.tokens, batch.targets):
        ring = whole[(start + np.arange(51)) % size]
        assert tokens.tolist() == ring[:-1].tolist() and targets.tolist() == ring[1:].tolist()
    assert batch.loss_mask.all() and batch.score_mask.all() and batch.reset is None
    starts = task(data, context=1).sample("iid", 4000, generator()).info["start"].float()
    assert int(starts.max()) > 0.999 * size and abs(float(starts.mean()) / size - 0.5) < 0.02


@pytest.mark.parametrize("context", [1, 7, 50, 1000])
def test_an_epoch_gives_every_token_once_but_for_less_than_a_window(data, context):
    here = task(data, context=context)
    size = len(Corpus.open(data).texts["train"])
    windows = size // context
    epochs = []
    for epoch in range(2):
        starts = here._starts(3, epoch * windows, (epoch + 1) * windows)
        targets = (starts[:, None] + 1 + np.arange(context)) % size
        assert len(np.unique(targets)) == targets.size == windows * context > size - context
        epochs.append(starts)
    assert context == 1 or set(epochs[0].tolist()) != set(epochs[1].tolist())  # cut at other places
    assert not np.array_equal(*epochs)
    other_seed = here._starts(4, 0, windows)
    assert not np.array_equal(other_seed, epochs[0])


def test_batches_of_a_run_do_not_depend_on_how_they_are_cut(data):
    """Also where a batch goes from one epoch into the next."""
    here = task(data, context=300)
    windows = len(here.text_of(here.settings)) // 300
    whole = here.training_batch(4 * windows, seed=1, step=0)
    halves = [here.training_batch(2 * windows, seed=1, step=step) for step in range(2)]
    parts = [here.training_batch(4 * windows, seed=1, step=0, part=(i, 4)) for i in range(4)]
    for pieces in (halves, parts):
        assert torch.equal(whole.tokens, torch.cat([piece.tokens for piece in pieces]))
        assert torch.equal(whole.targets, torch.cat([piece.targets for piece in pieces]))
    again = mf.build_task("text", data=data, context=300).training_batch(8, seed=1, step=5)
    assert torch.equal(again.tokens, here.training_batch(8, seed=1, step=5).tokens)
    with pytest.raises(mf.UserError, match="A batch of 8 cannot be cut into 3 equal parts"):
        here.training_batch(8, seed=1, step=0, part=(0, 3))


@pytest.mark.parametrize("context", [1, 50, 333])
@pytest.mark.parametrize("split", ["iid", "val"])
def test_measuring_counts_every_target_once_and_in_order(data, split, context):
    here = task(data, context=context)
    text = here.text_of(here.split_settings(split))
    targets = []
    for batch in here.evaluation_batches(split, 10**9, 7, generator()):
        assert torch.equal(batch.loss_mask, batch.score_mask)
        targets += batch.targets[batch.score_mask].tolist()
    assert targets == text.read(1, len(text)).tolist()


def test_fewer_windows_are_spread_over_the_whole_text(data):
    here = task(data)
    all_of_them = len(here.text_of(here.settings)) // 50
    starts = torch.cat([batch.info["start"] for batch in here.evaluation_batches("iid", 10, 4, generator())])
    assert len(starts) == 10 and starts[0] == 0 and not (starts % 50).any()
    gaps = starts.diff() // 50
    assert gaps.max() - gaps.min() <= 1 and int(starts[-1]) // 50 >= 0.85 * all_of_them


def test_loss_is_the_mean_over_all_targets_and_perplexity_its_exponential(data, bigrams):
    here = task(data)
    text = here.text_of(here.split_settings("val"))
    tokens = torch.from_numpy(text.read(0, len(text)))
    costs = cross_entropy(bigrams(tokens[:-1]).double(), tokens[1:], reduction="none")
    right = bigrams(tokens[:-1]).argmax(dim=-1) == tokens[1:]
    for batch_size in (None, 1, 5):
        scores = mf.evaluate(bigrams, here, "val", n_sequences=10**6, batch_size=batch_size)
        assert list(scores) == ["loss", "perplexity", "accuracy"]
        assert float(scores["loss"]) == pytest.approx(float(costs.mean()), rel=1e-6)
        assert float(scores["perplexity"]) == pytest.approx(math.exp(costs.mean()), rel=1e-6)
        assert float(scores["accuracy"]) == pytest.approx(float(right.double().mean()))
        assert {score.count for score in scores.values()} == {len(text) - 1}
    few = mf.evaluate(bigrams, here, "val", n_sequences=5, seed=0)
    assert few == mf.evaluate(bigrams, here, "val", n_sequences=5, seed=1, batch_size=2)  # no seed chooses windows


def test_a_model_far_off_has_no_finite_perplexity_and_none_in_json(data):
    here = task(data)
    scores = mf.evaluate(lambda tokens: 1e4 * torch.nn.functional.one_hot(tokens, 257).float(), here, "val")
    assert scores["perplexity"] == math.inf and scores["perplexity"].to_dict()["value"] is None
    nan = mf.evaluate(lambda tokens: torch.full((*tokens.shape, 257), math.nan), here, "val", n_sequences=4)
    assert all(math.isnan(score) for score in nan.values())


def test_a_map_starts_anew_with_each_document_where_that_is_asked_for(data):
    here = task(data, reset_documents=True, context=3000)
    batch = here.sample("iid", 4, generator())
    assert torch.equal(batch.reset, batch.tokens == 256) and batch.reset.any() and not batch.reset.all()
    assert batch.to("cpu").reset is not None
    model = mf.build_model("mapwm", vocab_size=257, d_model=16).double()
    row, place = next((row, place) for row, place in batch.reset.nonzero().tolist() if place < 2900)
    alone = model(batch.tokens[row : row + 1, place : place + 60])
    assert torch.allclose(batch.read_by(model)[row, place : place + 60], alone[0], atol=1e-8)
    plain = mf.evaluate(model, task(data, context=400), "val", n_sequences=4)["loss"]
    reset = mf.evaluate(model, task(data, context=400, reset_documents=True), "val", n_sequences=4)["loss"]
    assert reset != plain and reset.count == plain.count


@pytest.mark.parametrize("name", [name for name in mf.list_models() if name != "tem-t"])
def test_every_layer_reads_text_with_and_without_borders(data, name):
    """tem-t must be told which tokens are actions, and text has none."""
    for reset in (False, True):
        batch = task(data, reset_documents=reset, context=24).sample("iid", 2, generator())
        model = mf.RunConfig.compose("text", name, "smoke", data=data, context=24, d_model=16).build_model()
        loss = task(data).loss(batch.read_by(model), batch)
        loss.backward()
        assert math.isfinite(loss.item())


TRAIN = "train --task text --model mapwm --scale smoke --context 32 --d-model 16 --log-every 1 --checkpoint-every 2"


def test_a_run_from_the_command_line_is_measured_on_val_and_resumes_to_the_last_bit(
    data, tmp_path, capsys, monkeypatch
):
    line = [*shlex.split(TRAIN), "--data", data, "--reset-documents", "--sequences", "32", "--out"]
    assert main([*line, str(tmp_path / "whole")]) == 0
    assert "perplexity" in capsys.readouterr().out
    measured = [json.loads(line) for line in (tmp_path / "whole/metrics.jsonl").read_text().splitlines()]
    splits = [line for line in measured if "split" in line]
    assert splits and all(line["split"] == "val" and line["perplexity"] > 1 for line in splits)
    assert set(json.loads((tmp_path / "whole/result.json").read_text())["splits"]) == {"iid", "val"}
    take, calls = Text.training_batch, []

    def fail(self, *args):
        calls.append(args)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return take(self, *args)

    monkeypatch.setattr(Text, "training_batch", fail)
    assert main([*line, str(tmp_path / "stopped")]) == 130
    monkeypatch.undo()
    assert main(["train", "--resume", "--out", str(tmp_path / "stopped")]) == 0
    assert_same_run(tmp_path / "stopped", tmp_path / "whole")
    assert main(["eval", str(tmp_path / "whole"), "--splits", "val"]) == 0
    assert mf.load(tmp_path / "whole").task.vocab_size == 257


def test_a_run_never_goes_on_with_other_data(tmp_path, capsys):
    (tmp_path / "a.txt").write_text(words(300))
    prepare(tmp_path / "a.txt", tmp_path / "data", tokenizer="bytes", val=0.2, console=quiet())
    line = [*shlex.split(TRAIN), "--data", str(tmp_path / "data"), "--out", str(tmp_path / "run")]
    assert main(line) == 0
    for path in (tmp_path / "data").iterdir():
        path.unlink()
    (tmp_path / "a.txt").write_text(words(300, seed=1))
    prepare(tmp_path / "a.txt", tmp_path / "data", tokenizer="bytes", val=0.2, console=quiet())
    assert main(["eval", str(tmp_path / "run")]) == 2
    assert "holds other data than those this run was started with; prepare them as they were" in capsys.readouterr().err
    run = mf.load(tmp_path / "run")  # the model can be had without its data
    assert run.model(torch.zeros(1, 4, dtype=torch.long)).shape == (1, 4, 257)


def test_names_of_tokens_are_made_when_asked_for(data):
    names = task(data).token_names
    assert len(names) == 257 and names[65] == "A" and names[-1] == "<|endoftext|>" and names[65:68] == ["A", "B", "C"]
    with pytest.raises(IndexError):
        names[257]
    assert "word" in task(data).show("iid", generator())


def test_settings_that_cannot_be_are_refused_before_a_run_begins(data, tmp_path, capsys):
    cases = {
        "": "The task text needs a prepared text: --data FOLDER (see `mapformers lm prepare --help`).",
        f"--data {tmp_path}": "is not a prepared folder: it has no manifest.json",
        f"--data {data} --context 100000000": "A context of 100000000 needs 100000001 tokens, but train of",
        f"--data {data} --context 10000": "A context of 10000 needs 10001 tokens, but val of",
        f"--data {data} --context 0": "context must be at least 1, not 0",
        f"--data {data} --portion long": "has no text 'long', only train, val; prepare it with one",
    }
    for flags, message in cases.items():
        line = f"train --task text --model rope {flags} --out {shlex.quote(str(tmp_path / 'run'))}"
        assert main(shlex.split(line)) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    with pytest.raises(mf.UserError, match="There is no split of task 'text' named 'long'"):
        task(data).sample("long", 1, generator())


def test_without_a_validation_text_the_training_text_is_watched(tmp_path):
    (tmp_path / "a.txt").write_text(words(100))
    (tmp_path / "b.txt").write_text(words(100, seed=1))
    corpus = prepare(tmp_path / "a.txt", tmp_path / "data", tokenizer="bytes", val=0, console=quiet())
    assert list(corpus.texts) == ["train"] and task(tmp_path / "data").watched_split == "iid"
    more = {"long_from": str(tmp_path / "b.txt"), "val": 0.2}
    prepare(tmp_path / "a.txt", tmp_path / "more", tokenizer="bytes", console=quiet(), **more)
    assert list(task(tmp_path / "more").splits) == ["iid", "val", "long"]


def test_the_data_of_a_run_are_pinned(data):
    """A change of the order changes every figure ever measured on text."""
    starts = task(data, context=100)._starts(0, 0, 6)
    assert starts.tolist() == [2039, 19778, 6139, 15778, 7339, 5239]
