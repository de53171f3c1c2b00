"""The generated part of docs/transformers.md: what examples/upcycle_llama.py found (docs/examples/upcycle.json)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mapformers.files import read_json
from mapformers.reports.page import replace_block
from mapformers.reports.table import Table

LINES = {"perplexity": "perplexity per byte of text held back", "accuracy": "accuracy on revisits, navigation in 2D"}
MODELS = ("plain", "with maps")


def upcycled_documents(root: Path) -> dict[Path, str]:
    """docs/transformers.md with the table as it should be now."""
    record, page = root / "docs" / "examples" / "upcycle.json", root / "docs" / "transformers.md"
    if not (record.exists() and page.exists()):
        return {}
    text = upcycled_table(read_json(record)).render("markdown").strip()
    return {page: replace_block(page.read_text(encoding="utf-8"), "upcycle", text)}


def upcycled_table(record: Mapping[str, Any]) -> Table:
    found, settings = record["found"], record["settings"]
    text_steps = settings["text_steps"] + settings["text_steps"] // 2  # before and after the maps are added
    steps = {"perplexity": text_steps, "accuracy": settings["world_steps"]}
    rows = [
        [f"{line}, after {steps[figure]} steps", *(f"{found[f'{figure}, {model}']:.3f}" for model in MODELS)]
        for figure, line in LINES.items()
    ]
    title = f"a Llama of {settings['layers']} layers of {settings['width']}, maps of rank {settings['rank']}"
    return Table(title, [title, *MODELS], rows)
