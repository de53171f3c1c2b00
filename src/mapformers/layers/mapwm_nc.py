"""`mapwm-nc`: MapWM whose movements need not commute, on fused attention (beyond the paper).

# paper: "only the SSM formulation can still be used" (D.2); here: fused attention, by turning back along the path
"""

from typing import Any

import torch
from torch import Tensor

from mapformers.errors import require
from mapformers.modules.attention import Heads, Memory, logits_step_by_step, remember
from mapformers.modules.context import Context
from mapformers.modules.layer import register_layer
from mapformers.modules.mixer import Mixer
from mapformers.modules.product_integrator import ProductIntegrator, ProductOptions


class MapWMNC(Mixer):
    """q_iᵀ W_i … W_{j+1} k_j = ⟨P_iᵀ q_i, P_jᵀ k_j⟩, because W_i … W_{j+1} = P_i P_jᵀ for orthogonal P_t = W_t … W_1.

    So queries and keys are turned by the *transposed* product, and any fused attention does the rest. With block 2 this
    is `MapWM` with Δ negated: there a key is carried forward to the query, here the query back to the key.
    """

    Options = ProductOptions
    reads_both_ways = True
    options: ProductOptions

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.heads = Heads(self.shape, self.options)
        self.path = ProductIntegrator(self.shape, self.options)

    def mix(self, x: Tensor, state: Memory | None, context: Context) -> tuple[Tensor, Memory]:
        q, k, v = self.heads.split(x, context)
        path, reached = self.path(x, None if state is None else state.coordinate, context)
        wide = reached.dtype
        q, k = (t.to(v.dtype) for t in self.path.rotate(path, q.to(wide), k.to(wide), back=True))
        state = Memory(**remember(state, keys=k, values=v), coordinate=reached)
        return self.heads.merge(self.heads.attend(q, state.keys, state.values, context)), state

    def reference(self, x: Tensor, context: Context) -> Tensor:
        """The definition, pair by pair: q_iᵀ W_i … W_{j+1} k_j with explicit matrices and matrix exponentials."""
        require(context.causal, "The reference goes back step by step: it is that of the causal form.")
        q, k, v = self.heads.split(x)
        rotation = self.path.step_matrices(x, context)  # (B, L, H, n_b, n, n)
        n, n_blocks = self.path.n, self.path.n_blocks
        q, k = (t.unflatten(-1, (n, n_blocks)).transpose(-1, -2) for t in (q, k))  # (B, H, L, n_b, n)

        def step_back(t: int, vector: Tensor) -> Tensor:  # W_tᵀ
            return torch.einsum("bhmij,bhmi->bhmj", rotation[:, t], vector)

        logits = logits_step_by_step(q, k, step_back) / self.heads.head_dim**0.5
        return self.heads.merge(self.heads.weights(logits, context) @ v)


register_layer(
    "mapwm-nc",
    MapWMNC,
    variants=(
        {},
        {"block": 2, "self_key": False},
        {"block": 8, "rank": 2, "attn_temperature": 0.5},
        {"length_scaling": "log", "typical_length": 6, "init": "ordinary"},
    ),
    benchmarked=({}, {"block": 8}),
)
