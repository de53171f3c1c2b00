"""The pages on a recipe: its section of docs/results.md, and all the rest on docs/results/<recipe>.md."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mapformers.evaluation.aggregate import summarise
from mapformers.recipes.claims import claims_sentence, claims_table, claims_that_fail
from mapformers.recipes.measures import GOAL
from mapformers.recipes.recipe import Recipe
from mapformers.recipes.record import line_of, lines_run, runs_of, summaries
from mapformers.recipes.views import CurveView, TableView, View, spread
from mapformers.recipes.views.table import line_states
from mapformers.reports.marks import footnotes, marked
from mapformers.reports.page import WRITTEN_BY, join_sections, origins, titled
from mapformers.reports.table import Table

FIELD = re.compile(r"\{([^{}]+?) \| ([^{}]+?) \| ([^{}]+?)\}")


def recipe_section(recipe: Recipe, record: Mapping[str, Any]) -> str:
    """What docs/results.md says of a recipe: one table, which rows are missing, one sentence, claims, a link."""
    return join_sections(
        f"## {recipe.name}: {recipe.summary}",
        f"The figures are `{recipe.metric}`." if recipe.splits else "",
        overview(recipe, record).render("markdown") if recipe.splits else "",
        " ".join(filter(None, [*_sentences(recipe, record), _more(recipe)])),
        claims_that_fail(recipe, record),
    )


def recipe_line(recipe: Recipe, record: Mapping[str, Any]) -> str:
    """What docs/results.md says of a recipe that is only there to choose settings: its tables are on its own page."""
    count = f"{rows_here(recipe, record)}."
    said = [f"**{recipe.name}**: {recipe.summary}", count, finding(recipe, record), _more(recipe)]
    return f"- {' '.join(filter(None, said))}"


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
    """How many lines of the table have been run at all, and which have not (in some world)."""
    there, all_lines = lines_run(recipe, record), recipe.lines()
    missing = [line for line in all_lines if line not in there]
    for world in recipe.worlds:
        here = lines_run(recipe, record, world)
        missing += [f"{line} ({world})" for line in recipe.lines(world) if line in there and line not in here]
    named = f"; not run: {'; '.join(missing)}" if missing else ""
    return f"{rows_here(recipe, record)}{named}."


def rows_here(recipe: Recipe, record: Mapping[str, Any]) -> str:
    count = len(lines_run(recipe, record))
    return f"{count} of {len(recipe.lines())} rows {'is' if count == 1 else 'are'} here"


def finding(recipe: Recipe, record: Mapping[str, Any]) -> str:
    """The recipe's sentence with measured figures in it; nothing where one of them was not measured."""
    found = summaries(recipe, record)
    keys: list[tuple[str, str, str]] = [(line, world, split) for line, world, split in FIELD.findall(recipe.finding)]
    if any(key not in found for key in keys):
        return ""
    return FIELD.sub(lambda field: spread(found[field[1], field[2], field[3]]), recipe.finding)


def _sentences(recipe: Recipe, record: Mapping[str, Any]) -> list[str]:
    return [coverage(recipe, record), finding(recipe, record), claims_sentence(recipe, record)]


def _more(recipe: Recipe) -> str:
    return f"[Seeds, curves, settings and origin](results/{recipe.name}.md)."


def recipe_tables(recipe: Recipe, record: Mapping[str, Any]) -> list[Table]:
    """The tables of all its views, then its claims."""
    found = [table for view in recipe.views for table in view.tables(recipe, record)]
    return [*found, claims_table(recipe, record)] if recipe.claims else found


def page_views(recipe: Recipe) -> list[View]:
    """The views of its page: those it names, and how its runs learned wherever that is measured."""
    shown = any(isinstance(view, CurveView) and not view.together for view in recipe.views)
    return [*recipe.views, *([] if shown or recipe.curve is None else [CurveView(_goal(recipe))])]


def _goal(recipe: Recipe) -> float | None:
    return None if recipe.curve is None or recipe.curve.lower_is_better else GOAL


def recipe_page(recipe: Recipe, record: Mapping[str, Any]) -> str:
    """docs/results/<recipe>.md: every view, every run, its settings, and where the figures come from."""
    runs = record["runs"]
    parts = [
        f"# {recipe.name}: {recipe.summary}",
        f"{WRITTEN_BY} [All results](../results.md).",
        " ".join(filter(None, _sentences(recipe, record))),
        f"`{recipe.metric}` at `{record['scale']}` scale; mean ± standard deviation over seeds, in brackets the "
        f"paper's. {recipe.chosen}",
    ]
    for view in page_views(recipe):
        parts += [titled(table) for table in view.tables(recipe, record)]
        for file in view.plots(recipe, record):
            parts.append(f"![{recipe.name}: {view.caption}](../images/{file})")
    if recipe.claims:
        parts += ["## Claims", claims_table(recipe, record).render("markdown")]
    parts += ["## Every run", seeds_table(recipe, record).render("markdown")]
    whole = f"`results/{recipe.name}.json` has the whole configuration of every run under `config`."
    parts += ["## Settings", settings_table(recipe, record).render("markdown"), whole]
    parts += ["## Origin", cost(runs), origins(runs)]
    return join_sections(*parts)


def cost(runs: Sequence[Mapping[str, Any]]) -> str:
    """How long the runs took, one by one and together."""
    if not runs:
        return "There are no runs yet."
    minutes = summarise([core_minutes(run) for run in runs])
    return (
        f"A run takes {minutes.mean:.1f} core-minutes on average ({minutes.low:.1f} to {minutes.high:.1f}); "
        f"all {len(runs)} took {minutes.mean * len(runs) / 60:.1f} core-hours."
    )


def core_minutes(run: Mapping[str, Any]) -> float:
    """Minutes times the threads of all its processes."""
    hardware = run["hardware"]
    return float(run["wall_seconds"] / 60 * hardware.get("threads", 1) * hardware.get("processes", 1))


def seeds_table(recipe: Recipe, record: Mapping[str, Any]) -> Table:
    """Every run: its splits, the best on the way, after how many sequences it first was at the goal, and its cost."""
    curve = recipe.curve
    headings = ["row", "world", "seed", *recipe.splits.values()]
    if curve is not None:
        headings += ["best on the way"] if curve.lower_is_better else ["best on the way", f"sequences to {GOAL:g}"]
    headings.append("core-minutes")
    rows = []
    for run in record["runs"]:
        found = [run["splits"].get(split, {}).get(recipe.metric) for split in recipe.splits]
        values = [None if metric is None else metric["value"] for metric in found]  # of a split that came later, none
        cells = ["–" if value is None else f"{value:.4f}" for value in values]
        cells += on_the_way(curve.points(run), curve.lower_is_better) if curve else []
        cells.append(f"{core_minutes(run):.1f}")
        rows.append([marked(line_of(run), line_states(recipe, record, [run])), run["world"], str(run["seed"]), *cells])
    return Table("Every run", headings, rows, notes=footnotes([row[0] for row in rows]))


def on_the_way(points: Sequence[tuple[float, float]], lower_is_better: bool = False) -> tuple[str, ...]:
    """The best that was measured while training, and where there is a goal, after how many sequences it was reached."""
    best = min if lower_is_better else max
    found = f"{best(value for _, value in points):.4f}" if points else "–"
    if lower_is_better:
        return (found,)
    return found, next((f"{sequences:,}" for sequences, value in points if value >= GOAL), "–")


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
    layers = model.get("layers", ())
    counted = {"n_layers": len(layers)} if layers else {}
    owners = [config["train"], config["task"]["settings"], counted, model, *(each["options"] for each in layers)]
    return next((owner[setting] for owner in owners if setting in owner), "–")
