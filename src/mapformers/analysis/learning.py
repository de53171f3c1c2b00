"""How a run learned: its curves, and the movements of actions and observations beside them (paper, C.1)."""

from typing import Any

from mapformers.analysis.finding import Finding, Missing, Outcome, Subject


def curves(subject: Subject) -> Outcome:
    """Loss of every logged step, and the metric on fresh sequences."""
    title = "Learning curves"
    batch, metric = subject.run.config.train.batch_size, subject.task.main_metric
    logged = [line for line in subject.run.metrics if "loss" in line and line["loss"] is not None]
    measured = [line for line in subject.run.metrics if "split" in line and line.get(metric) is not None]
    if not logged and not measured:
        return Missing("curves", title, "The folder has no metrics.jsonl with the course of training.")
    numbers: dict[str, Any] = {
        "metric": metric,
        "sequences": [line["step"] * batch for line in measured],
        "measured": [round(line[metric], 4) for line in measured],
        "last_loss": round(logged[-1]["loss"], 4) if logged else None,
    }
    data = {
        "loss": [(line["step"] * batch, line["loss"]) for line in logged],
        "measured": list(zip(numbers["sequences"], numbers["measured"])),
        "metric": metric,
        "split": measured[-1]["split"] if measured else "",
    }
    reading = (
        "Left: the loss of single batches (faint) and its running mean (bold). "
        f"Right: {metric.replace('_', ' ')} on fresh sequences; what players without a map score is in the tables."
    )
    return Finding("curves", title, reading, numbers, data)


def movement_curves(subject: Subject) -> Outcome:
    """‖Δ_t‖ of actions and of observations against the metric, at every evaluation."""
    title = "Movements while learning: ‖Δ‖ of actions and observations"
    if subject.layer is None:
        return Missing("learning", title, subject.no_movement)
    if not subject.others:
        return Missing("learning", title, f"Every token of {subject.task.name} acts, so there is nothing to set apart.")
    if not subject.actions:
        return Missing("learning", title, f"{subject.task.name} does not say which tokens act.")
    metric, batch = subject.task.main_metric, subject.run.config.train.batch_size
    lines = [line for line in subject.run.metrics if "delta_actions" in line and line.get(metric) is not None]
    if not lines:
        why = "This run was trained before movements were logged; a run that is trained now has them."
        return Missing("learning", title, why)
    numbers = {
        "sequences": [line["step"] * batch for line in lines],
        "delta_actions": [round(line["delta_actions"], 5) for line in lines],
        "delta_observations": [round(line["delta_observations"], 5) for line in lines],
        metric: [round(line[metric], 4) for line in lines],
    }
    reading = (
        "The mean length of Δ after W_out: accuracy rises once actions move and observations stop moving "
        "(the paper's fig. of training, C.1)."
    )
    return Finding("learning", title, reading, numbers, {**numbers, "metric": metric, "scores": numbers[metric]})
