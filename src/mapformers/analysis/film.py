"""A map being learned, frame by frame: movements of all tokens and one unseen walk at every snapshot of a run."""

from typing import Any

import torch

from mapformers.analysis.finding import Missing, Subject
from mapformers.analysis.projections import plane_of
from mapformers.analysis.walks import LinearMap
from mapformers.errors import require
from mapformers.model import Decoder
from mapformers.runs import snapshots

WALKS = 24  # on which the linear map of a frame is fitted


def film(subject: Subject) -> dict[str, Any] | Missing:
    """What the frames show: the start, every snapshot, and the model as it is; all in the basis of the last."""
    title = "The map being learned"
    if subject.layer is None:
        return Missing("film", title, subject.no_movement)
    kept = snapshots.found_in(subject.run.folder)
    require(bool(kept), f"{subject.run.folder} has no snapshots; train a run with --snapshots 12 to have a film of it.")
    final = subject.alone[subject.layer]["delta_in"][:, 0].flatten(1).double()
    basis = plane_of(final).basis
    model = subject.run.config.build_model()
    frames = [_frame(subject, model, 0, basis)]
    for step, path in kept:
        if step < subject.run.step:
            snapshots.fill(path, model)
            frames.append(_frame(subject, model, step, basis))
    frames.append(_frame(subject, subject.model, subject.run.step, basis))
    return {
        "frames": frames,
        "names": list(subject.task.token_names),
        "actions": subject.actions,
        "axes": plane_of(final).axes,
    }


def _frame(subject: Subject, model: Decoder, step: int, basis: torch.Tensor) -> dict[str, Any]:
    assert subject.layer is not None
    seen = model.observe(subject.vocabulary)[subject.layer]
    frame: dict[str, Any] = {
        "sequences": step * subject.run.config.train.batch_size,
        "points": (seen["delta_in"][:, 0].flatten(1).double() @ basis).numpy(),
    }
    if subject.task.name == "navigation" and "coordinate" in seen:
        batch = subject.sample("iid", WALKS + 1, "film")
        coordinate = model.observe(batch.tokens)[subject.layer]["coordinate"][:, 0::2].flatten(2)
        truth = batch.info["displacement"]
        fitted = LinearMap.fit(coordinate[1:], truth[1:])
        frame |= {"truth": truth[0].double().numpy(), "integrated": fitted(coordinate[0]).numpy()}
    return frame
