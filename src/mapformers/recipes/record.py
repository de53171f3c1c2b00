"""The record of a recipe: one JSON file with every run, what was measured of it, and what players score."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from mapformers import players
from mapformers.errors import UserError, require
from mapformers.evaluation import evaluate
from mapformers.evaluation.aggregate import Summary, summarise
from mapformers.files import clear_file_errors, read_json, write_json
from mapformers.recipes.recipe import Key, Recipe, Row, line_label, sweep_text
from mapformers.runs.config import RunConfig, Scale
from mapformers.runs.provenance import freshness
from mapformers.stages import doing
from mapformers.tasks import Metric

Record = dict[str, Any]


def empty_record(recipe: Recipe, scale: Scale) -> Record:
    return {"recipe": recipe.name, "scale": scale, "runs": []}


def read_record(path: Path) -> Record:
    """The results kept of a recipe, or one clear sentence."""
    record = read_json(path)
    require(
        isinstance(record, dict) and isinstance(record.get("runs"), list),
        f"{path} is not a file of results; restore it, or move it away to measure anew.",
    )
    return dict(record)


def update_record(path: Path, change: Callable[[Record], Record], empty: Record) -> Record:
    """Read a record (or take the empty one), change it and write it, while no other process does.

    So several commands may add to one record at once, and none loses what another measured.
    """
    with clear_file_errors("write to", path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f".{path.name}.lock")):
            before = read_record(path) if path.exists() else empty
            after = change(before)
            if after != before or not path.exists():
                write_json(path, after)
    return after


def results_file(folder: Path, name: str, scale: str) -> Path:
    """Where a recipe's record is kept: NAME.json, or NAME-SCALE.json for scales other than cpu."""
    return folder / (f"{name}.json" if scale == "cpu" else f"{name}-{scale}.json")


def key_of(entry: Mapping[str, Any]) -> Key:
    """Which cell a run of a record is."""
    return entry["row"], entry["world"], entry["seed"], sweep_text(entry.get("sweep", {}))


def with_run(record: Record, entry: Mapping[str, Any]) -> Record:
    """The record with one more run, in the place of an older one of the same cell.

    Runs of the same line with other settings leave the record: they are no other seeds of it.
    """
    others = [
        other for other in record["runs"] if key_of(other) != key_of(entry) and not same_line_otherwise(other, entry)
    ]
    return {**record, "runs": sorted([*others, entry], key=key_of)}


def same_line_otherwise(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two runs stand in one line of a table, but were run with settings that differ in more than the seed."""
    if (line_of(one), one["world"]) != (line_of(other), other["world"]):
        return False
    first, second = (config_of(run) for run in (one, other))
    return first is None or second is None or replace(first, seed=0) != replace(second, seed=0)


def with_collected(new: Record, older: Record) -> Record:
    """An older record with what was collected; what it has of other cells, and on players of other worlds, stays.

    A run that is current stays, too, where the collected one of the same cell is not.
    """
    known = {key_of(entry): entry for entry in older["runs"]}
    joined = older
    for entry in new["runs"]:
        joined = with_run(joined, _newer(known.get(key_of(entry)), entry))
    players = {name: {**older.get(name, {}), **new.get(name, {})} for name in ("players", "players_in")}
    return {**new, **{name: worlds for name, worlds in players.items() if worlds}, "runs": joined["runs"]}


def _newer(known: Mapping[str, Any] | None, collected: Mapping[str, Any]) -> Mapping[str, Any]:
    """Which of two runs of one cell the record keeps; that a run was confirmed is known to the record alone."""
    if known is None or known.get("config") != collected.get("config"):
        return collected
    if known.get("sources") == collected.get("sources"):
        return {**collected, **({"confirmed": known["confirmed"]} if "confirmed" in known else {})}
    stays = freshness(known) == "current" and freshness(collected) != "current"
    return known if stays else collected


def with_added_rows(recipe: Recipe, entries: Iterable[Mapping[str, Any]]) -> Recipe:
    """The recipe with the rows that users added to it, as runs of a record (or cell.json) tell them."""
    known = {row.label for row in recipe.rows}
    added: dict[str, Row] = {}
    for entry in entries:
        if isinstance(entry.get("added"), Mapping) and entry["row"] not in known:
            added[entry["row"]] = Row.from_dict(entry["row"], entry["added"])
    return recipe.with_rows(*added.values())


def config_of(entry: Mapping[str, Any]) -> RunConfig | None:
    """The settings of a recorded run, or None where what it has is no config of ours."""
    try:
        return RunConfig.from_dict(entry["config"])
    except (UserError, LookupError, TypeError, AttributeError):
        return None


def is_run_of(config: RunConfig, entry: Mapping[str, Any]) -> bool:
    """Whether a recorded run had these settings; those it does not mention did not exist yet and had their default."""
    return config_of(entry) == config


def has_other_settings(recipe: Recipe, scale: Scale, entry: Mapping[str, Any]) -> bool:
    """Whether a recorded run was run otherwise than the recipe would run its cell now, as far as its config tells."""
    config = config_of(entry)
    if config is None:
        return False
    try:
        cell = recipe.cell(entry["row"], entry["world"], entry["seed"], **entry.get("sweep", {}))
    except UserError:  # a row, world or sweep that the recipe no longer has
        return True
    try:
        return cell.config(scale) != config
    except UserError:  # a text that is not prepared here: how large its vocabulary is cannot be known
        return False


def with_players(recipe: Recipe, record: Record) -> Record:
    """The record with what the players score in every world that has runs, measured where it is not there yet."""
    for world in recipe.worlds if recipe.has_players else ():
        if any(entry["world"] == world for entry in record["runs"]):
            record = with_players_of(recipe, record, world)
    return record


def with_players_of(recipe: Recipe, record: Record, world: str) -> Record:
    """The record with what the players score in one world; measured anew if the world, its splits, the scale or the
    players changed.

    ``players_in`` says what was measured: the world, the splits, the metric, and how many sequences of each split;
    ``cases`` is how many answers were scored on each.
    """
    task = recipe.build_task(world)
    settings = {name: list(v) if isinstance(v, tuple) else v for name, v in vars(task.settings).items()}
    sequences = recipe.final_sequences(world, record["scale"])
    measured_in = {"world": settings, "splits": list(recipe.splits), "metric": recipe.metric, "sequences": sequences}
    all_there = set(players.names(task)) <= set(record.get("players", {}).get(world, {}))
    if all_there and _players_measured_in(record, world) == measured_in:
        return record
    found = scores_of_players(recipe, world, sequences)
    figures = {name: {split: finite(metric) for split, metric in scores.items()} for name, scores in found.items()}
    cases = {split: metric.count for scores in found.values() for split, metric in scores.items()}
    scores = {**record.get("players", {}), world: figures}
    return {
        **record,
        "players": scores,
        "players_in": {**record.get("players_in", {}), world: {**measured_in, "cases": cases}},
    }


def _players_measured_in(record: Mapping[str, Any], world: str) -> dict[str, Any]:
    """In what the players of a record were measured; before sequences were recorded there were 512 of each split."""
    found = record.get("players_in", {}).get(world, {})
    return {"sequences": 512, **{name: value for name, value in found.items() if name != "cases"}}


def players_note(record: Mapping[str, Any], world: str) -> str | None:
    """Why models and players of a table have different numbers of cases, if they have."""
    runs = [entry for entry in record["runs"] if entry["world"] == world]
    of_models = {entry.get("config", {}).get("train", {}).get("final_sequences") for entry in runs} - {None}
    of_players = _players_measured_in(record, world)["sequences"]
    if not record.get("players", {}).get(world) or of_models <= {of_players}:
        return None
    numbers = " or ".join(map(str, sorted(of_models)))
    return f"Models are measured on {numbers} sequences of each split, players on {of_players}."


def scores_of_players(recipe: Recipe, world: str, n_sequences: int) -> dict[str, dict[str, Metric]]:
    """What rule-based players score on so many sequences of each split of a world: player -> split -> metric."""
    task = recipe.build_task(world)

    def score(player: str, split: str) -> Metric:
        with doing(f"player {player}"):
            return evaluate(players.build(player, task, split), task, split, n_sequences=n_sequences)[recipe.metric]

    with doing(f"measuring what players score in {world}"):
        return {name: {split: score(name, split) for split in recipe.splits} for name in players.names(task)}


def finite(value: float) -> float | None:
    """The value, or None where JSON has no word for it."""
    return float(value) if math.isfinite(value) else None


def line_of(entry: Mapping[str, Any]) -> str:
    """The line of the table that a run belongs to."""
    return line_label(entry["row"], entry.get("sweep", {}))


def runs_of(record: Mapping[str, Any], line: str, world: str) -> list[dict[str, Any]]:
    """The runs of one line of a table, one for each seed."""
    return [entry for entry in record["runs"] if line_of(entry) == line and entry["world"] == world]


def lines_run(recipe: Recipe, record: Mapping[str, Any], world: str | None = None) -> list[str]:
    """The lines of a recipe's table that have been run (in one world), in the order of the recipe."""
    there = {line_of(entry) for entry in record["runs"] if world in (None, entry["world"])}
    return [line for line in recipe.lines() if line in there]


def summaries(
    recipe: Recipe, record: Mapping[str, Any], metric: str | None = None
) -> dict[tuple[str, str, str], Summary]:
    """(line, world, split) -> figures over the seeds that were run; none where a seed has no figure (it diverged).

    Of the recipe's metric unless another is named.
    """
    metric = metric or recipe.metric
    values: dict[tuple[str, str, str], list[float | None]] = {}
    for entry in record["runs"]:
        for split, scores in entry["splits"].items():
            if metric in scores:
                key = line_of(entry), entry["world"], split
                values.setdefault(key, []).append(scores[metric]["value"])
    return {key: summarise(found) for key, figures in values.items() if (found := whole(figures))}


def whole(figures: Sequence[float | None]) -> list[float]:
    """The figures, or none where one is missing: without what diverged the others would look better than they are."""
    found = [figure for figure in figures if figure is not None]
    return found if len(found) == len(figures) else []
