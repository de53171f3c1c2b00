"""The picture of a learned map: what each token does, and an unseen walk, true beside path-integrated."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mapformers.reports.style import figure_file
from mapformers.reports.token_figures import arrows
from mapformers.reports.walk_figures import two_walks


@dataclass(frozen=True)
class MapPicture:
    """All the figure needs: plain arrays, no model."""

    movements: np.ndarray  # (vocab, 2) Δ_in of every token
    token_names: Sequence[str]
    action_ids: Sequence[int]
    truth: np.ndarray  # (T + 1, 2) where the walk really is: at its start, then after each step
    integrated: np.ndarray  # (T + 1, 2) where the model believes it is, in the same basis
    explained: float  # share of the variance of truth that the alignment explains


def draw_map(picture: MapPicture, path: Path) -> None:
    """Write the three panels to ``path`` (PNG)."""
    fits = f"(aligned by a linear map, R² = {picture.explained:.4f})"
    with figure_file(path, 13, 4.6) as figure:
        left, *walks = figure.subplots(1, 3)
        arrows(left, picture.movements, picture.token_names, picture.action_ids)
        left.set(xlabel="first inner dimension", ylabel="second inner dimension")
        left.set_title(r"What each token does: its learned movement $\Delta_{in}$" + "\n")
        two_walks(walks, picture.truth, picture.integrated)
        walks[0].set_title("An unseen walk: where it really goes\n")
        walks[1].set_title(f"The same walk, path-integrated by the model\n{fits}")
