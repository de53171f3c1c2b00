"""A language turned into a walk: how a model of brackets keeps its stack in a position (paper, C.2)."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mapformers.analysis.finding import Finding, Missing, Outcome, Subject, plain
from mapformers.analysis.projections import cosines, plane_of, principal_plane
from mapformers.errors import require
from mapformers.evaluation import evaluate_grid

STRING = "[]([]())"  # the paper's
DEEP = 12
SEQUENCES = 48
GRID_SEQUENCES = 64


def spelled(subject: Subject, string: str) -> Tensor:
    """The tokens of a string of brackets, (L,)."""
    names = list(subject.task.token_names)
    for symbol in string:
        require(symbol in names, f"{symbol!r} is not a bracket of this task, which has {' '.join(names)}.")
    return torch.tensor([names.index(symbol) for symbol in string])


def trajectory(subject: Subject, string: str = STRING) -> Outcome:
    """Where a string leads on the map, and how the movements of brackets lie to each other."""
    title = f"The string {string} as a walk"
    if subject.layer is None or "coordinate" not in subject.alone[subject.layer]:
        why = subject.no_movement if subject.layer is None else f"{subject.kind} moves by matrices, not along a line."
        return Missing("trajectory", title, why)
    tokens, types = spelled(subject, string), len(subject.actions) // 2
    moved = subject.alone[subject.layer]["delta_in"][:, 0].flatten(1).double()
    coordinate = subject.model.observe(tokens.unsqueeze(0))[subject.layer]["coordinate"][0].flatten(1)
    plane, drift = plane_of(moved), moved.mean(dim=0)
    origin, steps = torch.zeros(1, moved.shape[1], dtype=torch.float64), moved[tokens]
    path = torch.cat((origin, coordinate)) @ plane.basis
    steady = torch.cat((origin, (steps - drift).cumsum(dim=0))) @ plane.basis
    between, undrifted, names = cosines(moved), cosines(moved - drift), list(subject.task.token_names)
    numbers = {
        "layer": subject.layer,
        "string": string,
        "coordinate": plain(coordinate, 4),
        "drawn_share": round(plane.share, 4),
        "drift": plain(drift, 5),
        **_angles(between, names, types, ""),
        **_angles(undrifted, names, types, "_without_drift"),
        "distance_from_start_when_all_is_closed": round(float(coordinate[-1].norm()), 5),
        "length_of_a_step": round(float(moved.norm(dim=1).mean()), 5),
    }
    reading = (
        "Brackets of one type should be steps there and back, two types different directions: then a closed string "
        "ends where it began, and where one stands says what is open. A model may also move on with every token, as a "
        "clock does: at the right this drift, the mean movement of all brackets, is taken out."
    )
    data = {"path": path.numpy(), "steady": steady.numpy(), "string": string, "movements": plane.points.numpy()}
    return Finding("trajectory", title, reading, numbers, {**data, "names": names, "axes": plane.axes, "types": types})


def _angles(between: Tensor, names: Sequence[str], types: int, suffix: str) -> dict[str, dict[str, float]]:
    """Cosines of the movements of an opener and its closer, and of the openers of two types."""
    same = {f"{names[k]}{names[k + types]}": round(float(between[k, k + types]), 4) for k in range(types)}
    apart = {f"{names[b]}{names[a]}": round(abs(float(between[a, b])), 4) for a in range(types) for b in range(a)}
    return {f"cosine_of_same_type{suffix}": same, f"abs_cosine_between_types{suffix}": apart}


def bracket_codes(subject: Subject) -> Outcome:
    """Principal components of the values, and of the queries and keys before they are turned."""
    title = "Brackets as values, queries and keys"
    layer = subject.attending
    if layer is None:
        return Missing("bracket-codes", title, f"{subject.kind} does not attend, so it has no queries, keys or values.")
    notes, names = subject.alone[layer], list(subject.task.token_names)
    values = principal_plane(notes["values"][:, :, 0].flatten(1))
    panels = [{"title": "values", "points": values.points.numpy(), "labels": names, "axes": values.axes}]
    numbers: dict[str, Any] = {"layer": layer, "values_share": round(values.share, 4)}
    if "queries" in notes:
        q, k = (notes[part][:, :, 0].flatten(1).double() for part in ("queries", "keys"))
        both = plane_of(torch.cat((q, k)))
        labels = [f"q {name}" for name in names] + [f"k {name}" for name in names]
        panels.append(
            {
                "title": "queries and keys, before they are turned",
                "points": both.points.numpy(),
                "labels": labels,
                "axes": both.axes,
            }
        )
        numbers |= {"queries_and_keys_share": round(both.share, 4), "query_key_cosines": plain(_between(q, k), 4)}
    reading = (
        "Values should lie apart by type and by open or closed. Before they are turned, queries of closers do not "
        "say which opener they want: the turning does."
    )
    if "queries" not in notes:
        reading += f" {subject.kind} compares places alone and has neither queries nor keys of what was seen."
    data = {"panels": panels, "types": len(subject.actions) // 2}
    return Finding("bracket-codes", title, reading, numbers, data)


def _between(q: Tensor, k: Tensor) -> Tensor:
    unit = [torch.nn.functional.normalize(vectors, dim=1) for vectors in (q, k)]
    return unit[0] @ unit[1].T


def last_open(tokens: Sequence[int], types: int) -> list[int]:
    """After each token, where the innermost bracket that is still open was opened; −1 where none is."""
    stack: list[int] = []
    found = []
    for at, token in enumerate(tokens):
        if token < types:
            stack.append(at)
        elif stack:
            stack.pop()
        found.append(stack[-1] if stack else -1)
    return found


def bracket_attention(subject: Subject) -> Outcome:
    """The attention map of one string, and what closing queries give to the last open bracket, by split and depth."""
    title = "Attention to the last open bracket"
    if subject.attending is None:
        return Missing("bracket-attention", title, f"{subject.kind} does not attend: it keeps no keys to look at.")
    settings = subject.task.settings
    deep = {"depth": max(DEEP, settings.depth), "length": max(settings.length, 4 * DEEP)}
    shares: dict[str, Any] = {}
    example: dict[str, Any] = {}
    for name, split in (("training", "iid"), ("deep", deep)):
        batch = subject.sample(split, SEQUENCES, f"brackets {name}")
        shares[name], shown = _closing_shares(subject, batch.tokens, batch.info["depth"])
        shares[name] |= {"depth": subject.task.split_settings(split).depth, "length": batch.tokens.shape[1] + 1}
        example = example or shown
    numbers = {"layer": subject.attending, "share_of_last_open": shares}
    reading = (
        "Rows ask, columns answer. Circles mark the bracket that is innermost open after each closer: a stack kept in "
        "the position puts the weight there. The right panel is the mean share by depth, dashed beyond training."
    )
    data = {**example, "by_depth": {k: v["by_depth"] for k, v in shares.items()}, "trained_depth": settings.depth}
    return Finding("bracket-attention", title, reading, numbers, data)


def _closing_shares(subject: Subject, tokens: Tensor, depth: Tensor) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of closing queries with something still open: the mean share of the last open bracket, and the same by depth."""
    assert subject.attending is not None
    attention = subject.model.observe(tokens)[subject.attending]["attention"].mean(dim=1)  # over heads
    types = len(subject.actions) // 2
    opener = torch.tensor([last_open(row, types) for row in tokens.tolist()])
    asked = (tokens >= types) & (opener >= 0)
    share = attention.gather(2, opener.clamp(min=0).unsqueeze(2)).squeeze(2)
    first = attention.argmax(dim=2) == opener
    by_depth = {
        int(level): round(float(share[asked & (depth == level)].mean()), 4) for level in depth[asked].unique().tolist()
    }
    summary = {
        "queries": int(asked.sum()),
        "mean": round(float(share[asked].mean()), 4),
        "attends_most_to_it": round(float(first[asked].double().mean()), 4),
        "by_depth": by_depth,
    }
    names = list(subject.task.token_names)
    length = min(32, tokens.shape[1])
    shown = {
        "attention": attention[0, :length, :length].numpy(),
        "brackets": [names[token] for token in tokens[0, :length].tolist()],
        "marked": [(at, int(opener[0, at])) for at in range(length) if bool(asked[0, at])],
    }
    return summary, shown


def continuations(subject: Subject) -> Outcome:
    """Val_θ(s): which brackets may follow a single symbol, by the sign of the logits, with their margins."""
    title = "What may follow a single bracket"
    names, types = list(subject.task.token_names), len(subject.actions) // 2
    logits = subject.alone.logits[:, 0, : len(names)].double()
    expected = torch.ones(len(names), len(names), dtype=torch.bool)
    expected[:, types:] = False
    expected[torch.arange(types), types + torch.arange(types)] = True
    valid_set = subject.task.settings.loss == "valid-set"
    numbers: dict[str, Any] = {
        "symbols": names,
        "loss": subject.task.settings.loss,
        "logits": plain(logits, 3),
        "val": (logits > 0).int().tolist(),
        "expected": expected.int().tolist(),
        "as_expected": bool(((logits > 0) == expected).all()),
        "smallest_margin": round(float(torch.where(expected, logits, -logits).min()), 3),
    }
    reading = "Logits after a single symbol: above 0 means that the bracket of the column may follow."
    if not valid_set:
        numbers["note"] = "Val presumes the valid-set loss; this run was trained on the next token."
        reading += " This presumes the valid-set loss; this run was trained on the next token, so 0 is no border."
    return Finding("continuations", title, reading, numbers, {"logits": logits.numpy(), "names": names})


def lengths_and_depths(subject: Subject) -> Outcome:
    """F1 over length and depth, beyond those of training."""
    title = "F1 by length and depth"
    settings = subject.task.settings
    lengths = [settings.length * factor for factor in (1, 2, 4)]
    depths = sorted({max(1, settings.depth // 2), settings.depth, 2 * settings.depth, max(DEEP, 3 * settings.depth)})
    grid = evaluate_grid(subject.model, subject.task, lengths, depths, n_sequences=GRID_SEQUENCES, seed=subject.seed)
    numbers: Mapping[str, Any] = {
        **grid.to_dict(),
        "trained": {"length": settings.length, "depth": settings.depth},
        "n_sequences": GRID_SEQUENCES,
    }
    reading = (
        "F1 of the valid continuations at every length and depth; training had the length and depth of the corner that "
        "is framed. What a player without a stack scores is in the table of splits."
    )
    data = {"lengths": lengths, "depths": depths, "matrix": grid.matrix(), "trained": (settings.length, settings.depth)}
    return Finding("lengths-depths", title, reading, numbers, data)
