"""`mapformers lm eval`: figures by their definitions, tables, JSON, and what is refused."""

import json
import math
import os
from importlib.util import find_spec

import pytest

import mapformers as mf
from helpers import tiny_corpus, words
from mapformers.cli.main import main
from mapformers.evaluation.significance import paired, welch
from mapformers.lm import prepare
from mapformers.lm.evaluation import LanguageRun, language_run, long_documents
from mapformers.lm.perplexity import Point, mean_of_last, over_training, window_losses
from minimal_pairs import write
from runs import quiet

os.environ["HF_HUB_OFFLINE"] = "1"
harness = pytest.mark.skipif(find_spec("lm_eval") is None, reason="needs lm-eval: pip install 'mapformers[eval]'")
SMALL = {"d_model": 16, "n_heads": 1, "context": 32, "eval_every": 1}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two seeds of two models."""
    place = tmp_path_factory.mktemp("runs")
    for model in ("rope", "mapwm"):
        for seed in (0, 1):
            where = {"data": tiny_corpus(), "out": place / f"{model}{seed}", "console": quiet()}
            mf.train("text", model, scale="smoke", seed=seed, **SMALL, **where)
    return place


def evaluated(capsys, *words):
    assert main(["lm", "eval", *map(str, words)]) == 0
    return capsys.readouterr().out


def test_windows_and_the_last_five_are_what_the_run_measured(runs):
    run = mf.load(runs / "rope0")
    found = window_losses(run.model, run.task, "val", 7)
    scores = mf.evaluate(run.model, run.task, "val", n_sequences=7)
    assert len(found.nats) == 7 and found.perplexity == pytest.approx(float(scores["perplexity"]), rel=1e-6)
    points = over_training(run)
    logged = [line["perplexity"] for line in run.metrics if line.get("split") == "val"]
    assert [point.perplexity for point in points] == logged and len(points) == 4
    assert [point.tokens for point in points] == [128, 256, 384, 512]
    assert mean_of_last(points) == sum(logged) / 4
    assert mean_of_last([Point(n, float(n)) for n in range(9)]) == 6.0  # of 4 to 8


def test_an_evaluation_that_was_not_finite_counts(runs, tmp_path):
    run = mf.load(runs / "rope0")
    run.save(tmp_path / "diverged")
    lines = [{"step": step, "split": "val", "perplexity": value} for step, value in enumerate((9.0, 8.0, None), 1)]
    (tmp_path / "diverged" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    points = over_training(mf.load(tmp_path / "diverged"))
    assert [point.perplexity for point in points] == [9.0, 8.0, math.inf] and mean_of_last(points) == math.inf


def test_a_run_keeps_its_tokenizer_and_is_told_where_its_text_is_now(tmp_path, capsys, monkeypatch):
    (tmp_path / "text.txt").write_text(words(400, seed=3))
    monkeypatch.chdir(tmp_path)
    tokenizer = prepare("text.txt", "here", tokenizer="bpe:260", val=0.2, console=quiet()).tokenizer
    run = mf.train("text", "rope", scale="smoke", data="here", out="run", console=quiet(), **SMALL)
    run.save("copy")
    (tmp_path / "here").rename(tmp_path / "there")
    for folder in ("run", "copy"):
        kept = language_run(folder).tokenizer
        assert (kept.to_json(), kept.separator) == (tokenizer.to_json(), tokenizer.separator)
        assert main(["lm", "generate", folder, "--prompt", "a", "--tokens", "3"]) == 0
    capsys.readouterr()
    refused(capsys, "The text of run is not in here, which has no manifest.json; work in the folder where the", "run")
    assert "over training" in " ".join(evaluated(capsys, "run", "--windows", 0).split())
    assert "mean of the last five" in evaluated(capsys, "run", "--windows", 2, "--data", "there")
    (tmp_path / "run" / "tokenizer.json").write_text("{}")
    refused(capsys, "tokenizer.json is missing or has changed since it was written; remove run/text.json to", "run")
    (tmp_path / "run" / "text.json").write_text("[]")
    refused(capsys, "text.json is damaged; remove it to use the text that the run was trained on", "run")
    (tmp_path / "run" / "text.json").unlink()
    assert "mean of the last five" in evaluated(capsys, "run", "--windows", 2, "--data", "there")
    mf.train("selective-copy", "rope", scale="smoke", out="copy", overwrite=True, console=quiet())
    assert not (tmp_path / "copy" / "tokenizer.json").exists()


def test_the_training_text_is_not_called_validation(tmp_path, capsys):
    (tmp_path / "text.txt").write_text(words(400, seed=3))
    prepare(tmp_path / "text.txt", tmp_path / "data", tokenizer="bytes", val=0, console=quiet())
    where = {"data": tmp_path / "data", "out": tmp_path / "run", "console": quiet()}
    mf.train("text", "rope", scale="smoke", **SMALL, **where)
    said = " ".join(evaluated(capsys, tmp_path / "run", "--windows", 2).split())
    assert "perplexity on the training text" in said and "validation" not in said and "(of 4)" in said
    assert json.loads(evaluated(capsys, tmp_path / "run", "--windows", 2, "--json"))["runs"][0]["split"] == "iid"


def test_tables(runs, capsys):
    line = ["--windows", 5, "--contexts", 16, 32, 64, "--targets", 4]
    said = " ".join(evaluated(capsys, runs / "mapwm0", *line).split())  # a title may take two lines
    assert "mean of the last five" in said and "over training" in said and "perplexity against context" in said
    assert "128" in said and "512" in said


def test_json_has_every_figure_and_the_tests(runs, capsys):
    line = [runs / "mapwm0", runs / "mapwm1", "--against", runs / "rope0", runs / "rope1", "--windows", 6, "--json"]
    said = json.loads(evaluated(capsys, *line, "--contexts", 16, 64, "--targets", 4, "--blocks", 3))
    assert [run["run"] for run in said["runs"] + said["against"]] == ["mapwm0", "mapwm1", "rope0", "rope1"]
    first = said["runs"][0]
    assert first["split"] == "val" and len(first["windows"]) == 6 and len(first["training"]) == 4
    losses = first["contexts"]["documents"]["64"]
    assert first["contexts"]["perplexity"]["64"] == pytest.approx(math.exp(sum(losses) / len(losses)))
    for measure, what in (("perplexity", "validation windows"), ("mean_of_last_five", "mean of the last five")):
        logs = [[math.log(run[measure]) for run in said[side]] for side in ("runs", "against")]
        wanted, found = welch(*logs).as_ratio(), said["differences"][f"{what}, seeds, Welch"]
        assert (found["mean"], found["p"], found["n"]) == (pytest.approx(wanted.mean), pytest.approx(wanted.p), [2, 2])
        wanted, found = paired(*logs).as_ratio(), said["differences"][f"{what}, seeds, paired"]
        assert (found["low"], found["p"], found["n"]) == (pytest.approx(wanted.low), pytest.approx(wanted.p), [2])
    assert set(said["differences"]) == {
        "validation windows, paired", "context 16, documents, paired", "context 64, documents, paired",
        "validation windows, seeds, Welch", "mean of the last five, seeds, Welch",
        "validation windows, seeds, paired", "mean of the last five, seeds, paired",
    }  # fmt: skip
    assert said["differences"]["validation windows, paired"]["n"] == [6]


def test_windows_are_compared_on_the_seeds_that_both_sides_have(runs, capsys):
    line = [runs / "mapwm0", runs / "mapwm1", "--against", runs / "rope1", "--windows", 6, "--json"]
    said = json.loads(evaluated(capsys, *line))
    (_, ours), [other] = said["runs"], said["against"]
    wanted, found = paired(ours["windows"], other["windows"]).as_ratio(), said["differences"]
    assert found["validation windows, paired"]["mean"] == pytest.approx(wanted.mean)
    assert set(found) == {"validation windows, paired"}  # one seed on a side has no spread


def test_a_run_does_not_differ_from_its_copy(runs, tmp_path, capsys):
    mf.load(runs / "rope0").save(tmp_path / "copy")
    said = evaluated(capsys, runs / "rope0", "--against", tmp_path / "copy", "--windows", 4)
    assert "+0.00 %" in said and "1.0000" in said


def test_runs_without_their_text_are_compared_on_documents(runs, tmp_path, capsys):
    for number in (1, 2):
        (tmp_path / f"{number}.txt").write_text(words(50, seed=number))
    line = [runs / "mapwm0", "--against", runs / "rope0", "--windows", 0, "--documents", tmp_path, "--json"]
    said = json.loads(evaluated(capsys, *line, "--contexts", 16, 32, "--targets", 4))
    assert set(said["differences"]) == {"context 16, documents, paired", "context 32, documents, paired"}


def test_a_side_is_seeds_of_one_model_each_once(runs, tmp_path, capsys):
    """A run named twice, or copied, would stand for two seeds, and any difference be sure."""
    run, against = runs / "rope0", ("--against", runs / "mapwm0", "--windows", 2)
    refused(capsys, "rope0 is given twice; a run counts once", run, runs / "rope1" / ".." / "rope0")
    refused(capsys, "mapwm0 is given twice", run, "--against", runs / "mapwm0", runs / "mapwm0")
    refused(capsys, "rope0 is given twice", run, "--against", run)
    refused(capsys, "are not seeds of one model: rope and mapwm.", run, runs / "mapwm1", *against)
    mf.load(run).save(tmp_path / "copy")
    refused(capsys, "have the same seed, 0; a seed counts once", run, tmp_path / "copy", *against)


@harness
def test_blimp_tables(runs, tmp_path, capsys):
    blimp = write(tmp_path / "blimp")
    said = evaluated(capsys, runs / "mapwm0", runs / "rope0", "--windows", 2, "--blimp", blimp, "--limit", 1)
    for words_of_it in ("wh island", "overall island", "overall BLiMP", "syntax semantics", "npi present 1", "8 pairs"):
        assert words_of_it in said
    found = json.loads(evaluated(capsys, runs / "mapwm0", "--windows", 2, "--blimp", blimp, "--json"))["runs"][0][
        "blimp"
    ]
    assert set(found) == {"overall", "islands", "pairs", "fields", "terms", "paradigms"} and found["pairs"] == 10


def test_documents_as_text_are_those_prepared_with_the_same_tokenizer(runs, tmp_path):
    (tmp_path / "texts").mkdir()
    for number in (1, 2):
        (tmp_path / "texts" / f"{number}.txt").write_text(words(50, seed=number))
    subject = language_run(runs / "rope0")
    prepared = tmp_path / "prepared"
    prepare(tmp_path / "texts", prepared, tokenizer="bytes", val=0, console=quiet())
    as_text, as_tokens = long_documents(subject, tmp_path / "texts"), long_documents(subject, prepared)
    assert len(as_text) == 2 and [ids.tolist() for ids in as_text] == [ids.tolist() for ids in as_tokens]
    own, corpus = long_documents(subject), subject.corpus
    assert len(own) == len(corpus.texts["val"].ends) and all(corpus.separator not in ids for ids in own)


def refused(capsys, sentence, *words_of_it):
    assert main(["lm", "eval", *map(str, words_of_it)]) == 2
    said = capsys.readouterr()
    assert sentence in " ".join(said.err.split()) and said.out == ""


def test_wrong_input_is_refused_in_a_sentence(runs, tmp_path, capsys, monkeypatch):
    run = runs / "rope0"
    (tmp_path / "empty").mkdir()
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "one.png").write_bytes(b"\x89PNG")
    (tmp_path / "more.txt").write_text(words(400, seed=3))
    prepare(tmp_path / "more.txt", tmp_path / "other", tokenizer="bpe:260", val=0.2, console=quiet())
    other = {"data": tmp_path / "other", "out": tmp_path / "run", "console": quiet()}
    mf.train("text", "rope", scale="smoke", **SMALL, **other)
    mf.train("selective-copy", "rope", scale="smoke", out=tmp_path / "copy", console=quiet())
    refused(capsys, "lm eval needs the folder that `mapformers lm train` wrote")
    refused(capsys, "is on selective-copy; give one that was trained on text", tmp_path / "copy")
    refused(capsys, "holds no BLiMP: neither BLiMP.zip nor", run, "--blimp", tmp_path / "empty")
    refused(capsys, "There is no", run, "--blimp", tmp_path / "nowhere")
    with monkeypatch.context() as without:
        without.setattr("mapformers.lm.blimp.find_spec", lambda name: None)
        without.setattr("mapformers.lm.evaluation.window_losses", lambda *_: pytest.fail("it was measured first"))
        refused(capsys, "BLiMP is scored by lm-eval: pip install", run, "--blimp", write(tmp_path / "blimp"))
    refused(capsys, "holds no text", run, "--documents", tmp_path / "pictures")
    refused(capsys, "There is no file or folder", run, "--documents", tmp_path / "nowhere")
    refused(capsys, "was prepared with another tokenizer than the run's data", run, "--documents", tmp_path / "other")
    refused(capsys, "A context of 99999 needs a document of", run, "--contexts", 64, 99999)
    refused(capsys, "--contexts must be at least 32, as many as --targets", run, "--contexts", 8)
    refused(capsys, "has another tokenizer than", run, "--against", tmp_path / "run")
    refused(capsys, "--limit counts pairs of BLiMP", run, "--limit", 3)
    refused(capsys, "--windows must be at least 0", run, "--windows", -1)
    refused(
        capsys, "--windows must be at least 2 (or 0, with --documents), not 1", run, "--against", run, "--windows", 1
    )
    (tmp_path / "latin.txt").write_bytes("café".encode("latin-1"))
    sentence = "latin.txt is not utf-8 text (byte 0xe9 at 3); give --documents that are whole, as UTF-8 text."
    refused(capsys, sentence, run, "--documents", tmp_path / "latin.txt")


def test_runs_with_other_windows_are_not_compared(runs, tmp_path, capsys):
    where = {"data": tiny_corpus(), "out": tmp_path / "long", "console": quiet()}
    mf.train("text", "rope", scale="smoke", **{**SMALL, "context": 48}, **where)
    refused(capsys, "has a context of 48", runs / "rope0", "--against", tmp_path / "long")
    assert isinstance(language_run(tmp_path / "long"), LanguageRun)
