"""The generated parts of README.md: the table of the demo, and the table that compares the kinds of attention."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mapformers.benchmarks.report import record_file
from mapformers.files import read_json
from mapformers.recipes import RECIPES, TableView
from mapformers.recipes.record import read_record, results_file, summaries
from mapformers.recipes.views.table import best_without_map
from mapformers.recipes.views.view import figure_text, spread
from mapformers.reports.page import WRITTEN_BY, join_sections, origins, replace_block
from mapformers.reports.table import Table

# A row of table 2 -> its layer in `bench throughput`, its name in mf.layers, and where it takes a token to be.
COMPARED = {
    "RoPE (1L)": ("rope", "RoPE", "its index"),
    "TAPE (1L)": ("tape", "TAPE", "its index, updated by each layer"),
    "CoPE (1L)": ("cope", "CoPE", "how many gated tokens lie in between"),
    "PathAtt (1L)": ("path", "PaTH", "a product of reflections, one per token"),
    "MapWM-r2": ("mapwm", "MapWM", "the place to which the tokens have led"),
    "MapEM-os": ("mapem", "MapEM", "the same, multiplied with what is there"),
}
SPLITS = {"iid": "as in training", "ood-sparse": "larger, emptier, 2 × as long", "ood-sparse-512": "… and 4 × as long"}


def readme_documents(root: Path) -> dict[Path, str]:
    """README.md with its tables as they should be now, and the page on where the demo's table comes from."""
    demo = root / "results" / "demo.json"
    table2, speed = results_file(root / "results", "table2", "cpu"), record_file(root / "results", "throughput")
    found: dict[Path, str] = {}
    blocks: dict[str, Table] = {}
    if demo.exists():
        record = read_record(demo)
        blocks["demo"] = TableView().table(RECIPES["table2"], record, "2D", marks=False)
        found[root / "docs" / "results" / "demo.md"] = demo_page(record)
    if table2.exists() and speed.exists():
        blocks["compared"] = comparison(read_record(table2), read_json(speed))
    if blocks:
        text = (root / "README.md").read_text(encoding="utf-8")
        for name, table in blocks.items():
            text = replace_block(text, name, table.render("markdown").strip())
        found[root / "README.md"] = text
    return found


def demo_page(record: Mapping[str, Any]) -> str:
    """docs/results/demo.md: the demo's table with its marks, and its origin."""
    return join_sections(
        "# demo: what `mapformers demo` prints",
        f"{WRITTEN_BY} The README shows the same table.",
        TableView().table(RECIPES["table2"], record, "2D").render("markdown"),
        "## Origin",
        origins(record["runs"]),
    )


def comparison(table2: Mapping[str, Any], throughput: Mapping[str, Any]) -> Table:
    """What each kind of attention recalls in 2D worlds, and how fast it trains at the same size."""
    recipe = RECIPES["table2"]
    recalled = summaries(recipe, table2)
    speeds = {row["row"]: row["ratio_to_rope"] for row in throughput["sizes"]["navigation"]["rows"]}

    def figures(row: str) -> list[str]:
        return [spread(recalled[row, "2D", split]) if (row, "2D", split) in recalled else "–" for split in SPLITS]

    rows = [
        [name, where, *figures(row), f"{speeds[layer]:.2f}" if layer in speeds else "–"]
        for row, (layer, name, where) in COMPARED.items()
    ]
    best = best_without_map(recipe, table2, "2D")
    rule = ["best rule without a map", "–", *(figure_text(best.get(split)) for split in SPLITS), "–"]
    headings = ["layer", "where a token is", *SPLITS.values(), "speed"]
    return Table("recall in 2D worlds, and training speed", headings, [*rows, rule], words=["where a token is"])
