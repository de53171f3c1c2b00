"""The generated part of docs/language.md: what a context longer than that of training costs (results/lm.json)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mapformers.recipes.lm import BOOKS, CONTEXTS
from mapformers.recipes.record import read_record, results_file, runs_of
from mapformers.recipes.views.named_figures import summary
from mapformers.recipes.views.view import spread
from mapformers.reports.page import replace_block
from mapformers.reports.table import Table

# A row of `lm` -> how it is told from the others.
ON_TEXT = {
    "RoPE": "RoPE",
    "RoPE, log n": "RoPE, sharper",
    "RoPE, decay": "RoPE, fading",
    "NoPE": "NoPE",
    "CoPE": "CoPE",
    "PathAtt": "PaTH (PathAtt in the paper)",
    "MapWM": "MapWM as in the paper",
    "MapWM, tuned": "MapWM that starts as RoPE",
    "log n": "MapWM that starts as RoPE, sharper",
    "rank 1, decay": "MapWM that starts as RoPE, rank 1, fading",
    "rank 1, decay, log n": "MapWM that starts as RoPE, rank 1, fading, sharper",
}


def language_documents(root: Path) -> dict[Path, str]:
    """docs/language.md with the table as it should be now."""
    record, page = results_file(root / "results", "lm", "cpu"), root / "docs" / "language.md"
    if not (record.exists() and page.exists()):
        return {}
    text = long_texts(read_record(record)).render("markdown").strip()
    return {page: replace_block(page.read_text(encoding="utf-8"), "long-texts", text)}


def long_texts(lm: Mapping[str, Any]) -> Table:
    """Perplexity of long books, with a context as in training and with one that is sixteen times as long."""
    rows = []
    for row, name in ON_TEXT.items():
        runs = runs_of(lm, row, BOOKS)
        found = [summary(CONTEXTS, runs, str(context)) for context in (CONTEXTS.trained, CONTEXTS.contexts[-1])]
        if all(found):
            rows.append([name, str(len(runs)), *(spread(each, 1) for each in found if each)])
    headings = ["layer", "seeds", f"{CONTEXTS.trained} tokens, as in training", f"{CONTEXTS.contexts[-1]} tokens"]
    return Table("perplexity of long books by context", headings, rows)
