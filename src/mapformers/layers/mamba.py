"""`mamba`: a selective state-space model with a diagonal, decaying state and no map (Gu & Dao 2023; A.6)."""

from typing import Any

import torch
from torch import Tensor, nn

from mapformers.modules.layer import MixerOnly, register_layer
from mapformers.modules.ssm import SteppedSSM


class Mamba(SteppedSSM):
    """Ā_t = exp(−|Δ_t| exp(A_log)), diagonal and real: it can forget, and cannot turn back (A.3).

    B̄_t = Δ_t B_t, as in the authors' code.  # paper: zero-order hold, (ΔA)⁻¹(exp(ΔA) − 1)ΔB; here: its first order
    """

    no_decay = {"A_log", "D"}

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        start = torch.arange(1, self.options.d_state + 1, dtype=torch.float32).log()
        self.A_log = nn.Parameter(start.repeat(self.channels, 1))  # (E, N)

    def rates(self) -> tuple[Tensor, None]:
        wide = torch.promote_types(self.A_log.dtype, torch.float32)
        return self.A_log.to(wide).exp().T.contiguous(), None


register_layer(
    "mamba",
    Mamba,
    arrangement=MixerOnly,
    variants=({}, {"conv": False, "d_state": 5}, {"delta": "signed", "input_gate": "none", "conv_size": 2}),
)
