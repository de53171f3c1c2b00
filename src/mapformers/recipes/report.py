"""Turn results/<recipe>.json into tables: on the terminal, and in the documents, the paper's figure beside ours."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from mapformers.benchmarks.report import TABLES
from mapformers.errors import require
from mapformers.evaluation.aggregate import Summary, summarise
from mapformers.plots.learning_curves import draw_curves
from mapformers.recipes.recipe import RECIPES, Recipe
from mapformers.training.files import read_json, write_atomically

GOAL = 0.99


def summaries(recipe: Recipe, record: Mapping[str, Any]) -> dict[tuple[str, str, str], Summary]:
    """(row, world, split) -> figures over the seeds that were run."""
    values: dict[tuple[str, str, str], list[float]] = {}
    for run in record["runs"]:
        for split, scores in run["splits"].items():
            values.setdefault((run["row"], run["world"], split), []).append(scores[recipe.metric]["value"])
    return {key: summarise(figures) for key, figures in values.items()}


def terminal_table(recipe: Recipe, record: Mapping[str, Any], world: str) -> Table:
    """One world of a recipe: ours, the paper's in brackets."""
    found = summaries(recipe, record)
    table = Table(title=f"{recipe.name}, {world}: {recipe.metric}, ours (paper)", title_justify="left")
    table.add_column("model")
    for heading in recipe.splits.values():
        table.add_column(heading, justify="right")
    for label in _rows_run(recipe, record, world):
        table.add_row(label, *(cell(found, recipe, label, world, split) for split in recipe.splits))
    table.add_section()
    for label, cells in _player_rows(recipe, record, world):
        table.add_row(label, *cells)
    return table


def markdown_table(recipe: Recipe, record: Mapping[str, Any], world: str) -> str:
    """The same as Markdown, with the number of seeds."""
    found = summaries(recipe, record)
    headings = list(recipe.splits.values())
    lines = [f"| {world} | seeds | {' | '.join(headings)} |", f"|---|--:|{'--:|' * len(headings)}"]
    for label in _rows_run(recipe, record, world):
        seeds = found[label, world, next(iter(recipe.splits))].n
        cells = (cell(found, recipe, label, world, split) for split in recipe.splits)
        lines.append(f"| {label} | {seeds} | {' | '.join(cells)} |")
    lines += [f"| *{label}* | | {' | '.join(cells)} |" for label, cells in _player_rows(recipe, record, world)]
    return "\n".join(lines)


def cell(found: Mapping[tuple[str, str, str], Summary], recipe: Recipe, row: str, world: str, split: str) -> str:
    """``0.998 ± 0.001 (1.00)``: ours with its spread over seeds, then the paper's where it has one."""
    ours = found.get((row, world, split))
    if ours is None:
        return "–"
    figure = f"{ours.mean:.3f}" + (f" ± {ours.std:.3f}" if ours.n > 1 else "")
    printed = recipe.paper.get((row, world, split))
    return f"{figure} ({printed[0]:.2f})" if printed else figure


def _player_rows(recipe: Recipe, record: Mapping[str, Any], world: str) -> list[tuple[str, list[str]]]:
    """What answering by rule gives, where it was measured: the best there is to know, and what needs no map."""
    measured = record.get("players", {}).get(world, {})
    return [
        (f"player: {name}", [f"{scores[split]:.3f}" for split in recipe.splits]) for name, scores in measured.items()
    ]


def _rows_run(recipe: Recipe, record: Mapping[str, Any], world: str) -> list[str]:
    present = {run["row"] for run in record["runs"] if run["world"] == world}
    return [row.label for row in recipe.rows if row.label in present]


def results_page(folder: Path) -> str:
    """docs/results.md from every results/<recipe>.json: tables, cost and provenance."""
    parts = [
        "# Results",
        "",
        "Written by `mapformers report --write` from the files in `results/`; the figures in brackets are the paper's.",
        "Mean ± standard deviation over seeds. All choices were made on the iid split; OOD splits are only reported.",
    ]
    for name in RECIPES:
        file = folder / f"{name}.json"
        if file.exists():
            parts += ["", *_recipe_section(RECIPES[name], read_json(file))]
    parts += _benchmark_sections(folder)
    return "\n".join(parts) + "\n"


def _recipe_section(recipe: Recipe, record: Mapping[str, Any]) -> list[str]:
    runs = record["runs"]
    minutes = summarise([run["wall_seconds"] / 60 for run in runs])
    rates: dict[float, list[str]] = {}
    for run in runs:
        labels = rates.setdefault(run["config"]["train"]["lr"], [])
        labels += [run["row"]] if run["row"] not in labels else []
    by_rate = ", ".join(f"{rate:g} ({', '.join(labels)})" for rate, labels in rates.items())
    versions = ", ".join(f"{name} {version}" for name, version in runs[0]["versions"].items())
    lines = [f"## {recipe.name}: {recipe.summary}", ""]
    for world in recipe.worlds:
        if _rows_run(recipe, record, world):
            lines += [markdown_table(recipe, record, world), ""]
    lines += [
        f"`{recipe.metric}` at `{record['scale']}` scale: {runs[0]['sequences']:,} training sequences, batch "
        f"{runs[0]['config']['train']['batch_size']}, peak learning rate "
        f"{by_rate}; "
        f"{minutes.mean:.1f} minutes a run ({minutes.low:.1f} to {minutes.high:.1f}), "
        f"threads: {runs[0]['hardware']['threads']}.",
        "",
        *(f"Command: `{command}`." for command in sorted({run["command"] for run in runs})),
        "",
        f"Versions: {versions}.",
        "",
        "Seed by seed:",
        "",
    ]
    headings = [*recipe.splits.values(), "best on the way", f"sequences to {GOAL:g}"]
    lines += [f"| model | world | seed | {' | '.join(headings)} |", f"|---|---|--:|{'--:|' * len(headings)}"]
    for run in runs:
        cells = [f"{run['splits'][split][recipe.metric]['value']:.4f}" for split in recipe.splits]
        cells += _on_the_way(run["curve"], recipe.metric)
        lines.append(f"| {run['row']} | {run['world']} | {run['seed']} | {' | '.join(cells)} |")
    if recipe.curves:
        lines += ["", f"![How each run of {recipe.name} learned](images/{_curves_file(recipe)})"]
    return lines


def _on_the_way(curve: Sequence[Mapping[str, Any]], metric: str) -> tuple[str, str]:
    """The best that was measured while training, and after how many sequences it first was at the goal."""
    reached = next((f"{point['sequences']:,}" for point in curve if point[metric] >= GOAL), "–")
    return f"{max(point[metric] for point in curve):.4f}", reached


def _curves_file(recipe: Recipe) -> str:
    return f"{recipe.name}-curves.png"


def draw_recipe_curves(recipe: Recipe, record: Mapping[str, Any], path: Path) -> None:
    """The curves of a recipe's runs, rows in the order of the table."""
    panels: dict[str, dict[int, list[tuple[float, float]]]] = {row.label: {} for row in recipe.rows}
    for run in record["runs"]:
        panels[run["row"]][run["seed"]] = [(point["sequences"], point[recipe.metric]) for point in run["curve"]]
    draw_curves({row: curves for row, curves in panels.items() if curves}, path, GOAL, recipe.metric)


def _benchmark_sections(folder: Path) -> list[str]:
    """The benchmarks kept in bench-<name>.json."""
    parts: list[str] = []
    for name, tables in TABLES.items():
        file = folder / f"bench-{name}.json"
        if file.exists():
            record = read_json(file)
            parts += ["", f"## bench {name}", ""]
            for table in tables(record):
                parts += [table.for_document(), ""]
            versions = ", ".join(f"{package} {version}" for package, version in record["versions"].items())
            parts += [f"Command: `{record['command']}`. Versions: {versions}."]
    return parts


def replace_block(text: str, name: str, content: str) -> str:
    """Put ``content`` between ``<!-- name:begin -->`` and ``<!-- name:end -->``."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    require(begin in text and end in text, f"The document has no block {name!r} to fill.")
    return re.sub(f"{begin}.*?{end}", lambda _: f"{begin}\n{content}\n{end}", text, flags=re.DOTALL)


def write_documents(root: Path) -> list[Path]:
    """Refresh every generated part of the documents; returns what changed."""
    changed = []
    for path, content in documents(root).items():
        if not path.exists() or path.read_text() != content:
            write_atomically(path, content.encode())
            changed.append(path)
    for name in RECIPES:
        file = root / "results" / f"{name}.json"
        if RECIPES[name].curves and file.exists():
            picture = root / "docs" / "images" / _curves_file(RECIPES[name])
            draw_recipe_curves(RECIPES[name], read_json(file), picture)
            changed.append(picture)
    return changed


def documents(root: Path) -> dict[Path, str]:
    """Each generated document and what it should contain now."""
    readme = root / "README.md"
    demo = read_json(root / "results" / "demo.json")
    return {
        root / "docs" / "results.md": results_page(root / "results"),
        readme: replace_block(readme.read_text(), "demo", markdown_table(RECIPES["table2"], demo, "2D")),
    }
