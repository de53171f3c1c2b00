"""The tables of `mapformers lm eval`: a column or a line for each run."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from mapformers.evaluation.significance import p_text
from mapformers.lm.blimp import ISLANDS, BlimpScores
from mapformers.lm.evaluation import EvaluationSettings, Measured, differences
from mapformers.lm.perplexity import LAST
from mapformers.reports.table import Table

SHOWN = 10  # points of a run's training, at most


def tables(ours: Sequence[Measured], others: Sequence[Measured], question: EvaluationSettings) -> Iterator[Table]:
    """Windows, training, contexts, BLiMP and differences: those that were asked for."""
    every = [*ours, *others]
    if question.windows:
        yield windows_table(every)
    if any(measured.training for measured in every):
        yield training_table(every)
    if question.contexts:
        yield context_table(every, question)
    if question.paradigms:
        scores = {measured.name: measured.blimp for measured in every if measured.blimp is not None}
        if all(found.islands is not None for found in scores.values()):
            yield islands_table(scores)
        yield parts_table(scores, "fields and phenomena", lambda found: {**found.fields, **found.terms})
        yield parts_table(scores, "paradigms", lambda found: found.accuracies)
    if others:
        yield difference_table(ours, others)


def text_named(found: Sequence[Measured]) -> str:
    """What the perplexities are of: a run without validation text is measured on what it was trained on."""
    return "validation perplexity" if {m.split for m in found} == {"val"} else "perplexity on the training text"


def windows_table(found: Sequence[Measured]) -> Table:
    rows = [
        [m.name, str(m.step), figure(m.windows.perplexity), last_five(m), str(len(m.windows.nats))]
        for m in found
        if m.windows is not None
    ]
    headings = ["run", "step", "perplexity", "mean of the last five", "windows"]
    notes = ["The last five: those that were measured while the run trained."]
    return Table(text_named(found), headings, rows, notes=notes, faint=["step", "windows"])


def last_five(measured: Measured) -> str:
    """The mean, with how many there were if they were fewer."""
    fewer = 0 < len(measured.training) < LAST
    return figure(measured.last_five) + (f" (of {len(measured.training)})" if fewer else "")


def training_table(found: Sequence[Measured]) -> Table:
    """Perplexity after so many tokens, at about equal distances; --json has every point."""
    longest = max((measured.training for measured in found), key=len)
    step = -(-len(longest) // SHOWN)
    shown = [point.tokens for point in longest[::-1][::step]][::-1]
    by_run = [{point.tokens: point.perplexity for point in measured.training} for measured in found]
    rows = [[f"{tokens:,}", *(figure(points.get(tokens)) for points in by_run)] for tokens in shown]
    return Table(f"{text_named(found)} over training", ["tokens", *(measured.name for measured in found)], rows)


def context_table(found: Sequence[Measured], question: EvaluationSettings) -> Table:
    curves = [(m.name, m.contexts) for m in found if m.contexts is not None]
    rows = [[name, *(figure(curve.perplexity(context)) for context in curve.contexts)] for name, curve in curves]
    first = curves[0][1]
    note = f"The same {first.targets} targets in each of {first.documents} documents, with so many tokens before them."
    return Table("perplexity against context", ["run", *map(str, question.contexts)], rows, notes=[note])


def islands_table(scores: dict[str, BlimpScores]) -> Table:
    """The rows of the paper's table."""
    rows = [[said, *(f"{found.accuracies[name]:.2f}" for found in scores.values())] for name, said in ISLANDS.items()]
    below = [
        ["overall island", *(f"{found.islands:.2f}" for found in scores.values())],
        ["overall BLiMP", *(f"{found.overall:.2f}" for found in scores.values())],
    ]
    return Table("BLiMP: islands", ["", *scores], rows, below)


def parts_table(
    scores: dict[str, BlimpScores], what: str, parts: Callable[[BlimpScores], Mapping[str, float]]
) -> Table:
    by_run = [parts(found) for found in scores.values()]
    rows = [[name.replace("_", " "), *(f"{each[name]:.3f}" for each in by_run)] for name in by_run[0]]
    pairs = next(iter(scores.values())).pairs
    return Table(f"BLiMP: {what}", ["", *scores], rows, notes=[f"{pairs:,} pairs, scored by lm-eval; chance is 0.5."])


def difference_table(ours: Sequence[Measured], others: Sequence[Measured]) -> Table:
    """Ours minus the others', in percent of perplexity."""
    rows = []
    for name, found in differences(ours, others).items():
        interval = f"{100 * found.low:+.2f} to {100 * found.high:+.2f} %"
        known = [f"{100 * found.mean:+.2f} %", interval] if math.isfinite(found.mean) else ["–", "–"]
        rows.append([name, *known, p_text(found.p), " and ".join(map(str, found.n))])
    title = f"{', '.join(m.name for m in ours)} against {', '.join(m.name for m in others)}"
    notes = [
        "Below 0: the first have the lower perplexity. The interval is of 95 %, p is two-sided. The mean of the last "
        "five is of models that were still learning, and of fewer windows (--eval-sequences of the run)."
    ]
    return Table(title, ["", "difference", "interval", "p", "n"], rows, notes=notes)


def figure(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "–" if value is None else "∞"
    return f"{value:.2f}" if value < 10_000 else f"{value:.3g}"
