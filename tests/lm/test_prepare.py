"""Prepared folders hold what a plain program would have written, whatever happens on the way."""

import errno
import gzip
import io
import json
import os
import re
import resource
import shlex
import shutil
import signal
import sys
import threading
import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from helpers import words
from mapformers import UserError
from mapformers.cli.main import main
from mapformers.files import hold_folder
from mapformers.lm import Corpus, preparation, prepare
from mapformers.lm.manifest import Manifest
from mapformers.lm.progress import PrepareProgress
from mapformers.lm.sources import FileSource
from mapformers.lm.tokenizer import ByteTokenizer, train_bpe
from mapformers.stages import doing
from runs import ended, kill, quiet, start

BYTES = {"tokenizer": "bytes", "console": quiet()}


@pytest.fixture
def texts(tmp_path):
    """Twelve documents of different lengths, one of them empty and two of them the same."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(12):
        (folder / f"{number:02d}.txt").write_text(words(10 + 7 * number, seed=number))
    (folder / "05.txt").write_text(" \n")
    (folder / "11.txt").write_text((folder / "03.txt").read_text())
    return folder


def content(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != ".lock"}


def documents(corpus, split):
    text = corpus.texts[split]
    return [corpus.tokenizer.decode(text.document(i)[:-1].tolist()) for i in range(len(text.ends))]


@pytest.mark.parametrize("tokenizer", ["bytes", "bpe:270"])
@pytest.mark.parametrize("shard_tokens", [1, 500, 10**6])
def test_shards_are_the_documents_one_after_another_each_ended_by_the_separator(
    texts, tmp_path, tokenizer, shard_tokens
):
    corpus = prepare(texts, tmp_path / "data", tokenizer=tokenizer, shard_tokens=shard_tokens, console=quiet())
    assert corpus.manifest.left_out == [("05.txt", "is empty")] and corpus.manifest.complete
    found = {split: documents(corpus, split) for split in corpus.texts}
    in_order = [path.read_text() for path in sorted(texts.iterdir()) if path.name != "05.txt"]
    assert list(found) == ["train", "val"] and len(found["val"]) in (1, 2)  # two are the same
    for split in found:
        assert found[split] == [text for text in in_order if text in found[split]]
        stream = [np.append(ids, corpus.separator) for ids in corpus.tokenizer.encode(found[split])]
        text = corpus.texts[split]
        assert text.read(0, len(text)).tolist() == np.concatenate(stream).tolist()
        assert text.ends.tolist() == np.cumsum([len(ids) for ids in stream]).tolist()
        totals = corpus.manifest.totals()[split]
        sizes = sum(len(document.encode()) for document in found[split])
        assert totals == {"tokens": len(text), "documents": len(stream), "text_bytes": sizes}
    assert sorted(found["train"] + found["val"]) == sorted(in_order)
    assert not set(found["train"]) & set(found["val"])
    number = len([name for name in content(tmp_path / "data") if name.startswith("train") and name.endswith("bin")])
    assert number == {1: len(found["train"]), 10**6: 1}.get(shard_tokens, number) and (shard_tokens > 500 or number > 1)
    assert list(corpus.faults()) == []


def test_the_split_depends_on_the_content_alone(texts, tmp_path):
    first = documents(prepare(texts, tmp_path / "a", val=0.3, **BYTES), "val")
    for path in sorted(texts.iterdir()):
        path.rename(texts / f"{100 - int(path.stem)}.txt")
    again = documents(prepare(texts, tmp_path / "b", val=0.3, **BYTES), "val")
    assert sorted(first) == sorted(again) and len(set(first)) == 3


def test_a_bpe_knows_the_training_text_alone(texts, tmp_path):
    held_out = tmp_path / "val"
    held_out.mkdir()
    (held_out / "a.txt").write_text("zzzz qqqq " * 500)
    corpus = prepare(texts, tmp_path / "a", tokenizer="bpe:280", val_from=str(held_out), console=quiet())
    alone = prepare(texts, tmp_path / "b", tokenizer="bpe:280", val=0, console=quiet())
    assert corpus.tokenizer.to_json() == alone.tokenizer.to_json()
    assert list(alone.texts) == ["train"]


def test_other_sources_for_validation_and_long_contexts_share_nothing_with_training(texts, tmp_path):
    for split, names in {"val": ["03", "04"], "long": ["04", "06"]}.items():
        (tmp_path / split).mkdir()
        for name in names:
            (tmp_path / split / f"{split}{name}.txt").write_text((texts / f"{name}.txt").read_text())
    held_out = {"val_from": str(tmp_path / "val"), "long_from": str(tmp_path / "long")}
    corpus = prepare(texts, tmp_path / "data", **held_out, **BYTES)
    sets = {split: set(documents(corpus, split)) for split in corpus.texts}
    assert {split: len(found) for split, found in sets.items()} == {"train": 7, "val": 2, "long": 1}
    assert not (sets["train"] & sets["val"] or sets["train"] & sets["long"] or sets["val"] & sets["long"])
    assert corpus.manifest.left_out == [
        ("long04.txt", "is also in val"), ("03.txt", "is also in val"), ("04.txt", "is also in val"),
        ("05.txt", "is empty"), ("06.txt", "is also in long"), ("11.txt", "is also in val"),
    ]  # fmt: skip


@pytest.mark.parametrize("split", ["val", "long"])
def test_a_single_document_is_not_trained_on_in_part_if_it_is_to_be_tested_on(tmp_path, split):
    (tmp_path / "book.txt").write_text(words(400))
    book = {f"{split}_from": str(tmp_path / "book.txt")}
    with pytest.raises(UserError, match=r"^book.txt holds no text for training: all its documents are empty or left"):
        prepare(tmp_path / "book.txt", tmp_path / "data", **book, **BYTES)
    assert content(tmp_path / "data") == {}


def test_the_one_document_that_is_left_for_training_is_cut(tmp_path):
    (tmp_path / "texts").mkdir()
    for name in ("a", "b"):
        (tmp_path / "texts" / f"{name}.txt").write_text(words(100, seed=ord(name)))
    corpus = prepare(tmp_path / "texts", tmp_path / "data", long_from=str(tmp_path / "texts" / "a.txt"), **BYTES)
    assert documents(corpus, "long") == [(tmp_path / "texts" / "a.txt").read_text()]
    ((train,), (val,)) = documents(corpus, "train"), documents(corpus, "val")
    assert train + val == (tmp_path / "texts" / "b.txt").read_text()
    assert corpus.manifest.left_out == [("a.txt", "is also in long")]


def test_validation_text_is_chosen_among_what_is_not_in_another_split(texts, tmp_path):
    """Whichever document would be chosen among all of them is one that is tested on."""
    (chosen,) = set(documents(prepare(texts, tmp_path / "first", **BYTES), "val"))
    (tmp_path / "long.txt").write_text(chosen)
    console = quiet()
    corpus = prepare(texts, tmp_path / "data", long_from=str(tmp_path / "long.txt"), tokenizer="bytes", console=console)
    assert documents(corpus, "long") == [chosen] and documents(corpus, "val")
    assert chosen not in documents(corpus, "train") + documents(corpus, "val")
    assert "no text was kept for validation" not in console.file.getvalue()


def test_it_is_said_if_no_text_is_kept_for_validation(texts, tmp_path, monkeypatch):
    """Of a stream, chance decides; of another source, all may be empty."""
    rows = SimpleNamespace(skip=lambda start: [{"text": f"row {n}"} for n in range(start, 4)])
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=lambda *_, **__: rows))
    (tmp_path / "blank.txt").write_text("\n")
    remedy = r"for one, prepare it into another --out with a larger --val, or with --val-from."
    for source, name, settings in (
        ("hf:rows", "hf:rows:train", {"val": 1e-9}),
        (texts, "texts", {"val_from": str(tmp_path / "blank.txt")}),
    ):
        console = quiet()
        corpus = prepare(source, tmp_path / f"data of {name}", tokenizer="bytes", console=console, **settings)
        assert list(corpus.texts) == ["train"]
        assert f"{name}: no text was kept for validation; {remedy}" in console.file.getvalue()
    console = quiet()
    prepare(texts, tmp_path / "none", val=0, tokenizer="bytes", console=console)
    assert console.file.getvalue() == ""


@pytest.mark.parametrize("text", ["one line\n" * 40, "words " * 50, "x" * 300], ids=["lines", "words", "letters"])
def test_a_single_document_is_cut_and_its_end_is_for_validation(tmp_path, text):
    (tmp_path / "book.txt").write_text(text)
    corpus = prepare(tmp_path / "book.txt", tmp_path / "data", val=0.25, **BYTES)
    ((train,), (val,)) = documents(corpus, "train"), documents(corpus, "val")
    assert train + val == text and 0.7 < len(train) / len(text) < 0.8
    assert train[-1] in "\n x"


def test_the_end_of_a_short_document_is_not_blank(tmp_path):
    (tmp_path / "note.txt").write_text("three short words\n\n")
    corpus = prepare(tmp_path / "note.txt", tmp_path / "data", val=0.01, **BYTES)
    assert documents(corpus, "train") == ["three short word"] and documents(corpus, "val") == ["s\n\n"]


def test_json_lines_and_code_become_documents(tmp_path):
    lines = [json.dumps({"text": words(20, seed=i)}) for i in range(30)]
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    corpus = prepare(tmp_path / "a.jsonl.gz", tmp_path / "lines", val=0.1, shard_tokens=300, **BYTES)
    assert [len(corpus.texts[split].ends) for split in ("train", "val")] == [27, 3]
    code = prepare("python:json", tmp_path / "code", **BYTES)
    assert any("def loads(" in document for split in code.texts for document in documents(code, split))
    assert "/" not in code.manifest.made["source"]["name"]


def test_nothing_written_names_a_folder_of_this_machine(texts, tmp_path):
    (texts / "broken.txt").write_bytes(b"\xff\xff")
    prepare(texts, tmp_path / "data", skip_broken=True, **BYTES)
    assert str(tmp_path).encode() not in b"".join(content(tmp_path / "data").values())


def test_given_again_it_is_complete_already_and_other_settings_or_texts_are_refused(texts, tmp_path):
    folder = tmp_path / "data"
    prepare(texts, folder, **BYTES)
    before = content(folder)
    prepare(texts, folder, **BYTES)
    assert content(folder) == before
    for settings, what in (
        ({"val": 0.5}, "share"),
        ({"tokenizer": "bpe:300"}, "tokenizer"),
        ({"shard_tokens": 7}, "shard_tokens"),
    ):
        with pytest.raises(UserError, match=f"was begun with another {what}; give that again, or another --out"):
            prepare(texts, folder, **{**BYTES, **settings})
    (texts / "00.txt").write_text("changed")
    with pytest.raises(
        UserError,
        match=r"The text of texts, or how it is read, is not as it was when .* was begun; choose another --out",
    ):
        prepare(texts, folder, **BYTES)
    with pytest.raises(UserError, match=r"or how it is read, is not as it was"):
        prepare(texts, folder, encoding="latin-1", **BYTES)
    assert content(folder) == before
    with pytest.raises(UserError, match=r"texts holds other files \(00.txt\); choose another --out"):
        prepare(texts, texts, **BYTES)


def test_files_that_are_not_text_may_come_and_go(texts, tmp_path):
    folder = texts / "prepared"  # which is passed over itself
    prepare(texts, folder, **BYTES)
    before = content(folder)
    (texts / "cover.png").touch()
    prepare(texts, folder, **BYTES)
    assert content(folder) == before


def test_where_no_shard_is_finished_other_texts_and_settings_may_be_given(texts, tmp_path):
    whole = (texts / "00.txt").read_bytes()
    (texts / "00.txt").write_bytes(b"\xff\xff")
    with pytest.raises(UserError, match=r"^00\.txt is not utf-8 text"):
        prepare(texts, tmp_path / "data", val=0, **BYTES)
    (texts / "00.txt").write_bytes(whole)
    prepare(texts, tmp_path / "data", **BYTES)
    prepare(texts, tmp_path / "at once", **BYTES)
    assert content(tmp_path / "data") == content(tmp_path / "at once")


def test_a_bpe_that_cannot_be_made_is_refused_before_anything_is_read(texts, tmp_path, monkeypatch):
    monkeypatch.setattr(FileSource, "documents", lambda *_: pytest.fail("the text was read"))
    for size, message in (("many", "as in bpe:4096, not 'many'"), ("100", "at least 257 tokens, not 100")):
        with pytest.raises(UserError, match=message):
            prepare(texts, tmp_path / "data", tokenizer=f"bpe:{size}")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UserError, match="A BPE needs the package `tokenizers`"):
        prepare(texts, tmp_path / "data", tokenizer="bpe:300")


def test_a_tokenizer_that_is_none_is_refused(texts, tmp_path):
    pytest.importorskip("tokenizers")
    (tmp_path / "latin.json").write_bytes(b"\xe9")
    vocabulary, merges = {"<|endoftext|>": 0, "a": 1}, "#version: 0.2\na b\n"
    faults = {"words": ({**vocabulary, "b": "two"}, merges.encode()), "unknown": (vocabulary, merges.encode())}
    for name, (ids, rules) in {**faults, "encoding": (vocabulary, b"\xe9")}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "vocab.json").write_text(json.dumps(ids))
        (tmp_path / name / "merges.txt").write_bytes(rules)
    for name in ("latin.json", "words", "unknown", "encoding"):
        with pytest.raises(UserError, match=f"{name} is not a tokenizer that can be read"):
            prepare(texts, tmp_path / "data", tokenizer=str(tmp_path / name))


def test_a_broken_file_stops_it_and_given_again_without_it_it_goes_on(texts, tmp_path):
    (texts / "07.txt").write_bytes("café".encode("latin-1"))
    settings = {**BYTES, "shard_tokens": 200, "val": 0}
    with pytest.raises(UserError, match=r"^07.txt is not utf-8 text \(byte 0xe9 at 3\).* with --skip-broken; or"):
        prepare(texts, tmp_path / "data", **settings)
    finished = Manifest.read(tmp_path / "data")
    assert 0 < finished.documents_read <= 7 and not finished.complete
    with pytest.raises(UserError, match="data is not finished: give its `mapformers lm prepare` again, which goes on"):
        Corpus.open(tmp_path / "data")
    kept = {shard.file: (tmp_path / "data" / shard.file).stat().st_mtime_ns for shard in finished.shards}
    corpus = prepare(texts, tmp_path / "data", skip_broken=True, **settings)
    assert ("07.txt", "is not utf-8 text (byte 0xe9 at 3)") in corpus.manifest.left_out
    assert all((tmp_path / "data" / name).stat().st_mtime_ns == time for name, time in kept.items())
    prepare(texts, tmp_path / "at once", skip_broken=True, **settings)
    assert content(tmp_path / "data") == content(tmp_path / "at once")


@pytest.fixture
def unfinished(texts, tmp_path):
    """A folder with finished shards whose source has a file that cannot be read, and the command that began it."""
    (texts / "07.txt").write_bytes("café".encode("latin-1"))
    folder = tmp_path / "data"
    line = ["lm", "prepare", str(texts), "--out", str(folder), "--tokenizer", "bytes", "--val", "0"]
    line += ["--shard-tokens", "200"]
    assert main(line) == 2
    return folder, line


def test_an_unfinished_folder_is_closed_as_it_is_and_stays_so(unfinished, texts, capsys):
    folder, line = unfinished
    capsys.readouterr()
    assert main(line) == 2
    said = capsys.readouterr().err.strip()
    assert said.endswith(f"with --skip-broken; or give the command with --finish-here, which closes {folder} as it is.")
    begun, early = Manifest.read(folder), "the source was not read to its end."
    (folder / "train-00009.bin.part").touch()
    assert main([*line, "--finish-here"]) == 0
    printed = capsys.readouterr()
    assert f"Closed early, after {begun.documents_read} documents: {early}" in printed.out and "val" not in printed.err
    corpus = Corpus.open(folder)
    assert corpus.manifest.closed_early and corpus.manifest.rounds == begun.rounds
    assert corpus.manifest.checksum() == begun.checksum() and not list(folder.glob("*.part"))
    in_order = [path.read_text() for path in sorted(texts.iterdir()) if path.name < "07" and path.name != "05.txt"]
    assert documents(corpus, "train") == in_order[: len(corpus.texts["train"].ends)] and in_order
    before = content(folder)
    for more in ([], ["--skip-broken"]):
        assert main([*line, *more]) == 2
        said = capsys.readouterr().err
        assert "was closed early, with --finish-here, and nothing is added to it; to read the source to its end" in said
    assert main([*line, "--finish-here"]) == 2
    assert f"{folder} is complete already; give the command without --finish-here." in capsys.readouterr().err
    assert content(folder) == before
    assert main(["lm", "check", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert early in printed and "Every checksum is right." in printed


def test_a_folder_that_was_closed_early_and_is_damaged_is_prepared_anew(unfinished, capsys):
    folder, line = unfinished
    assert main([*line, "--finish-here"]) == 0
    file = folder / "train-00000.bin"
    whole = file.read_bytes()
    for damaged, fault in ((whole[:-1] + b"~", "has changed since it was written"), (whole[:-2], "is cut or changed")):
        file.write_bytes(damaged)
        capsys.readouterr()
        assert main(["lm", "check", str(folder)]) == 2
        said = capsys.readouterr().err
        assert fault in said and said.strip().endswith("; prepare the text into a new folder.")
    assert main([*line, "--finish-here"]) == 2  # which would close it with fewer shards
    assert "no finished shard for training" in capsys.readouterr().err


def test_only_a_folder_with_a_finished_shard_for_training_is_closed(texts, tmp_path):
    folder, settings = tmp_path / "data", {**BYTES, "shard_tokens": 200, "val": 0}
    (tmp_path / "held").mkdir()
    (tmp_path / "held" / "a.txt").write_text(words(100, seed=99))
    (texts / "00.txt").write_bytes(b"\xff\xff")
    for held_out in ({}, {"val_from": str(tmp_path / "held")}):
        refusal = "data has no finished shard for training; give the command without --finish-here."
        for _ in range(2):
            with pytest.raises(UserError, match=refusal):
                prepare(texts, folder, finish_here=True, **held_out, **settings)
            with pytest.raises(UserError, match=r"with --skip-broken.$"):  # there is nothing to close
                prepare(texts, folder, **held_out, **settings)
    (texts / "00.txt").write_text("repaired")
    prepare(texts, tmp_path / "whole", **settings)
    before = content(tmp_path / "whole")
    for damage in (b"", before["train-00001.bin"][:-2]):
        (tmp_path / "whole" / "train-00001.bin").write_bytes(damage or before["train-00001.bin"])
        with pytest.raises(UserError, match="whole is complete already; give the command without --finish-here"):
            prepare(texts, tmp_path / "whole", finish_here=True, **settings)
    prepare(texts, tmp_path / "whole", **settings)
    assert content(tmp_path / "whole") == before


def test_a_broken_line_of_a_source_whose_documents_are_cut_is_listed_once(tmp_path):
    file = tmp_path / "one.jsonl"
    file.write_text(json.dumps({"text": words(400)}) + "\n{broken\n")
    corpus = prepare(file, tmp_path / "data", skip_broken=True, val=0.1, **BYTES)
    assert set(corpus.texts) == {"train", "val"}  # the two parts of the one whole document
    assert len(corpus.manifest.left_out) == 1


def test_a_source_without_any_text_leaves_nothing(tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("\n")
    with pytest.raises(UserError, match="texts holds no text for training: all its documents are empty or left out"):
        prepare(tmp_path / "texts", tmp_path / "data", **BYTES)
    assert content(tmp_path / "data") == {}


def test_ids_take_two_bytes_where_they_fit(texts, tmp_path):
    words_json = json.loads(ByteTokenizer().to_json())
    words_json["added_tokens"].append({**words_json["added_tokens"][0], "id": 70_000, "content": "<rare>"})
    vocabulary = {f"word {n}": n for n in range(257, 70_000)}
    words_json["model"]["vocab"].update(vocabulary)
    (tmp_path / "large.json").write_text(json.dumps(words_json))
    assert prepare(texts, tmp_path / "small", **BYTES).manifest.id_type == "uint16"
    assert prepare(texts, tmp_path / "wide", id_type="uint32", **BYTES).manifest.id_type == "uint32"
    large = {**BYTES, "tokenizer": str(tmp_path / "large.json")}
    with pytest.raises(UserError, match="A vocabulary of 70001 tokens does not fit into uint16, which holds 65536"):
        prepare(texts, tmp_path / "no", id_type="uint16", **large)
    assert not (tmp_path / "no").exists()
    corpus = prepare(texts, tmp_path / "large", **large)
    assert (corpus.manifest.id_type, corpus.vocab_size) == ("uint32", 70_001)
    assert (tmp_path / "large" / "train-00000.bin").stat().st_size == 4 * len(corpus.texts["train"])
    assert documents(corpus, "train") == documents(Corpus.open(tmp_path / "small"), "train")


def limit_files(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_a_disk_that_is_full_leaves_what_is_finished(tmp_path):
    """A limit on the size of files, which the second shard meets: the system refuses it as a full disk would."""
    texts, data, log = tmp_path / "texts", tmp_path / "data", tmp_path / "log"
    texts.mkdir()
    for name, size in (("a", 20), ("b", 4000), ("c", 20)):
        (texts / f"{name}.txt").write_text(words(size))
    line = ["lm", "prepare", str(texts), "--out", str(data), "--tokenizer", "bytes"]
    line += ["--shard-tokens", "9", "--val", "0"]
    log.touch()
    assert ended(start(line, log, prepare=partial(limit_files, 20_000))) == 2
    said = log.read_text()
    assert "train-00001.bin: file too large; make room and give the same command again, which keeps the 1 fin" in said
    assert f"goes on; or give the command with --finish-here, which closes {data} as it is." in said
    assert not list(data.glob("*.part")) and (data / "train-00000.bin").exists()
    assert ended(start(line, log)) == 0
    prepare(texts, tmp_path / "whole", shard_tokens=9, val=0, **BYTES)
    assert content(data) == content(tmp_path / "whole")


def test_a_manifest_that_cannot_be_written_is_a_sentence_too(texts, tmp_path, monkeypatch):
    write, calls = Manifest.write, []

    def full(self, folder):
        calls.append(folder)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, folder)

    monkeypatch.setattr(Manifest, "write", full)
    with pytest.raises(UserError, match=r"manifest.json: no space left on device; make room .* the 1 finished shards"):
        prepare(texts, tmp_path / "data", shard_tokens=1, val=0, **BYTES)


def test_two_processes_do_not_prepare_one_folder(texts, tmp_path):
    with (
        hold_folder(tmp_path / "data", "busy {}"),
        pytest.raises(UserError, match=r"Another process is preparing .*data; wait for it or choose another --out"),
    ):
        prepare(texts, tmp_path / "data", **BYTES)


def test_damage_is_found_by_size_at_once_and_by_checksum_when_asked(texts, tmp_path, capsys):
    data = tmp_path / "data"
    prepare(texts, data, shard_tokens=300, val=0, **BYTES)
    whole, check = content(data), shlex.split(f"lm check {shlex.quote(str(data))}")
    assert main(check) == 0 and "Every checksum is right." in capsys.readouterr().out
    raw = bytearray(whole["train-00001.bin"])
    raw[5] ^= 1
    (data / "train-00001.bin").write_bytes(raw)
    Corpus.open(data)
    console = quiet()
    prepare(texts, data, shard_tokens=300, val=0, tokenizer="bytes", console=console)
    complete = f"{data} is complete already; `mapformers lm check {data}` compares the checksums of its files."
    assert console.file.getvalue() == f"{complete}\n"
    assert main(check) == 2
    assert "train-00001.bin has changed since it was written; delete it and prepare" in capsys.readouterr().err
    (data / "train-00001.bin").write_bytes(raw[:-2])
    assert main(check) == 2
    assert f"is cut or changed: it has {len(raw) - 2} bytes instead of {len(raw)}; prepare" in capsys.readouterr().err
    prepare(texts, data, shard_tokens=300, val=0, **BYTES)
    assert content(data) == whole
    (data / "train-00001.borders").unlink()
    with pytest.raises(UserError, match=r"train-00001.borders is missing; prepare .* again"):
        Corpus.open(data)


@pytest.mark.parametrize(
    "change",
    [
        lambda said: said["tokenizer"].update(vocab_size=5000),
        lambda said: said["tokenizer"].update(separator=7),
        lambda said: said.update(checksum="0" * 16),
        lambda said: said["totals"]["train"].update(tokens=1),
        lambda said: said["rounds"][0]["shards"][0].update(documents=1),
    ],
    ids=["vocabulary", "separator", "checksum", "totals", "documents"],
)
def test_a_manifest_that_has_changed_is_refused(texts, tmp_path, capsys, change):
    data = tmp_path / "data"
    prepare(texts, data, **BYTES)
    said = json.loads((data / "manifest.json").read_text())
    change(said)
    (data / "manifest.json").write_text(json.dumps(said))
    assert main(["lm", "check", str(data)]) == 2
    assert "manifest.json has changed since it was written; prepare the folder again." in capsys.readouterr().err


def test_a_manifest_of_before_there_was_a_hash_of_it_is_read(texts, tmp_path):
    data = tmp_path / "data"
    corpus = prepare(texts, data, **BYTES)
    said = json.loads((data / "manifest.json").read_text())
    assert said.pop("manifest_sha256")
    (data / "manifest.json").write_text(json.dumps(said))
    assert Corpus.open(data).manifest == corpus.manifest


def test_preparing_again_puts_back_a_tokenizer_that_it_has_and_refuses_one_that_it_made(texts, tmp_path):
    for name, made in (("bytes", False), ("bpe:270", True)):
        data = tmp_path / name
        prepare(texts, data, tokenizer=name, console=quiet())
        whole = content(data)
        (data / "tokenizer.json").write_text("{}")
        if made:
            with pytest.raises(UserError, match=r"tokenizer.json is missing or has changed .*; delete .* and prepare"):
                prepare(texts, data, tokenizer=name, console=quiet())
        else:
            prepare(texts, data, tokenizer=name, console=quiet())
            assert content(data) == whole


def test_a_tokenizer_that_has_changed_is_refused(texts, tmp_path, capsys):
    corpus = prepare(texts, tmp_path / "data", tokenizer="bpe:270", console=quiet())
    file = tmp_path / "data" / "tokenizer.json"
    file.write_text(file.read_text().replace("word", "wort"))
    assert [fault for fault in corpus.faults() if "tokenizer.json has changed" in fault]
    with pytest.raises(UserError, match=r"tokenizer.json is missing or has changed since it was written; delete"):
        Corpus.open(tmp_path / "data").tokenizer.encode(["word"])
    assert main(["lm", "check", str(tmp_path / "data")]) == 2
    assert "has changed since it was written; prepare the text into a new folder." in capsys.readouterr().err
    file.unlink()
    assert main(["lm", "check", str(tmp_path / "data")]) == 2
    assert "tokenizer.json is missing; prepare the text into a new folder." in capsys.readouterr().err


def test_a_shard_with_a_token_that_no_vocabulary_has_is_refused(texts, tmp_path):
    corpus = prepare(texts, tmp_path / "data", shard_tokens=300, val=0, tokenizer="bpe:270", console=quiet())
    file = tmp_path / "data" / "train-00001.bin"
    ids = np.fromfile(file, np.uint16)
    ids[5] = 270
    ids.tofile(file)
    text, first = Corpus.open(tmp_path / "data").texts["train"], corpus.manifest.shards[0].tokens
    assert text.read(0, first + 5).tolist() == corpus.texts["train"].read(0, first + 5).tolist()
    with pytest.raises(UserError, match=r"train-00001.bin is damaged: it has token 270 of a vocabulary of 270; delete"):
        text.read(first - 1, first + 6)


def test_what_is_no_prepared_folder_is_refused(texts, tmp_path):
    with pytest.raises(
        UserError, match=r"is not a prepared folder: it has no manifest.json; see `mapformers lm prepare`"
    ):
        Corpus.open(texts)
    data = tmp_path / "data"
    prepare(texts, data, **BYTES)
    whole = json.loads((data / "manifest.json").read_text())
    for changed, message in (
        ({"rounds": [{"end": 1}]}, "manifest.json is damaged; prepare the folder again"),
        ({"format": 99}, "was written by another version of mapformers"),
        ({"tokenizer": {**whole["tokenizer"], "vocab_size": 70_000}}, "70000 tokens does not fit into uint16"),
        ({"id_type": "int8"}, "Token ids are stored as uint16 or uint32, not int8"),
    ):
        (data / "manifest.json").write_text(json.dumps({**whole, **changed}))
        with pytest.raises(UserError, match=message):
            Corpus.open(data)
        with pytest.raises(UserError, match=f"; choose another --out, or delete {data} and prepare it anew"):
            prepare(texts, data, **BYTES)
    shutil.rmtree(data)
    assert prepare(texts, data, **BYTES).manifest.checksum() == whole["checksum"]


def test_a_process_killed_in_the_middle_is_gone_on_with(tmp_path):
    """kill -9 at a moment of its own choosing, in a preparation of many shards."""
    lines = [json.dumps({"text": words(60, seed=i)}) for i in range(800)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    data, log = tmp_path / "data", tmp_path / "log"
    line = ["lm", "prepare", str(tmp_path / "a.jsonl"), "--out", str(data), "--tokenizer", "bytes"]
    line += ["--shard-tokens", "20000", "--val", "0.1"]
    process = start(line, log)
    while not (data / "train-00003.bin").exists():
        assert process.is_alive(), log.read_text()
    kill(process)
    begun = Manifest.read(data)
    assert not begun.complete and begun.documents_read > 0
    assert ended(start(line, log)) == 0
    assert f"going on after {begun.documents_read:,} documents" in log.read_text()
    prepare(tmp_path / "a.jsonl", tmp_path / "whole", shard_tokens=20_000, val=0.1, **BYTES)
    assert content(data) == content(tmp_path / "whole")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("lm prepere", "There is no command of `mapformers lm` named 'prepere'; did you mean 'prepare'?"),
        ("lm prepare texts", "--out is missing"),
        ("lm prepare texts --out data --val 1.5", "val is a share of the documents from 0 to below 1, not 1.5"),
        ("lm prepare texts --out data --encoding utf-99", "There is no encoding 'utf-99'"),
        ("lm prepare texts --out data --tokenizer gpt7", "There is no tokenizer gpt7; give bytes, gpt2, bpe:VOCAB"),
        ("lm prepare texts --out data --tokenizer bpe:many", "as in bpe:4096, not 'many'"),
        ("lm prepare texts --out data --tokenizer bytes --shard-tokens 0", "shard_tokens must be at least 1, not 0"),
        ("lm prepare '' --out data --tokenizer bytes", "A SOURCE is empty; give a path"),
        ("lm prepare texts --val-from '' --out data --tokenizer bytes", "A SOURCE is empty; give a path"),
        ("lm prepare nowhere --out data --tokenizer bytes", "There is no file or folder nowhere"),
        ("lm prepare texts --out texts/00.txt --tokenizer bytes", "Cannot write to texts/00.txt: not a directory"),
        ("lm check texts", "texts is not a prepared folder"),
    ],
)
def test_what_is_typed_wrong_gives_one_sentence(texts, tmp_path, monkeypatch, capsys, line, message):
    monkeypatch.chdir(tmp_path)
    before = content(tmp_path / "texts")
    assert main(shlex.split(line)) == 2
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said and content(tmp_path / "texts") == before


def test_the_command_prints_what_it_made_and_what_it_left_out(texts, tmp_path, capsys):
    (texts / "x.txt").write_bytes(b"\xff")
    line = (
        f"lm prepare {shlex.quote(str(texts))} --out {shlex.quote(str(tmp_path / 'd'))} --tokenizer bytes --skip-broken"
    )
    assert main(shlex.split(line)) == 0
    printed = capsys.readouterr()
    assert "texts: bytes, vocabulary 257, uint16" in printed.out and "train" in printed.out
    assert "Left out: 05.txt is empty." in printed.err and "Left out: x.txt is not utf-8 text" in printed.err


def test_a_bpe_in_the_making_says_how_many_characters_are_read_and_that_the_merges_follow(texts, tmp_path, monkeypatch):
    for pause in ("FIRST_LINE", "LINE_EVERY"):
        monkeypatch.setattr(f"mapformers.progress.{pause}", 0.01)

    def slowly(pieces, vocabulary):
        found = []
        for piece in pieces:
            found.append(piece)
            time.sleep(0.02)
        time.sleep(0.1)
        return train_bpe(found, vocabulary)

    monkeypatch.setattr(preparation, "train_bpe", slowly)
    console = quiet()
    corpus = prepare(texts, tmp_path / "data", tokenizer="bpe:270", val=0, console=console)
    whole = sum(len(text) for text in documents(corpus, "train"))
    said = console.file.getvalue()
    counts = [int(n.replace(",", "")) for n in re.findall(r"Reading text for the BPE, character ([\d,]+) \(0:0", said)]
    assert counts == sorted(counts) and 0 < counts[0] < counts[-1] <= whole
    assert said.count(f"\n{whole:,} characters are read; the merges of the BPE follow.\n") == 1
    assert "\nMaking the merges of the BPE (0:0" in said


def test_on_a_terminal_what_has_to_be_read_first_is_named_on_the_line_of_the_bar():
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with PrepareProgress("preparing texts", console) as shown:
        with doing("reading text for the BPE, character") as stage:
            stage.advance(12_345)
            shown.bar.refresh()
            assert "reading text for the BPE, character 12,345" in console.file.getvalue()
        console.file.seek(0)
        console.file.truncate()
        shown.bar.refresh()
        assert "preparing texts" in console.file.getvalue() and "BPE" not in console.file.getvalue()


def test_a_bpe_in_the_making_does_not_keep_an_interruption_waiting(texts, tmp_path, monkeypatch):
    """The library heeds no signal until the BPE is made, so the main thread, which they reach, must not be in it."""
    over, makers = threading.Event(), []

    def slowly(pieces, vocabulary):
        if pieces != ():  # as when the size is checked
            makers.append(threading.current_thread())
            os.kill(os.getpid(), signal.SIGINT)
            over.wait(60)

    monkeypatch.setattr(preparation, "train_bpe", slowly)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a worker of pytest-xdist ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            prepare(texts, tmp_path / "data", tokenizer="bpe:270", console=quiet())
    finally:
        signal.signal(signal.SIGINT, before)
    assert makers[0].is_alive() and makers[0] is not threading.main_thread()
    over.set()


def test_a_broken_file_met_by_a_bpe_is_named(texts, tmp_path):
    (texts / "07.txt").write_bytes("café".encode("latin-1"))
    with pytest.raises(UserError, match=r"^07.txt is not utf-8 text"):
        prepare(texts, tmp_path / "data", tokenizer="bpe:270", val=0, console=quiet())


def test_an_interruption_says_what_the_same_command_does(texts, tmp_path, monkeypatch, capsys):
    line = ["lm", "prepare", str(texts), "--out", str(tmp_path / "data"), "--shard-tokens", "200"]

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(preparation, "rule_for", interrupted)
        assert main([*line, "--tokenizer", "bpe:270"]) == 130
    assert "Stopped; the same command starts anew, as no shard was finished yet." in capsys.readouterr().err
    write = Manifest.write
    monkeypatch.setattr(Manifest, "write", lambda self, folder: interrupted() if self.shards else write(self, folder))
    assert main([*line, "--tokenizer", "bytes"]) == 130
    assert "Stopped; the same command starts anew, as no shard was finished yet." in capsys.readouterr().err
    monkeypatch.setattr(Manifest, "write", lambda self, folder: [write(self, folder), self.shards and interrupted()])
    assert main([*line, "--tokenizer", "bytes"]) == 130
    assert "Stopped; the same command continues after the last finished shard." in capsys.readouterr().err
