"""BLiMP: read from what there is, scored by lm-eval in two ways and by us in a third, all of which agree."""

import os
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import mapformers as mf
from helpers import randomize, tiny_corpus
from mapformers.errors import UserError
from mapformers.lm.blimp import ISLANDS, read_blimp, score_blimp, score_blimp_directly, scores_of
from mapformers.lm.sentences import Sentence, log_probabilities
from mapformers.lm.tokenizer import ByteTokenizer
from minimal_pairs import PARADIGMS, write
from runs import quiet

os.environ["HF_HUB_OFFLINE"] = "1"
BLIMP = Path(os.environ.get("MAPFORMERS_BLIMP", Path(__file__).parents[3] / "shared" / "data" / "blimp"))
harness = pytest.mark.skipif(find_spec("lm_eval") is None, reason="needs lm-eval: pip install 'mapformers[eval]'")


@pytest.fixture
def sample(tmp_path):
    return write(tmp_path / "blimp")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    made = mf.train("text", "mapwm", scale="smoke", data=tiny_corpus(), context=32, out=folder, console=quiet())
    randomize(made.model)  # far from chance, so that a different reading would show
    return mf.load(made.save(folder.with_name("random")))


def test_a_folder_is_read(sample):
    found = {paradigm.name: paradigm for paradigm in read_blimp(sample)}
    assert set(found) == set(PARADIGMS) and set(ISLANDS) < set(found)
    assert found["anaphor_number_agreement"].pairs == tuple(PARADIGMS["anaphor_number_agreement"][2])
    assert found["npi_present_1"].field == "syntax_semantics"  # spelt in two ways in BLiMP itself


def test_an_archive_is_read_without_its_litter(sample, tmp_path):
    with zipfile.ZipFile(tmp_path / "BLiMP.zip", "w") as archive:
        for file in sample.iterdir():
            archive.write(file, f"data/{file.name}")
        archive.writestr("__MACOSX/data/._wh_island.jsonl", b"\x00\x05\x16")
        archive.writestr("data/.DS_Store", b"\x00")
    assert read_blimp(tmp_path / "BLiMP.zip") == read_blimp(sample) == read_blimp(tmp_path)


def test_log_probabilities_are_those_of_each_sentence_alone(run):
    chance = torch.Generator().manual_seed(0)
    sentences = [
        Sentence([256], torch.randint(0, 256, (length,), generator=chance).tolist()) for length in (5, 1, 9, 9, 2)
    ]
    found = log_probabilities(run.model, sentences)
    for sentence, answer in zip(sentences, found):
        tokens = torch.tensor([[*sentence.before, *sentence.ids]])
        with torch.no_grad():
            chances = run.model(tokens)[0].double().log_softmax(dim=-1)
        wanted = sum(float(chances[i, token]) for i, token in enumerate(sentence.ids))
        assert answer.log_probability == pytest.approx(wanted, rel=1e-5)
        assert answer.is_likeliest == (chances[:-1].argmax(dim=-1).tolist() == sentence.ids)


@harness
def test_lm_eval_says_the_same_of_our_model_of_the_saved_folder_and_as_we_do(run, sample, tmp_path, capsys):
    from mapformers.hf import save_run
    from mapformers.lm.harness import accuracies

    paradigms, tokenizer = read_blimp(sample), ByteTokenizer()
    ours = score_blimp(run.model, tokenizer, paradigms)
    assert capsys.readouterr().err == ""  # no bars and no warnings
    assert score_blimp_directly(run.model, tokenizer, paradigms) == ours
    folder = save_run(run, tmp_path / "saved")
    theirs = accuracies("hf", paradigms, model_args={"pretrained": str(folder), "dtype": "float32"}, device="cpu")
    assert theirs == ours.accuracies
    assert set(ours.accuracies.values()) > {0.0, 1.0}


@harness
def test_lm_evals_hf_model_gives_the_same_log_probabilities(run, tmp_path):
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    from mapformers.hf import save_run
    from mapformers.lm.harness import DecoderLM, quiet

    sentences = [text for _, _, pairs in PARADIGMS.values() for pair in pairs for text in pair]
    asked = [Instance("loglikelihood", {}, ("", f" {text}"), index) for index, text in enumerate(sentences)]
    with quiet():
        hf = HFLM(pretrained=str(save_run(run, tmp_path / "saved")), dtype="float32", device="cpu", batch_size=4)
        theirs = hf.loglikelihood(asked, disable_tqdm=True)
        ours = DecoderLM(run.model, ByteTokenizer()).loglikelihood(asked, disable_tqdm=True)
    assert [one for one, _ in ours] == pytest.approx([one for one, _ in theirs], rel=1e-5)
    assert [two for _, two in ours] == [two for _, two in theirs]


def test_means_are_over_paradigms(sample):
    paradigms = read_blimp(sample)
    found = scores_of({paradigm.name: float(paradigm.field == "syntax") for paradigm in paradigms}, paradigms)
    assert found.overall == 6 / 8 and found.islands == 1.0 and found.pairs == 10
    assert found.fields == {"morphology": 0.0, "syntax": 1.0, "syntax_semantics": 0.0}
    assert found.terms == {"anaphor_agreement": 0.0, "island_effects": 1.0, "npi_licensing": 0.0}
    some = [paradigm for paradigm in paradigms if paradigm.name != "wh_island"]
    assert scores_of({paradigm.name: 1.0 for paradigm in some}, some, limit=1).islands is None


@pytest.mark.skipif(not BLIMP.is_dir(), reason=f"there is no BLiMP in {BLIMP}; name its folder in MAPFORMERS_BLIMP")
def test_the_real_blimp_has_what_its_authors_say():
    paradigms = read_blimp(BLIMP)
    assert len(paradigms) == 67 and {len(paradigm.pairs) for paradigm in paradigms} == {1000}
    assert {paradigm.field for paradigm in paradigms} == {"morphology", "semantics", "syntax", "syntax_semantics"}
    assert set(ISLANDS) < {paradigm.name for paradigm in paradigms if paradigm.term == "island_effects"}
    model = mf.build_model("rope", vocab_size=257, d_model=16)
    scores = score_blimp_directly(model, ByteTokenizer(), paradigms, limit=2)
    assert scores.pairs == 134 and len(scores.terms) == 13 and 0.2 < scores.overall < 0.8


def test_what_is_no_blimp_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.zip").write_bytes(b"PK no archive")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "pairs.jsonl").write_text('{"text": "no pair"}\n')
    for name, sentence in (
        ("nowhere", "There is no .*nowhere; --blimp is BLiMP.zip"),
        ("empty", "empty holds no BLiMP: neither BLiMP.zip nor .jsonl files"),
        ("broken.zip", "is no zip file that can be read"),
        ("other", "Line 1 of pairs.jsonl is no pair of BLiMP"),
    ):
        with pytest.raises(UserError, match=sentence):
            read_blimp(tmp_path / name)
