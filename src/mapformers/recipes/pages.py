"""The pages on a recipe: its section of docs/results.md, and all the rest on docs/results/<recipe>.md."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mapformers.evaluation.aggregate import summarise
from mapformers.recipes.measures import Curve
from mapformers.recipes.recipe import Recipe
from mapformers.recipes.record import line_of, lines_run, runs_of, summaries
from mapformers.recipes.views import GOAL, TableView, spread
from mapformers.reports.page import WRITTEN_BY, footnotes, join_sections, marked, origins, titled
from mapformers.reports.table import Table
from mapformers.runs.provenance import freshness

FIELD = re.compile(r"\{([^{}]+?) \| ([^{}]+?) \| ([^{}]+?)\}")


def recipe_section(recipe: Recipe, record: Mapping[str, Any]) -> str:
    """What docs/results.md says of a recipe: one table, how many of its rows are there, one sentence, a link."""
    return join_sections(
        f"## {recipe.name}: {recipe.summary}",
        overview(recipe, record).render("markdown") if recipe.splits else "",
        " ".join(filter(None, [coverage(recipe, record), finding(recipe, record), _more(recipe)])),
    )


def overview(recipe: Recipe, record: Mapping[str, Any]) -> Table:
    """All worlds in one table; players are on the recipe's own page."""
    several = len(recipe.worlds) > 1
    rows: list[list[str]] = []
    notes: dict[str, None] = {}
    for world in recipe.worlds:
        table = TableView().table(recipe, record, world)
        notes |= dict.fromkeys(table.notes)
        rows += [[label, *([world] if several else []), *cells] for label, *cells in table.rows]
    first = ["row", "world"] if several else list(recipe.worlds)
    headings = [*first, "seeds", *recipe.splits.values()]
    return Table(f"{recipe.name}: {recipe.metric}, ours (paper)", headings, rows, notes=list(notes))


def coverage(recipe: Recipe, record: Mapping[str, Any]) -> str:
    """How many lines of the table have been run at all."""
    there, all_lines = len(lines_run(recipe, record)), len(recipe.lines())
    return f"{there} of {all_lines} rows {'is' if there == 1 else 'are'} here."


def finding(recipe: Recipe, record: Mapping[str, Any]) -> str:
    """The recipe's sentence with measured figures in it; nothing where one of them was not measured."""
    found = summaries(recipe, record)
    keys: list[tuple[str, str, str]] = [(line, world, split) for line, world, split in FIELD.findall(recipe.finding)]
    if any(key not in found for key in keys):
        return ""
    return FIELD.sub(lambda field: spread(found[field[1], field[2], field[3]]), recipe.finding)


def _more(recipe: Recipe) -> str:
    return f"[Seeds, curves, settings and origin](results/{recipe.name}.md)."


def recipe_page(recipe: Recipe, record: Mapping[str, Any]) -> str:
    """docs/results/<recipe>.md: every view, every run, its settings, and where the figures come from."""
    runs = record["runs"]
    parts = [
        f"# {recipe.name}: {recipe.summary}",
        f"{WRITTEN_BY} [All results](../results.md).",
        " ".join(filter(None, [coverage(recipe, record), finding(recipe, record)])),
        f"`{recipe.metric}` at `{record['scale']}` scale; mean ± standard deviation over seeds, in brackets the "
        "paper's. All choices are made on the iid split; OOD splits are only reported.",
    ]
    for view in recipe.views:
        parts += [titled(table) for table in view.tables(recipe, record)]
        for file in view.figures(recipe, record):
            parts.append(f"![{recipe.name}: {view.caption}](../images/{file})")
    parts += ["## Every run", seeds_table(recipe, runs).render("markdown")]
    parts += ["## Settings", settings_table(recipe, record).render("markdown")]
    took = "There are no runs yet."
    if runs:
        minutes = summarise([run["wall_seconds"] / 60 for run in runs])
        took = f"A run takes {minutes.mean:.1f} minutes on average ({minutes.low:.1f} to {minutes.high:.1f})."
    parts += ["## Origin", took, origins(runs)]
    return join_sections(*parts)


def seeds_table(recipe: Recipe, runs: Sequence[Mapping[str, Any]]) -> Table:
    """Every run: its splits, the best on the way, and after how many sequences it first was at the goal."""
    curve = next((measure for measure in recipe.measures if isinstance(measure, Curve)), None)
    headings = ["row", "world", "seed", *recipe.splits.values()]
    headings += ["best on the way", f"sequences to {GOAL:g}"] if curve else []
    rows = []
    for run in runs:
        values = [run["splits"][split][recipe.metric]["value"] for split in recipe.splits]
        cells = ["–" if value is None else f"{value:.4f}" for value in values]
        cells += on_the_way(curve.of(run) or (), curve.metric) if curve else []
        rows.append([marked(line_of(run), [freshness(run)]), run["world"], str(run["seed"]), *cells])
    return Table("Every run", headings, rows, notes=footnotes([row[0] for row in rows]))


def on_the_way(curve: Sequence[Mapping[str, Any]], metric: str) -> tuple[str, str]:
    """The best that was measured while training, and after how many sequences it first was at the goal."""
    measured = [point for point in curve if point[metric] is not None]
    reached = next((f"{point['sequences']:,}" for point in measured if point[metric] >= GOAL), "–")
    return (f"{max(point[metric] for point in measured):.4f}" if measured else "–"), reached


def settings_table(recipe: Recipe, record: Mapping[str, Any]) -> Table:
    """How each line was trained, and what its model is."""
    headings = [
        "row",
        "world",
        "sequences",
        "batch",
        "peak learning rate",
        "parameters",
        "threads",
        "settings of its own",
    ]
    rows = []
    own = {row.label: row.settings for row in recipe.rows}
    for world in recipe.worlds:
        for line in lines_run(recipe, record, world):
            run = runs_of(record, line, world)[0]
            train = run["config"]["train"]
            special = ", ".join(f"{name} {recorded(run, name)}" for name in own[run["row"]])
            counts = [f"{run['sequences']:,}", str(train["batch_size"]), f"{train['lr']:g}", f"{run['parameters']:,}"]
            rows.append([line, world, *counts, str(run["hardware"].get("threads", "–")), special or "–"])
    return Table("Settings", headings, rows)


def recorded(run: Mapping[str, Any], setting: str) -> Any:
    """What a setting was in a recorded run, whoever owns it; "–" where it did not exist yet."""
    config = run["config"]
    model = config["model"]
    owners = [
        config["train"],
        config["task"]["settings"],
        model,
        *(each["options"] for each in model.get("layers", ())),
    ]
    return next((owner[setting] for owner in owners if setting in owner), "–")
