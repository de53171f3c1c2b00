"""Which movement does each token make? The learned map from a token to Δ_in (eq. lowrank_proj)."""

import torch
from torch import Tensor, nn

from mapformers.distributed import sum_over_processes
from mapformers.mixers.context import Context
from mapformers.mixers.layer import LayerShape


class Movement(nn.Module):
    """Δ_in = W_in x, ``size`` numbers per head and token."""

    drift: Tensor

    def __init__(self, shape: LayerShape, size: int):
        super().__init__()
        self.n_heads, self.size = shape.n_heads, size
        self.w_in = nn.Parameter(torch.randn(shape.n_heads * size, shape.d_model) / shape.d_model)
        self.register_buffer("drift", torch.zeros(shape.n_heads, size))
        self.driftless = False  # set by the trainer for its first steps, see hold_still

    def movement(self, x: Tensor) -> Tensor:
        """(B, L, d_model) -> Δ_in (B, L, H, size), in float32 or better; less the drift, 0 unless held still."""
        wide = torch.promote_types(x.dtype, torch.float32)
        delta_in = nn.functional.linear(x.to(wide), self.w_in.to(wide))
        return delta_in.unflatten(-1, (self.n_heads, self.size)) - self.drift

    def walked(self, x: Tensor, context: Context) -> Tensor:
        """The movement as the path is summed from it: held still while the trainer says so."""
        delta_in = self.movement(x)
        return self.hold_still(delta_in, context) if self.driftless and self.training else delta_in

    def hold_still(self, delta_in: Tensor, context: Context) -> Tensor:
        """Δ_in less its mean over the whole batch, which ``drift`` follows so that nothing jumps when this ends.

        The quickest use of a movement is as a clock: every token moves the same way, so recent tokens are near. A
        clock that comes first takes up a dimension which the map then lacks (docs/fidelity.md).
        """
        real = torch.ones_like(context.tokens) if context.padding_mask is None else context.padding_mask
        weight = real.to(delta_in.dtype)[:, :, None, None]
        moved, counted = sum_over_processes((delta_in * weight).sum(dim=(0, 1))), sum_over_processes(weight.sum())
        mean = moved / counted.clamp(min=1)
        with torch.no_grad():
            self.drift += 0.1 * mean
        return delta_in - mean
