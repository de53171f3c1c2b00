"""`mapformers analyze`: every figure and number of what a trained model has learned, and a page of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from mapformers.analysis.brackets import STRING
from mapformers.analysis.film import film
from mapformers.analysis.finding import Finding, Missing, Outcome, Subject
from mapformers.analysis.whole import analyse, as_json
from mapformers.cli.parse import parse
from mapformers.cli.tables import player_table, split_table
from mapformers.cli.threads import use_threads
from mapformers.config import to_dict
from mapformers.errors import UserError, require
from mapformers.evaluation import evaluate_splits, player_scores
from mapformers.explorer.bundle import bundle
from mapformers.explorer.loaded_runs import LoadedRuns
from mapformers.files import clear_file_errors, write_atomically, write_json
from mapformers.reports.film import draw_film
from mapformers.reports.run_figures import draw_figure
from mapformers.reports.run_page import LARGEST, Entry, LiveModel, run_page
from mapformers.reports.table import Table
from mapformers.runs.config import ForeignModel
from mapformers.runs.folder import RunFolder
from mapformers.runs.run import load
from mapformers.stages import doing
from mapformers.training.train import title_of

PROG = "mapformers analyze"
DESCRIPTION = """Look inside a trained run: the figures and tables of the paper's neural analyses (A.8, C.1, C.2, D.2).

  mapformers analyze runs/navigation-mapwm-seed0
  mapformers analyze runs/dyck-mapwm-seed0 --string "([]())[]" --out figures
  mapformers analyze runs/navigation-mapwm-seed0 --frames      a film of the learning, from `train --snapshots 12`

Writes each figure as PNG and PDF, analysis.json with every number, and report.html, a page that
needs no other file, with the model itself in it.
"""
PLAYER_SEQUENCES = 128


@dataclass(frozen=True)
class Arguments:
    run_dir: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The folder that `mapformers train` wrote."""
    out: Path | None = None
    """Where to write (analysis/ in the run's folder unless given)."""
    string: str = STRING
    """The string of brackets whose walk is drawn, for runs on dyck."""
    frames: bool = False
    """Also make film.gif of the learning; the run must have been trained with --snapshots."""
    seed: int = 0
    """Which unseen sequences are looked at."""
    threads: int | None = None
    """Threads to compute on (one per core unless given); fewer are faster where the cores are busy."""


def main(args: Sequence[str]) -> int:
    asked = parse(Arguments, args, PROG, DESCRIPTION)
    require(asked.seed >= 0, f"--seed must not be negative, but is {asked.seed}.")
    _, config = RunFolder.open(asked.run_dir)
    own = isinstance(config.model, ForeignModel)
    require(not own, f"The model of {asked.run_dir} is your own {config.model_name}, which has no named observables.")
    out = asked.run_dir / "analysis" if asked.out is None else asked.out
    with use_threads(asked.threads):
        subject = Subject(load(asked.run_dir), asked.seed)
        outcomes = list(analyse(subject, asked.string))
        splits, players = scores(subject)
        frames = film(subject) if asked.frames else None
        live = live_model(subject, players)
    with clear_file_errors("write to", out):
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "analysis.json", {**about(subject), "splits": splits, "players": players, **as_json(outcomes)})
        write_page(out, subject, outcomes, split_tables(subject, splits, players), live)
        if isinstance(frames, dict):
            draw_film(frames, out / "film.gif")
    said = Console()
    if frames is not None:
        shown = frames.why if isinstance(frames, Missing) else "film.gif"
        said.print(f"The map being learned: {shown}", highlight=False, soft_wrap=True)
    for outcome in outcomes:
        what = f"{outcome.name}.png, .pdf" if isinstance(outcome, Finding) else f"not drawn: {outcome.why}"
        said.print(f"{outcome.title}: {what}", highlight=False, soft_wrap=True)
    said.print(f"Page: {out / 'report.html'}   numbers: {out / 'analysis.json'}", highlight=False, soft_wrap=True)
    return 0


def about(subject: Subject) -> dict[str, Any]:
    """Which run it is, without any path of the machine it is on."""
    config = subject.run.config
    return {
        "run": {
            "task": config.task,
            "settings": to_dict(subject.task.settings),
            "model": config.model_name,
            "layers": [layer.to_dict() for layer in subject.model.config.layers],
            "parameters": sum(parameter.numel() for parameter in subject.model.parameters()),
            "seed": config.seed,
            "step": subject.run.step,
            "sequences": subject.run.step * config.train.batch_size,
        },
        "analysis_seed": subject.seed,
    }


def scores(subject: Subject) -> tuple[dict[str, Any], dict[str, Any]]:
    """What result.json says of every split, measured here where the run did not come to that, and players' scores."""
    splits = subject.run.result.get("splits") or evaluate_splits(subject.model, subject.task, n_sequences=128)
    return splits, player_scores(subject.task, n_sequences=PLAYER_SEQUENCES)


def split_tables(subject: Subject, splits: Mapping[str, Any], players: Mapping[str, Any]) -> list[Table]:
    tables = [split_table(splits, f"{title_of(subject.run.config)}, step {subject.run.step}")]
    return tables + [player_table(name, found, PLAYER_SEQUENCES) for name, found in players.items()]


def live_model(subject: Subject, players: Mapping[str, Any]) -> LiveModel:
    """The page of `mapformers explore --export`, or the sentence with which that refuses this model."""
    subject.model.eval()
    try:
        with doing("exporting the model"):
            return LiveModel(bundle(LoadedRuns((subject.run,)), players))
    except UserError as refused:
        return LiveModel(why=str(refused))


def write_page(
    out: Path, subject: Subject, outcomes: Sequence[Outcome], tables: Sequence[Table], live: LiveModel
) -> None:
    """Every figure as files, and the page that holds them all."""
    entries = []
    with doing("drawing", len(outcomes)) as stage:
        for outcome in outcomes:
            if isinstance(outcome, Finding):
                picture = draw_figure(outcome.name, outcome.data, out)
                entries.append(Entry(outcome.title, outcome.reading, picture))
            else:
                entries.append(Entry(outcome.title, outcome.why))
            stage.advance()
    facts = _flat(subject.run.config.to_dict())
    page = run_page(title_of(subject.run.config), facts, tables, entries, live).encode()
    require(len(page) <= LARGEST, f"The page would have {len(page)} bytes, more than the {LARGEST} that it may have.")
    write_atomically(out / "report.html", page)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one list of names."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
            for index, item in enumerate(value):
                found |= _flat(item, f"{prefix}{name}.{index}.")
        else:
            found[f"{prefix}{name}"] = value
    return found
