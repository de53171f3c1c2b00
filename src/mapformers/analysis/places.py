"""Units and attention over places: rate maps as physiologists draw them, and where a query looks on a revisit."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from mapformers.analysis.finding import Finding, Missing, Outcome, Subject

WALKS = 192  # over which rate maps are averaged
UNITS = 8
FARTHEST = 12  # cells, in the figure of attention by distance


def rate_maps(subject: Subject) -> Outcome:
    """The mean of single position units over the cells of the grid: cos θ of rotation blocks, from fast to slow."""
    title = "Rate maps of single units"
    if subject.layer is None or "theta" not in subject.alone[subject.layer]:
        why = "has no angles that follow the tokens" if subject.layer is None else "turns by matrices and has no angles"
        return Missing("rate-maps", title, f"{subject.kind} {why}.")
    batch = subject.sample("iid", WALKS, "rate maps")
    theta = subject.model.observe(batch.tokens)[subject.layer]["theta"][:, :, 0::2].transpose(1, 2).flatten(2)
    speed = _speeds(subject)
    chosen = speed.argsort(descending=True)[torch.linspace(0, len(speed) - 1, UNITS).round().long()]
    units = theta[..., chosen].cos()  # (B, T, units)
    places = batch.info["displacement"]
    maps, tuned = zip(*(_rate_map(units[..., index], places) for index in range(len(chosen))))
    numbers: dict[str, Any] = {
        "layer": subject.layer,
        "blocks": chosen.tolist(),
        "cells_per_turn": [round(float(6.283185307 / max(float(s), 1e-9)), 3) for s in speed[chosen]],
        "variance_explained_by_place": [round(share, 4) for share in tuned],
    }
    data = {
        "maps": maps,
        "names": [f"one turn in {_short(length)} cells" for length in numbers["cells_per_turn"]],
        "tuned": tuned,
    }
    reading = (
        "The mean of a unit, cos θ of one rotation block, over where the walk is, counted from its start: stripes of "
        "different widths are what periodic cells of different scales look like; noise would mean no place code."
    )
    if subject.task.settings.dims > 2:
        reading += " The first two axes are drawn, averaged over the others."
    return Finding("rate-maps", title, reading, numbers, data)


def revisits(subject: Subject) -> Outcome:
    """Which places a query at an action attends to when the walk comes back to one."""
    title = "Attention when a walk comes back"
    if subject.attending is None:
        return Missing("revisits", title, f"{subject.kind} does not attend: it keeps no keys to look at.")
    batch = subject.sample("iid", 24, "revisits")
    attention = subject.model.observe(batch.tokens)[subject.attending]["attention"].mean(dim=1)  # over heads
    places = batch.info["positions"].double()  # (B, T, n)
    queries = attention[:, 0::2]  # at actions: (B, T, L)
    on_observations = queries[:, :, 1::2]  # (B, T, T − 1)
    apart = (places[:, :, None] - places[:, None, :-1]).abs().sum(-1)  # cells between query and key
    steps = torch.arange(places.shape[1])
    earlier = steps[:, None] > steps[None, :-1]
    scored = batch.score_mask[:, 0::2]
    here = (apart == 0) & earlier
    share_here = (on_observations * here).sum(-1)[scored]
    share_there = on_observations.sum(-1)[scored]
    by_distance = [
        float(((on_observations * ((apart == d) & earlier)).sum(-1))[scored].mean()) for d in range(FARTHEST + 1)
    ]
    numbers: dict[str, Any] = {
        "layer": subject.attending,
        "revisits": int(scored.sum()),
        "share_on_what_was_seen_here": round(float(share_here.mean()), 4),
        "share_on_observations": round(float(share_there.mean()), 4),
        "share_by_distance_in_cells": [round(share, 5) for share in by_distance],
    }
    row, step = _late_revisit(scored, batch.info["first_visit"])
    data = {
        "walk": places[row, : step + 1].numpy(),
        "weights": on_observations[row, step, :step].numpy(),
        "by_distance": by_distance,
        "share": float(share_here.mean()),
    }
    reading = (
        "Left: the walk so far in grey, the query at the cross, and a circle on every place by how much attention its "
        "observations get. Right: the mean share by distance; a map puts nearly all of it at 0 cells."
    )
    if subject.task.settings.dims > 2:
        reading += " The first two axes of the grid are drawn."
    return Finding("revisits", title, reading, numbers, data)


def _late_revisit(scored: Tensor, first_visit: Tensor) -> tuple[int, int]:
    """The scored revisit whose first visit is longest ago."""
    ago = (torch.arange(scored.shape[1]) - first_visit).masked_fill(~scored, -1)
    return divmod(int(ago.argmax()), scored.shape[1])


def _short(length: float) -> str:
    return f"{length:,.0f}" if length >= 100 else f"{length:.3g}"


def _speeds(subject: Subject) -> Tensor:
    """The largest angle by which any action turns a block, (H·n_b,): 2π over it are the cells of one turn."""
    assert subject.layer is not None
    notes = subject.alone[subject.layer]
    return notes["theta"][subject.actions, :, 0].abs().amax(dim=0).flatten()


def _rate_map(unit: Tensor, places: Tensor) -> tuple[np.ndarray, float]:
    """The mean of a unit (B, T) in every cell of the first two axes, NaN where nobody was, and the share of its
    variance that the place (all axes) explains."""
    dims = min(2, places.shape[-1])
    flat, values = places.flatten(0, 1).numpy(), unit.flatten().double().numpy()
    low, high = flat.min(axis=0)[:dims], flat.max(axis=0)[:dims]
    sums, counts = np.zeros(high - low + 1), np.zeros(high - low + 1)
    index = tuple((flat[:, :dims] - low).T)
    np.add.at(sums, index, values)
    np.add.at(counts, index, 1)
    with np.errstate(invalid="ignore"):
        means = np.where(counts > 0, sums / counts, np.nan)
    _, cell = np.unique(flat, axis=0, return_inverse=True)
    cell = cell.reshape(-1)
    by_cell = np.bincount(cell, values) / np.bincount(cell)
    residual, total = float(((values - by_cell[cell]) ** 2).mean()), float(values.var())
    return means, 1 - residual / total if total > 0 else 0.0
