"""Actions are matrices and observations are vectors: what each token does and what it carries (paper, C.1)."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from mapformers.analysis.finding import Finding, Missing, Outcome, Subject, plain
from mapformers.analysis.projections import Plane, cosines, plane_of, principal_plane
from mapformers.modules.observables import Observed

MOST_LISTED = 256  # tokens of a vocabulary that are listed one by one; a text has more


def opposites(subject: Subject) -> list[tuple[int, int]]:
    """Pairs of actions that undo each other by the rules of the task; empty where it does not say."""
    if subject.task.name == "navigation":
        return [(axis, axis + 1) for axis in range(0, len(subject.actions), 2)]
    if subject.task.name == "dyck":
        types = len(subject.actions) // 2
        return [(kind, kind + types) for kind in range(types)]
    return []


def movements(subject: Subject) -> Outcome:
    """Δ_in of every token before and after training, the cosines of actions, and how still observations are."""
    title = "What each token does: its movement Δ_in, before and after training"
    if subject.layer is None:
        return Missing("movements", title, subject.no_movement)
    before, after = (_moved(seen, subject.layer) for seen in (subject.alone_untrained, subject.alone))
    names = list(subject.task.token_names)
    between = cosines(after[subject.actions])
    pairs = {
        f"{names[a]} {names[b]}": round(float(between[subject.actions.index(a), subject.actions.index(b)]), 4)
        for a, b in opposites(subject)
    }
    planes = [plane_of(moved) for moved in (before, after)]
    numbers: dict[str, Any] = {
        "layer": subject.layer,
        "inner_dimensions": after.shape[1],
        "drawn_share": round(planes[1].share, 4),
        "action_cosines": {
            "actions": [names[a] for a in subject.actions],
            "cosines": plain(between, 4),
        },
        "opposite_cosines": pairs,
    }
    if len(names) <= MOST_LISTED:
        numbers["delta_in"] = {name: plain(row) for name, row in zip(names, after)}
        numbers["delta_in_untrained"] = {name: plain(row) for name, row in zip(names, before)}
    if subject.others and subject.actions:
        for when, moved in (("untrained", before), ("trained", after)):
            sizes = moved.norm(dim=1)
            still, moving = sizes[subject.others].median(), sizes[subject.actions].median()
            numbers[f"observations_over_actions_{when}"] = round(float(still / moving), 6) if moving else None
    reading = (
        "Arrows are actions, dots are observations: a map has opposite actions as opposite arrows, "
        "and every observation at the origin."
    )
    if not subject.actions:
        reading = (
            f"{subject.task.name} does not say which tokens act, so all are dots: those at the origin do not move."
        )
    if after.shape[1] > 2:
        reading += (
            f" Of {after.shape[1]} inner dimensions the two directions are drawn in which movements are longest; "
            f"they hold {planes[1].share:.0%} of the squared lengths."
        )
    data = {
        "panels": _panels(planes),
        "names": names,
        "actions": subject.actions,
        "cosines": between.numpy(),
    }
    return Finding("movements", title, reading, numbers, data)


def values(subject: Subject) -> Outcome:
    """‖v‖ of observations and actions, and the principal components of all values, before and after training."""
    title = "What each token carries: its value v, before and after training"
    layer = subject.attending
    if layer is None or "values" not in subject.alone[layer]:
        return Missing("values", title, f"{subject.kind} has no values: it does not attend.")
    stacks = [seen[layer]["values"][:, :, 0].flatten(1) for seen in (subject.alone_untrained, subject.alone)]
    names = list(subject.task.token_names)
    numbers: dict[str, Any] = {"layer": layer}
    for when, vectors in zip(("untrained", "trained"), stacks):
        sizes = vectors.norm(dim=1)
        kinds = {"actions": subject.actions, "observations": subject.others}
        means = {kind: round(float(sizes[ids].mean()), 4) for kind, ids in kinds.items() if ids}
        numbers[when] = {"mean_norm": means}
        if len(names) <= MOST_LISTED:
            numbers[when]["norm"] = {name: round(float(size), 4) for name, size in zip(names, sizes)}
        if len(means) == 2:
            numbers[when]["observations_over_actions"] = round(means["observations"] / max(means["actions"], 1e-12), 4)
    planes = [principal_plane(vectors) for vectors in stacks]
    data = {
        "panels": _panels(planes),
        "names": names,
        "actions": subject.actions,
        "norms": [vectors.norm(dim=1).numpy() for vectors in stacks],
    }
    reading = (
        "Principal components of the values, and their lengths: in a model with a map observations are spread out, "
        "because they are what is remembered, and actions lie together near no content."
    )
    return Finding("values", title, reading, numbers, data)


def _panels(planes: Sequence[Plane]) -> list[dict[str, Any]]:
    """What is drawn of the model before and after training."""
    moments = zip(("before training", "after training"), planes)
    return [{"title": when, "points": plane.points.numpy(), "axes": plane.axes} for when, plane in moments]


def _moved(seen: Observed, layer: int) -> Tensor:
    """Δ_in of every token read alone, all heads side by side: (vocab, H·r)."""
    return seen[layer]["delta_in"][:, 0].flatten(1).double()
