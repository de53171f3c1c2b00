"""Where a model believes it is: unseen walks, true and path-integrated, and how far apart they come (paper, C.1)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mapformers.analysis.finding import Finding, Missing, Outcome, Subject, plain

FITTED, HELD_OUT = 32, 32  # walks that the linear map is fitted on, and others that it is judged on
LONGER = 4  # times the steps of training, for the error by length


@dataclass(frozen=True)
class LinearMap:
    """coordinate (…, r) -> cells (…, n). Both are counted from the start of the walk, so there is no constant."""

    matrix: Tensor

    @classmethod
    def fit(cls, coordinate: Tensor, truth: Tensor) -> "LinearMap":
        """By least squares over all steps of all walks, (B, T, r) and (B, T, n)."""
        return cls(torch.linalg.lstsq(coordinate.flatten(0, 1), truth.flatten(0, 1).double(), driver="gelsd").solution)

    def __call__(self, coordinate: Tensor) -> Tensor:
        return coordinate @ self.matrix

    def explained(self, coordinate: Tensor, truth: Tensor) -> float:
        """R²: the share of the variance of ``truth`` that the image of ``coordinate`` has."""
        truth = truth.double()
        residual = (truth - self(coordinate)).square().sum()
        return float(1 - residual / (truth - truth.mean(dim=(0, 1))).square().sum())


def walks(subject: Subject) -> Outcome:
    """A linear map fitted on some walks; R² and error, by length, on others."""
    title = "Unseen walks: where they really go, and where the model believes it is"
    if subject.layer is None:
        return Missing("walks", title, subject.no_movement)
    if "coordinate" not in subject.alone[subject.layer]:
        return Missing(
            "walks", title, f"{subject.kind} moves by matrices: its position is no sum that a line could fit."
        )
    steps, dims = subject.task.settings.steps, subject.task.settings.dims
    batch = subject.sample("iid", FITTED + HELD_OUT, "walks")
    coordinate, truth = _coordinates(subject, batch.tokens), batch.info["displacement"]
    fitted = LinearMap.fit(coordinate[:FITTED], truth[:FITTED])
    explained = fitted.explained(coordinate[FITTED:], truth[FITTED:])
    long = subject.sample({"steps": LONGER * steps}, HELD_OUT, "long walks")
    errors = (fitted(_coordinates(subject, long.tokens)) - long.info["displacement"]).norm(dim=-1)  # (B, T)
    lengths = sorted({1, *(max(1, steps * i // 8) for i in range(1, 8 * LONGER + 1))})
    by_length = [float(errors[:, length - 1].mean()) for length in lengths]
    numbers = {
        "layer": subject.layer,
        "fitted_on_walks": FITTED,
        "held_out_walks": HELD_OUT,
        "r2_held_out": round(explained, 6),
        "r2_fitted": round(fitted.explained(coordinate[:FITTED], truth[:FITTED]), 6),
        "steps_of_training": steps,
        "error_in_cells": {"steps": lengths, "mean": plain(torch.tensor(by_length), 4)},
        "linear_map": plain(fitted.matrix),
    }
    shown = torch.cat((torch.zeros(1, dims, dtype=torch.float64), truth[FITTED].double()))
    believed = torch.cat((torch.zeros(1, dims, dtype=torch.float64), fitted(coordinate[FITTED])))
    data = {
        "truth": shown.numpy(),
        "integrated": believed.numpy(),
        "explained": explained,
        "lengths": lengths,
        "errors": by_length,
        "trained_steps": steps,
    }
    reading = (
        "A walk that neither training nor the fit has seen, as it really goes and as the model's coordinate has it "
        "after one linear map for all walks; the error by length says when the two part."
    )
    return Finding("walks", title, reading, numbers, data)


def _coordinates(subject: Subject, tokens: Tensor) -> Tensor:
    """Where the model is after each action, all heads side by side: (B, T, H·r)."""
    assert subject.layer is not None
    return subject.model.observe(tokens)[subject.layer]["coordinate"][:, 0::2].flatten(2)
