"""A preparation killed before any of its files is in place, and given again, ends with the same bytes."""

import itertools
from functools import partial

from helpers import words
from mapformers.lm import prepare
from runs import die_before, ended, quiet, start

CHANGES = ("os.rename",)  # all else is done to files that no one reads


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def test_a_kill_before_any_file_is_put_in_place_leaves_no_trace(tmp_path):
    """All there are: the tokenizer's, the first manifest, each shard's files and the manifest that lists them."""
    (tmp_path / "texts").mkdir()
    for number in range(3):
        (tmp_path / "texts" / f"{number}.txt").write_text(words(30, seed=number))
    settings = {"tokenizer": "bytes", "val": 0.3, "shard_tokens": 250}
    prepare(tmp_path / "texts", tmp_path / "whole", **settings, console=quiet())
    whole, log, note = content(tmp_path / "whole"), tmp_path / "log", tmp_path / "note"
    flags = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    places = []
    for operation in itertools.count(1):
        folder = tmp_path / str(operation)
        line = ["lm", "prepare", str(tmp_path / "texts"), "--out", str(folder), *flags]
        if ended(start(line, log, prepare=partial(die_before, operation, folder, note, CHANGES))) == 0:
            break
        places.append(note.read_text())
        prepare(tmp_path / "texts", folder, **settings, console=quiet())
        assert content(folder) == whole, places[-1]
    assert len(places) >= 9 and any("tokenizer.json" in place for place in places)
