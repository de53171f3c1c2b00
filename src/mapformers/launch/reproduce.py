"""Run the cells of recipes that are still to do; each is recorded when it is done, so nothing measured is lost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from mapformers.errors import require
from mapformers.launch.cluster import Cluster, Jobs, live_jobs
from mapformers.launch.local import Processes
from mapformers.launch.overview import Overview
from mapformers.launch.plan import Plan, expected_seconds, make_plan
from mapformers.launch.queue import Executor, Queue, run_queue
from mapformers.launch.work import Work, cell_folder
from mapformers.recipes.collect import entry_of
from mapformers.recipes.recipe import RECIPES, Recipe
from mapformers.recipes.record import Record, empty_record, results_file, update_record, with_players_of, with_run
from mapformers.runs.config import Scale


@dataclass(frozen=True)
class Where:
    """Where cells run and what is kept where.

    ``jobs``     cells at a time: one unless given, with Slurm as many as it likes.
    ``cluster``  instead of processes of this command: jobs of Slurm, or of submitit on this machine.
    ``slurm``    options for sbatch by name.
    """

    runs: Path = Path("runs")
    jobs: int | None = None
    cluster: Cluster | None = None
    slurm: Mapping[str, str] | None = None

    @property
    def threads(self) -> int:
        """Of each cell: the cores are shared out, or what Slurm was asked for."""
        if self.cluster == "slurm":
            asked = str((self.slurm or {}).get("cpus_per_task", 1))
            require(asked.isdecimal() and int(asked) >= 1, f"cpus_per_task must be a whole number, not {asked!r}.")
            return int(asked)
        return max(1, torch.get_num_threads() // (self.jobs or 1))

    def __post_init__(self) -> None:
        require(self.cluster == "slurm" or not self.slurm, "--slurm gives options to Slurm; add --cluster slurm.")

    def executor(self) -> Executor:
        if self.cluster is None:
            return Processes(self.jobs or 1)
        return Jobs(self.cluster, (self.runs / ".submitit").resolve(), self.jobs, self.slurm or {})


def reproduce(
    recipe: Recipe | str,
    *,
    scale: Scale = "cpu",
    seeds: int | Sequence[int] | None = None,
    rows: Sequence[str] | None = None,
    worlds: Sequence[str] | None = None,
    jobs: int = 1,
    runs: str | Path = "runs",
    results: str | Path = "results",
    keep_old: bool = False,
    console: Console | None = None,
) -> dict[str, Any]:
    """Train and measure every cell of a recipe that its record does not have yet, and return the record.

    ``recipe``    a name, or a recipe with rows of your own (`Recipe.with_rows`).
    ``seeds``     how many, or which (those of the recipe unless given: 0 for most).
    ``rows``      labels or lines of the table, and ``worlds`` names (all unless given).
    ``jobs``      runs at a time, each in a process of its own.
    ``keep_old``  runs whose sources have changed since they were measured count as done.

    Examples:
        >>> from mapformers.recipes import RECIPES, Row
        >>> table = RECIPES["table2"].with_rows(Row("MapWM-r3", "mapwm", {"rank": 3}))
        >>> record = reproduce(table, scale="smoke", rows=["MapWM-r3"])  # doctest: +SKIP
    """
    found = RECIPES[recipe] if isinstance(recipe, str) else recipe
    known = "A worker knows a recipe by its name: register it in a file, and import that with mf.import_plugins."
    require(found.name in RECIPES, known)
    require(jobs >= 1, f"jobs must be at least 1, not {jobs}.")
    cells = list(found.cells(rows, seeds, worlds))
    plan = make_plan(found, scale, results_file(Path(results), found.name, scale), cells, keep_old)
    return run_plans([plan], Where(Path(runs), jobs), keep_old, console or Console(stderr=True))[0]


def run_plans(plans: Sequence[Plan], where: Where, keep_old: bool, console: Console) -> list[Record]:
    """Run what is to do of several recipes, all cells in one pool; returns the record of each.

    A cell that fails twice leaves the others alone; at the end all failures are one sentence.
    """
    for plan in plans:
        for sentence in plan.sentences():
            console.print(sentence, highlight=False, soft_wrap=True)
    todo: dict[Work, Plan] = {}
    for plan in plans:
        if plan.todo:
            plan.recipe.require_ready({cell.world for cell, _ in plan.todo})
        for cell, _ in plan.todo:
            folder = cell_folder(where.runs, cell, plan.scale, keep_old)
            todo[Work(cell, plan.scale, folder, where.threads, keep_old)] = plan
    _require_nobody_else(list(todo), where)
    executor = where.executor()
    for plan in plans:
        _record_players(plan, console)
        _record_shared(plan)

    def keep(work: Work) -> str:
        plan, entry = todo[work], entry_of(work.cell, work.folder)
        empty = empty_record(plan.recipe, plan.scale)
        update_record(plan.file, lambda record: with_run(record, entry), empty)
        return _in_words(plan.recipe, entry)

    queue = Queue(list(todo))
    known = {work: expected_seconds(plan.record, work.cell, work.scale) for work, plan in todo.items()}
    expected = {work: seconds[0] for work, seconds in known.items() if seconds is not None}
    parallel = where.jobs or (None if where.cluster == "slurm" else 1)
    with Overview(queue, console, expected, parallel) as overview:
        run_queue(queue, executor, keep, overview.say, overview.refresh)
    require(not queue.failed, _failures(queue.failed, len(todo), where.runs))
    return [update_record(plan.file, dict, empty_record(plan.recipe, plan.scale)) for plan in plans]


def _require_nobody_else(works: Sequence[Work], where: Where) -> None:
    """A cell that waits or runs in Slurm's queue is not run here as well."""
    if where.cluster != "slurm":
        there = live_jobs(works)
        numbers = " ".join(sorted({job.split("_")[0] for job in there.values()}))
        sentence = f"{len(there)} of the runs are in Slurm's queue; watch them with --cluster slurm, or stop them with "
        require(not there, f"{sentence}`scancel {numbers}`.")


def _record_players(plan: Plan, console: Console) -> None:
    """What players score in a world belongs to the record before the first run there does; what is missing, too."""
    if not plan.recipe.has_players:
        return
    empty = empty_record(plan.recipe, plan.scale)
    worlds = [*(cell.world for cell, _ in plan.todo), *(entry["world"] for entry in plan.shared)]
    worlds += plan.worlds_without_players()
    for world in dict.fromkeys(worlds):
        measured = with_players_of(plan.recipe, plan.record, world)
        if measured is not plan.record:
            console.print(f"Measured what rule-based players score in {world}.", highlight=False)
        update_record(plan.file, partial(_with_players_from, measured, world), empty)


def _record_shared(plan: Plan) -> None:
    """Runs that other recipes have measured become runs of this one."""
    for entry in plan.shared:
        update_record(plan.file, partial(with_run, entry=entry), empty_record(plan.recipe, plan.scale))


def _with_players_from(measured: Record, world: str, record: Record) -> Record:
    """The record with what another has on the players of one world."""
    here = {name: {**record.get(name, {}), world: measured[name][world]} for name in ("players", "players_in")}
    return {**record, **here}


def _in_words(recipe: Recipe, entry: Mapping[str, Any]) -> str:
    """The figures of a run on one line."""
    values = {split: entry["splits"][split][recipe.metric]["value"] for split in recipe.splits}
    named = f" {recipe.metric}" if recipe.lower_is_better else ""  # 5.2 would be taken for something else
    figures = [f"{split}{named} {'–' if value is None else format(value, '.3f')}" for split, value in values.items()]
    return ", ".join(figures) or "done"


def _failures(failed: Mapping[Work, str], asked: int, runs: Path) -> str:
    told = "; ".join(f"{work.cell.title} ({failure.rstrip('.')})" for work, failure in failed.items())
    return f"{len(failed)} of {asked} runs failed: {told}; the others are kept, and their folders are in {runs}."
