"""Every kind of source gives its documents in one order, and names what it cannot read."""

import errno
import gzip
import json
import os
import sys
from types import SimpleNamespace

import pytest

from mapformers import UserError
from mapformers.lm.documents import BrokenDocument, ReadOptions
from mapformers.lm.sources import find_source, passed_over_text


def texts(source, start=0):
    return {document.name: document.read() for document in source.documents(start)}


def test_a_folder_is_read_in_the_order_of_its_names_with_compressed_files_and_code(tmp_path):
    files = {"b.txt": "bee", "a/z.md": "zed", "a/b.py": "x = 1\n", "c.txt.gz": "sea", "d.gz": "dee", "e.v1.txt": "e"}
    for name, text in {**files, ".git/config.txt": "hidden", "picture.png": "no text", "a/.hidden.txt": "no"}.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    source = find_source(str(tmp_path))
    assert texts(source) == files and list(texts(source)) == sorted(files)
    assert list(texts(source, 2)) == sorted(files)[2:]
    assert list(texts(find_source(str(tmp_path), suffixes=("py", ".MD")))) == ["a/b.py", "a/z.md"]
    assert source.name == tmp_path.name and str(tmp_path) not in source.fingerprint()
    before = source.fingerprint()
    (tmp_path / "b.txt").write_text("bed")  # as long as before
    assert find_source(str(tmp_path)).fingerprint() != before
    assert source.passed_over == {".png": 1}


def test_a_folder_says_which_files_it_passes_over_and_follows_links(tmp_path):
    folder, elsewhere = tmp_path / "texts", tmp_path / "elsewhere"
    for made in (folder, elsewhere):
        made.mkdir()
    (elsewhere / "linked.txt").write_text("linked")
    (folder / "link").symlink_to(elsewhere)
    (elsewhere / "loop").symlink_to(folder)
    (folder / "part.0001.gz").write_bytes(gzip.compress(b"numbered"))
    (folder / "c4.json.gz").write_bytes(gzip.compress(b'{"text": "rows"}\n{"text": "more rows"}\n'))
    for name in ("package.json", "archive.tar.gz", "table.csv", "other.csv", "LICENSE"):
        (folder / name).write_text('{"name": "x"}\n')
    source = find_source(str(folder))
    assert texts(source) == {
        "c4.json.gz, line 1,": "rows",
        "c4.json.gz, line 2,": "more rows",
        "link/linked.txt": "linked",
        "part.0001.gz": "numbered",
    }
    assert source.passed_over == {".csv": 2, ".json": 1, ".tar": 1, "no suffix": 1}
    sentence = passed_over_text(source)
    assert sentence.startswith("texts: 5 files are not taken for text (2 .csv, 1 "), sentence
    assert sentence.endswith("; name --suffixes to take others.")
    with pytest.raises(BrokenDocument, match="is not whole gzip"):
        texts(find_source(str(folder), suffixes=(".gz",)))


def test_json_is_taken_as_lines_of_it_or_refused(tmp_path):
    (tmp_path / "rows.json").write_text('{"text": "one"}\n{"text": "two"}\n')
    assert list(texts(find_source(str(tmp_path / "rows.json"))).values()) == ["one", "two"]
    (tmp_path / "whole.json").write_text('[\n{"text": "one"}\n]\n')
    with pytest.raises(
        UserError, match=r"whole\.json is not JSON lines; write each document as an object on one line, or rename"
    ):
        find_source(str(tmp_path / "whole.json"))


def test_what_can_be_read_only_once_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match=r"pipe is no regular file; write its text into one, as it is read more than"):
        find_source(str(tmp_path / "pipe"))


def test_lines_of_json_may_have_an_encoding_of_several_bytes(tmp_path):
    (tmp_path / "wide.jsonl").write_text('{"text": "ein Ċ"}\n{"text": "zwei"}\n', "utf-16")
    source = find_source(str(tmp_path), ReadOptions(encoding="utf-16"))
    assert list(texts(source).values()) == ["ein Ċ", "zwei"]
    (tmp_path / "wide.jsonl").write_bytes(b"\xff\xfe{\x00\x00\xd8")
    with pytest.raises(BrokenDocument, match="is not text of its encoding"):
        texts(source)


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_every_line_of_json_is_a_document(tmp_path, suffix):
    lines = "".join(json.dumps({"body": f"text {i}", "id": i}) + "\n\n" for i in range(3)).encode()
    (tmp_path / f"a{suffix}").write_bytes(gzip.compress(lines) if suffix.endswith("gz") else lines)
    source = find_source(str(tmp_path / f"a{suffix}"), ReadOptions(field="body"))
    assert list(texts(source).values()) == ["text 0", "text 1", "text 2"]
    assert list(texts(source, 1).values()) == ["text 1", "text 2"]
    with pytest.raises(BrokenDocument, match=r"a.jsonl.*, line 1, has no text under 'text', only body, id; name ano"):
        texts(find_source(str(tmp_path / f"a{suffix}")))


def test_text_is_kept_as_it_is_but_for_a_byte_order_mark(tmp_path):
    (tmp_path / "a.txt").write_bytes("\ufeffone\r\ntwo\n\n é".encode())
    (tmp_path / "b.py").write_bytes("# -*- coding: latin-1 -*-\nx = 'é'\n".encode("latin-1"))
    assert texts(find_source(str(tmp_path)))["a.txt"] == "one\r\ntwo\n\n é"
    assert "é" in texts(find_source(str(tmp_path)))["b.py"]
    (tmp_path / "a.txt").write_bytes("é".encode("cp1252"))
    assert texts(find_source(str(tmp_path), ReadOptions(encoding="cp1252")))["a.txt"] == "é"


BROKEN = {
    "latin.txt": ("café".encode("latin-1"), "latin.txt is not utf-8 text (byte 0xe9 at 3); name its --encoding, or"),
    "wide.txt": ("text".encode("utf-16-le"), "wide.txt is not text: it has characters of value zero; name its --enc"),
    "cut.txt.gz": (gzip.compress(b"x" * 9999)[:-9], "cut.txt.gz is cut off: its compressed text ends too early"),
    "no.gz": (b"plain", "no.gz is not whole gzip"),
    "spoilt.gz": (b"\x1f\x8b\x08\x00" + b"\xff" * 30, "spoilt.gz is not whole gzip"),
    "a.jsonl": (b'{"text": "x"}\n{"text": ', "a.jsonl, line 2, is not JSON (Expecting value at"),
    "number.jsonl": (b'{"text": 5}\n', "number.jsonl, line 1, has no text under 'text', but 5; repair it, or"),
    "list.jsonl": (b"[1]\n", "list.jsonl, line 1, has no text under 'text'; name another --field, or"),
    "deep.jsonl": (b"[" * 99_999 + b"\n", "deep.jsonl, line 1, is JSON that Python does not read; repair it"),
    "digits.jsonl": (b'{"text": ' + b"1" * 9_999 + b"}\n", "digits.jsonl, line 1, is JSON that Python does not read"),
    "half.jsonl": (b'{"text": "\\ud800"}\n', "half.jsonl, line 1, has half of a surrogate pair, which is no character"),
    "cut.jsonl.gz": (gzip.compress(b'{"text": "x"}\n' * 9999)[:-9], "cut.jsonl.gz is cut off"),
    "bad.py": (b"# coding: nonsense\n", "bad.py is not Python source (unknown encoding: nonsense)"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_named_in_one_sentence(tmp_path, name):
    content, message = BROKEN[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BrokenDocument) as refused:
        texts(find_source(str(tmp_path)))
    assert str(refused.value).startswith(message), str(refused.value)
    assert str(refused.value).endswith(", or leave out what is broken with --skip-broken.")


def test_the_lines_before_a_cut_are_documents_all_the_same(tmp_path):
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(b'{"text": "x"}\n' * 9999)[:-9])
    documents = list(find_source(str(tmp_path)).documents())
    assert len(documents) > 2 and all(document.read() == "x" for document in documents[:-1])
    with pytest.raises(BrokenDocument):
        documents[-1].read()


def test_what_a_folder_cannot_show_is_not_left_out_in_silence(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nothing")
    with pytest.raises(BrokenDocument, match=r"gone\.txt cannot be read"):
        texts(find_source(str(tmp_path)))
    (tmp_path / "locked").mkdir()
    scandir = os.scandir

    def only_open_ones(path):  # whoever runs the tests as root may read everything
        if str(path).endswith("locked"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", only_open_ones)
    with pytest.raises(UserError, match=r"Cannot read the folder .*locked: permission denied; make it readable"):
        find_source(str(tmp_path))


def test_what_is_no_source_is_refused(tmp_path):
    (tmp_path / "empty.txt").touch()
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").touch()
    for text, message in {
        "nothing": "There is no file or folder nothing; give a path, python: or hf:NAME.",
        str(tmp_path / "empty.txt"): "empty.txt is empty; give one with text in it.",
        str(tmp_path / "pictures"): "pictures holds no text: none of its 1 files is .txt, .md, .jsonl, .gz or source",
        "hf:": "Name a dataset of the hub",
        "python:no_such_package": "There is no installed package 'no_such_package'",
    }.items():
        with pytest.raises(UserError) as refused:
            find_source(text)
        assert message in str(refused.value)


def test_python_is_its_standard_library_without_tests_or_one_package(tmp_path, monkeypatch):
    library = find_source("python:")
    names = [name for name, _ in library.files]
    assert {"this.py", "json/decoder.py", "asyncio/tasks.py"} <= set(names) and names == sorted(names)
    assert not any("test" in name.split("/")[:-1] or "site-packages" in name for name in names)
    assert "import" in next(library.documents(names.index("json/decoder.py"))).read()
    package = find_source("python:rich")
    assert {"rich/table.py", "rich/console.py"} <= texts(package).keys()
    (tmp_path / "mine.py").write_text("x = 1\n")
    monkeypatch.setattr("site.getsitepackages", lambda: [str(tmp_path), "/nowhere"])
    assert [name for name, _ in find_source("python:all").files] == [*names, "mine.py"]


class Stream(list):
    """A streamed dataset, as far as it is used."""

    def skip(self, n):
        return Stream(self[n:])


def test_a_dataset_of_the_hub_is_streamed_and_scripts_are_read_as_the_hub_converted_them(monkeypatch):
    asked = []

    def load_dataset(name, config, split, streaming, revision="main"):
        asked.append((name, config, split, streaming, revision))
        if revision == "main" and name == "old":
            raise RuntimeError("Dataset scripts are no longer supported, but found old.py")
        if name == "gone":
            raise ConnectionError("Couldn't reach 'gone' on the Hub (offline)\nand more")
        return Stream({"text": f"row {i}"} for i in range(4))

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    assert texts(find_source("hf:new"), 2) == {f"hf:new:train, row {i},": f"row {i}" for i in (2, 3)}
    assert len(texts(find_source("hf:old@config:test"))) == 4
    assert asked == [
        ("new", None, "train", True, "main"),
        ("old", "config", "test", True, "main"),
        ("old", "config", "test", True, "refs/convert/parquet"),
    ]
    with pytest.raises(
        UserError, match=r"hf:gone:train cannot be read: Couldn't reach 'gone' on the Hub .* the network"
    ):
        texts(find_source("hf:gone"))
    with pytest.raises(BrokenDocument, match="hf:new:train, row 0, has no text under 'body', only text"):
        texts(find_source("hf:new", ReadOptions(field="body")))
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"hf:new:train needs the package `datasets`: pip install 'mapformers\[hf\]'"):
        texts(find_source("hf:new"))
