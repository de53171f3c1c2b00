"""`mapformers report`: print a table of the paper beside ours, in any format; write the pages of results."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from mapformers.benchmarks.report import REPORTS, benchmark_page, benchmark_section, page_name, record_file
from mapformers.cli.long_texts import language_documents
from mapformers.cli.output import print_json
from mapformers.cli.parse import parse
from mapformers.cli.readme import readme_documents
from mapformers.cli.upcycled import upcycled_documents
from mapformers.errors import require, unknown
from mapformers.files import clear_file_errors, read_json, write_atomically, write_json
from mapformers.recipes import RECIPES, Recipe
from mapformers.recipes.figures import plain_figures
from mapformers.recipes.pages import page_views, recipe_line, recipe_page, recipe_section, recipe_tables
from mapformers.recipes.record import read_record, results_file, with_added_rows
from mapformers.reports.analysis_tables import analysis_tables
from mapformers.reports.formats import csv_row
from mapformers.reports.page import WRITTEN_BY, join_sections, replace_block, titled
from mapformers.reports.table import Format, Table
from mapformers.runs.config import Scale

DESCRIPTION = """Print a table of the paper beside what was measured.

  mapformers report table2
  mapformers report table2 --format latex      md, latex (booktabs), csv, html
  mapformers report table2 --json              every figure as a number
  mapformers report speed         the paper's table of speed beside `mapformers bench throughput`
  mapformers report --write       refresh README.md, docs/results.md and docs/results/ of the checkout that you are in
"""
INTRODUCTION = """Figures in brackets are the paper's; ours are means ± standard deviations over seeds.
All choices are made on the iid split, on text on documents held back from the training text; OOD splits are only
reported. Each table has a page of its own with what rule-based players score, every seed, curves, settings and
commands.

Labels: (1L), (4L) number of layers; -r1, -r2 `rank`; -os, -s, -o what MapEM attends to (`attend`); NC-n blocks of
SO(n); PathAtt the layer `path`; "log n" `length_scaling="log"`; "earlier keys" `self_key=False`; "mean free" without
zero-mean movement in the first steps; "as written" mean free, with independent origins and W_q and W_k of full size;
"fading" `decay=True`; L and D number of brackets and greatest depth of Dyck words (32 and 4 in training). Tables on the
torus have ω_max 2π, as navigation had before version 0.2; "default" is the default of that time."""

IN_THE_PAPER = ("table1", "table2", "dyck", "lm", "ssm", "recall", "dims", "family")  # sec. 4.1 to 4.4, A.6, C.3, D


@dataclass(frozen=True)
class Arguments:
    recipe: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[RECIPE]")] = None
    """A name from `mapformers list recipes`, or a benchmark (all recipes that have results unless given)."""
    scale: Scale = "cpu"
    """Which results."""
    format: Format = "terminal"
    """How tables are written; LaTeX needs the package booktabs."""
    results: Path = Path("results")
    """Where RECIPE.json is kept."""
    write: bool = False
    """Also refresh README.md, docs/results.md and docs/results/ of the checkout that you are in."""
    demo: Path | None = None
    """With --write: a demo folder whose figures and picture become those of the README."""
    json: bool = False
    """Print one JSON document with every figure instead of tables."""


def main(args: Sequence[str]) -> int:
    asked = parse(Arguments, args, "mapformers report", DESCRIPTION)
    require(not asked.json or asked.format == "terminal", "--json and --format exclude each other; give one of them.")
    require(asked.demo is None or asked.write, "--demo is for --write; give both, or neither.")
    if asked.json:
        print_json(plain_report(asked))
    else:
        print_tables(tables_of(asked), asked.format)
    if asked.write:
        if asked.demo is not None:
            adopt_demo(asked.demo, Path())
        for path in write_documents(Path()):
            print(f"{'wrote' if path.exists() else 'removed'} {path}", file=sys.stderr if asked.json else sys.stdout)
    return 0


def print_tables(tables: Sequence[Table], form: Format) -> None:
    """On the terminal as they are drawn; in CSV, which has no place for it, the title is a row before each table."""
    for table in tables:
        if form == "terminal":
            Console().print(table)
        else:
            title = csv_row(table.title) if form == "csv" and len(tables) > 1 else ""
            print(title + table.render(form))


def tables_of(asked: Arguments) -> list[Table]:
    """The tables of a recipe or of a benchmark, or those of all recipes that have results."""
    if is_benchmark(asked.recipe):
        record = benchmark_record(str(asked.recipe), asked.results)
        return REPORTS[str(asked.recipe)].tables(record)
    return [table for recipe, record in measured_recipes(asked) for table in recipe_tables(recipe, record)]


def plain_report(asked: Arguments) -> dict[str, Any]:
    """The same as plain data: figures by recipe, or the record of a benchmark."""
    if is_benchmark(asked.recipe):
        return {"benchmark": asked.recipe, "record": benchmark_record(str(asked.recipe), asked.results)}
    found = {recipe.name: plain_figures(recipe, record) for recipe, record in measured_recipes(asked)}
    return {"scale": asked.scale, "recipes": found}


def is_benchmark(name: str | None) -> bool:
    return name is not None and name not in RECIPES


def measured_recipes(asked: Arguments) -> list[tuple[Recipe, dict[str, Any]]]:
    """The recipe that is asked for, or all that have results, each with its record."""
    names = [asked.recipe] if asked.recipe else list(RECIPES)
    files = {name: results_file(asked.results, name, asked.scale) for name in names}
    measured = {name: read_record(file) for name, file in files.items() if file.exists()}
    require(
        bool(measured),
        f"{asked.results} has no results of {' or '.join(names)} at {asked.scale} scale; "
        f"run `mapformers reproduce {names[0]}` first.",
    )
    return [(with_added_rows(RECIPES[name], record["runs"]), record) for name, record in measured.items()]


def benchmark_record(name: str, results: Path) -> Any:
    """What was measured of a benchmark, from its record."""
    if name not in REPORTS:
        raise unknown("recipe", name, [*RECIPES, *REPORTS], "if it is your own, import its file first (--import FILE)")
    file = record_file(results, name)
    command = f"mapformers bench {REPORTS[name].of or name} --write {results}"
    require(file.exists(), f"{results} has no results of {name}; run `{command}` first.")
    return read_json(file)


def adopt_demo(demo: Path, root: Path) -> None:
    """Make a demo's figures and picture those that the documents show."""
    write_json(root / "results" / "demo.json", read_record(demo / "demo.json"))
    picture = root / "docs" / "images" / "demo.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(picture, (demo / "map.png").read_bytes())


def write_documents(root: Path) -> list[Path]:
    """Refresh every generated document and plot, and remove pages whose results are gone; returns what changed."""
    changed = []
    wanted = documents(root)
    with clear_file_errors("write to", root / "docs"):
        for path in sorted((root / "docs" / "results").glob("*.md")):
            if path not in wanted and WRITTEN_BY in path.read_text(encoding="utf-8"):
                path.unlink()
                changed.append(path)
        for path, content in wanted.items():
            if not path.exists() or path.read_text(encoding="utf-8") != content:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, content.encode())
                changed.append(path)
        for name, record in recipe_records(root).items():
            recipe = with_added_rows(RECIPES[name], record["runs"])
            for view in page_views(recipe):
                for file, draw in view.plots(recipe, record).items():
                    picture = root / "docs" / "images" / file
                    before = picture.read_bytes() if picture.exists() else b""
                    draw(picture)
                    changed += [picture] if picture.read_bytes() != before else []
    return changed


def documents(root: Path) -> dict[Path, str]:
    """Each generated document and what it should contain now."""
    recipes = recipe_records(root)
    files = {name: record_file(root / "results", name) for name in REPORTS}
    benchmarks = {name: read_json(file) for name, file in files.items() if file.exists()}
    pages = root / "docs" / "results"
    found = {root / "docs" / "results.md": results_page(recipes, benchmarks)}
    found |= {
        pages / f"{name}.md": recipe_page(with_added_rows(RECIPES[name], record["runs"]), record)
        for name, record in recipes.items()
    }
    found |= {pages / f"{page_name(name)}.md": benchmark_page(name, record) for name, record in benchmarks.items()}
    found |= readme_documents(root) | analysis_documents(root) | upcycled_documents(root)
    return found | language_documents(root)


def recipe_records(root: Path) -> dict[str, dict[str, Any]]:
    """The record of every recipe that has one at cpu scale."""
    files = {name: results_file(root / "results", name, "cpu") for name in RECIPES}
    return {name: read_record(file) for name, file in files.items() if file.exists()}


def not_run(names: Sequence[str]) -> str:
    """Which recipes have no results, and the commands that give them some."""
    return (
        f"Not run yet: {', '.join(names)}. `mapformers reproduce {names[0]} --jobs 2` runs the first on two cores and "
        "continues after a stop; with another name it runs another, or the rows that a table above still lacks, and "
        "with `--seeds 3` three seeds. `mapformers report --write` then puts the table here."
    )


def results_page(recipes: Mapping[str, Mapping[str, Any]], benchmarks: Mapping[str, Mapping[str, Any]]) -> str:
    """docs/results.md: the tables of the paper in its order, then ours, what only chooses settings, and benchmarks."""
    whole = {name: with_added_rows(RECIPES[name], record["runs"]) for name, record in recipes.items()}
    choosing = [name for name in whole if whole[name].chooses]
    tables = sorted(whole.keys() - set(choosing), key=lambda name: (_place(name), name))
    missing = [name for name in RECIPES if name not in recipes]
    return join_sections(
        "# Results",
        f"{WRITTEN_BY}\n{INTRODUCTION}",
        *(recipe_section(whole[name], recipes[name]) for name in tables),
        "## To choose settings" if choosing else "",
        "\n".join(recipe_line(whole[name], recipes[name]) for name in choosing),
        not_run(missing) if missing else "",
        *(benchmark_section(name, record) for name, record in benchmarks.items()),
    )


def _place(name: str) -> int:
    """Where a recipe comes in the paper; all others come after it."""
    return IN_THE_PAPER.index(name) if name in IN_THE_PAPER else len(IN_THE_PAPER)


def analysis_documents(root: Path) -> dict[Path, str]:
    """docs/analysis.md with the tables of the runs whose analysis.json is in docs/analysis/."""
    page = root / "docs" / "analysis.md"
    files = sorted((root / "docs" / "analysis").glob("*/analysis.json"))
    if not page.exists() or not files:
        return {}
    tables = analysis_tables({file.parent.name: read_json(file) for file in files})
    text = "\n\n".join(titled(table).strip() for table in tables)
    return {page: replace_block(page.read_text(encoding="utf-8"), "measured", text)}
