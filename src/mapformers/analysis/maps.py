"""Read the map of a trained model: how each token moves on it, and where a walk leads (paper, C.1)."""

import torch
from torch import Tensor

from mapformers.errors import require
from mapformers.model import Decoder


def token_movements(model: Decoder, layer: int = 0, head: int = 0) -> Tensor:
    """The movement Δ_in of every token of the vocabulary, each read alone: (vocab, r)."""
    tokens = torch.arange(model.config.vocab_size).unsqueeze(1)
    return _observed(model, tokens, "delta_in", layer)[:, 0, head]


def walked_path(model: Decoder, tokens: Tensor, layer: int = 0, head: int = 0) -> Tensor:
    """The coordinate after each token of one sequence (L,): (L, r), float64."""
    return _observed(model, tokens.unsqueeze(0), "coordinate", layer)[0, :, head]


def align(coordinate: Tensor, truth: Tensor) -> tuple[Tensor, float]:
    """The affine image of ``coordinate`` (T, r) nearest to ``truth`` (T, n), and the fraction of variance explained.

    A model learns its map up to a change of basis, so the two must be aligned before they can be compared.
    """
    truth = truth.to(torch.float64)
    ones = torch.ones(len(coordinate), 1, dtype=torch.float64)
    design = torch.cat((coordinate.to(torch.float64), ones), dim=1)
    fitted = design @ torch.linalg.lstsq(design, truth).solution
    residual = (truth - fitted).square().sum()
    total = (truth - truth.mean(dim=0)).square().sum()
    return fitted, float(1 - residual / total)


def _observed(model: Decoder, tokens: Tensor, name: str, layer: int) -> Tensor:
    observed = model.observe(tokens)[layer]
    kind = model.config.layers[layer].name
    by_products = "delta_in" in observed or "place" in observed
    why = "its path is a product of matrices, not a sum" if by_products else "it does not integrate a path"
    require(name in observed, f"Layer {layer} ({kind}) has no {name}: {why}.")
    return observed[name]
