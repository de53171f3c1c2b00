"""Read the map out of a trained model: how each token moves, and where a walk leads (paper, C.1)."""

import torch
from torch import Tensor

from mapformers.errors import require
from mapformers.model import Decoder


def token_movements(model: Decoder, layer: int = 0, head: int = 0) -> Tensor:
    """Δ_in of every token of the vocabulary read on its own: (vocab, r)."""
    tokens = torch.arange(model.config.vocab_size).unsqueeze(1)
    return _noted(model, tokens, "delta_in", layer)[:, 0, head]


def walked_path(model: Decoder, tokens: Tensor, layer: int = 0, head: int = 0) -> Tensor:
    """The coordinate after each token of one sequence (L,): (L, r), float64."""
    return _noted(model, tokens.unsqueeze(0), "coordinate", layer)[0, :, head]


def align(coordinate: Tensor, truth: Tensor) -> tuple[Tensor, float]:
    """The linear image of ``coordinate`` (T, r) nearest to ``truth`` (T, n), and the share of variance explained.

    A map is learned up to a change of basis, so this is how the two can be laid side by side.
    """
    truth = truth.to(torch.float64)
    ones = torch.ones(len(coordinate), 1, dtype=torch.float64)
    design = torch.cat((coordinate.to(torch.float64), ones), dim=1)
    fitted = design @ torch.linalg.lstsq(design, truth).solution
    residual = (truth - fitted).square().sum()
    total = (truth - truth.mean(dim=0)).square().sum()
    return fitted, float(1 - residual / total)


def _noted(model: Decoder, tokens: Tensor, name: str, layer: int) -> Tensor:
    noted = model.observe(tokens)[layer]
    require(
        name in noted, f"Layer {layer} ({model.config.layers[layer].name}) has no {name}: it does not integrate a path."
    )
    return noted[name]
