"""Real books, where they are at hand: MAPFORMERS_BOOKS, or `shared/data/books` beside this project."""

import os
from pathlib import Path

import pytest

from mapformers.lm import prepare
from runs import quiet

BOOKS = Path(os.environ.get("MAPFORMERS_BOOKS", Path(__file__).parents[3] / "shared" / "data" / "books"))


@pytest.mark.skipif(not BOOKS.is_dir(), reason=f"there are no books in {BOOKS}; name their folder in MAPFORMERS_BOOKS")
def test_the_books_for_validation_have_the_size_that_their_list_says(tmp_path):
    rows = [line.split(",") for line in (BOOKS / "MANIFEST.csv").read_text().splitlines() if line.startswith("val,")]
    corpus = prepare(BOOKS / "val", tmp_path / "data", tokenizer="bytes", val=0, console=quiet())
    size = sum(path.stat().st_size for path in (tmp_path / "data").glob("train-*.bin"))
    totals = corpus.manifest.totals()["train"]
    assert totals["documents"] == len(rows) == 4
    assert totals["text_bytes"] == 1_087_793 and size == 2 * (1_087_793 + 4)
    assert "Rasselas" in corpus.tokenizer.decode(corpus.texts["train"].document(0)[:2000].tolist())
