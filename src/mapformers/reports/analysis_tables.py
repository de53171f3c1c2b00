"""What was found in runs whose analysis.json is kept, beside what the paper says of its own (C.1, C.2)."""

from collections.abc import Callable, Mapping
from typing import Any

from mapformers.reports.table import Table

Record = Mapping[str, Any]
Row = tuple[str, str, Callable[[Mapping[str, Any]], str]]  # what, the paper's figure, ours from the figures of a run


def _listed(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}".replace("-", "−") for name, value in figures.items())


def _norms(when: str) -> Callable[[Mapping[str, Any]], str]:
    def text(found: Mapping[str, Any]) -> str:
        means = found["values"][when]["mean_norm"]
        return f"{means['observations']:.1f} / {means['actions']:.1f}"

    return text


def _attended(where: str) -> Callable[[Mapping[str, Any]], str]:
    def text(found: Mapping[str, Any]) -> str:
        shares = found["bracket-attention"]["share_of_last_open"][where]
        return f"{shares['mean']:.2f} (largest weight in {shares['attends_most_to_it']:.0%})"

    return text


NAVIGATION: tuple[Row, ...] = (
    ("cosine of opposite actions", "−1.0, −1.0", lambda found: _listed(found["movements"]["opposite_cosines"])),
    (
        "median ‖Δ_in‖ of observations over that of actions",
        "near 0",
        lambda found: f"{found['movements']['observations_over_actions_trained']:.4f}",
    ),
    (
        "the same before training",
        "–",
        lambda found: f"{found['movements']['observations_over_actions_untrained']:.2f}",
    ),
    ("‖v‖ of observations / actions, trained", "18.2 / 3.1", _norms("trained")),
    ("the same before training", "1.3 / 1.2", _norms("untrained")),
    ("R² of the coordinate on held-out walks", "–", lambda found: f"{found['walks']['r2_held_out']:.4f}"),
    (
        "attention to what was seen in the cell, on revisits",
        "–",
        lambda found: f"{found['revisits']['share_on_what_was_seen_here']:.2f}",
    ),
)

DYCK: tuple[Row, ...] = (
    (
        "Val_θ of single symbols as in the paper's table",
        "yes",
        lambda found: (
            f"{'yes' if found['continuations']['as_expected'] else 'no'}, "
            f"smallest margin {found['continuations']['smallest_margin']:.1f}"
        ),
    ),
    ("cosine of an opener and its closer", "−1", lambda found: _listed(found["trajectory"]["cosine_of_same_type"])),
    (
        "the same without the mean movement",
        "–",
        lambda found: _listed(found["trajectory"]["cosine_of_same_type_without_drift"]),
    ),
    (
        "|cosine| of openers of two types",
        "0",
        lambda found: _listed(found["trajectory"]["abs_cosine_between_types"]),
    ),
    (
        "the same without the mean movement",
        "–",
        lambda found: _listed(found["trajectory"]["abs_cosine_between_types_without_drift"]),
    ),
    ("attention of closing queries to the last open bracket", "all", _attended("training")),
    ("the same at depth 12", "all", _attended("deep")),
)

ROWS = {"navigation": NAVIGATION, "dyck": DYCK}
TITLES = {"navigation": "2D navigation", "dyck": "Dyck-2, one layer"}


def analysis_tables(records: Mapping[str, Record]) -> list[Table]:
    """A table per task and model: what the paper says, and a column for every seed that is kept.

    ``records``: by the name of their folder, which ends in -seedN.
    """
    groups: dict[str, dict[str, Record]] = {}
    for name, record in records.items():
        model, _, seed = name.rpartition("-")
        groups.setdefault(model, {})[seed] = record
    tables = []
    for model, runs in groups.items():
        task = next(iter(runs.values()))["run"]["task"]
        cells = [[what, paper, *(ours(run["figures"]) for run in runs.values())] for what, paper, ours in ROWS[task]]
        tables.append(Table(f"{TITLES[task]}: {model.removeprefix(f'{task}-')}", ["", "paper", *runs], cells))
    return tables
