"""`mapwm-nc`: working memory on a map whose movements do not commute.

# paper: "only the SSM formulation can still be used" (D.2); here: fused attention, by turning back along the path
"""

import torch
from torch import Tensor, nn

from mapformers.mixers.attention import Heads, Memory, attend, masked_softmax, remember
from mapformers.mixers.context import Context
from mapformers.mixers.layer import Block, LayerShape, register_layer
from mapformers.mixers.rotation_path import RotationOptions, RotationPath


class MapWMNC(nn.Module):
    """q_iᵀ W_i … W_{j+1} k_j = ⟨P_iᵀ q_i, P_jᵀ k_j⟩, because W_i … W_{j+1} = P_i P_jᵀ for orthogonal P_t = W_t … W_1.

    So queries and keys are turned by the *transposed* product, and any fused attention does the rest. With block 2 this
    is :class:`MapWM` with Δ negated: there a key is carried forward to the query, here the query back to the key.
    """

    def __init__(self, shape: LayerShape, options: RotationOptions):
        super().__init__()
        self.options = options
        self.heads = Heads(shape)
        self.path = RotationPath(shape, options)

    def forward(self, x: Tensor, state: Memory | None, context: Context) -> tuple[Tensor, Memory]:
        q, k, v = self.heads.split(x)
        path, reached = self.path(x, None if state is None else state.coordinate, context)
        wide = reached.dtype
        q, k = (t.to(v.dtype) for t in self.path.turn(path, q.to(wide), k.to(wide), back=True))
        state = Memory(**remember(state, keys=k, values=v), coordinate=reached)
        return self.heads.merge(attend(q, state.keys, state.values, context, self.options)), state

    def reference(self, x: Tensor, context: Context) -> Tensor:
        """The definition, pair by pair: q_iᵀ W_i … W_{j+1} k_j with explicit matrices and matrix exponentials."""
        q, k, v = self.heads.split(x)
        rotation = self._rotations(x, context)  # (B, L, H, n_b, n, n)
        n, n_blocks = self.path.n, self.path.n_blocks
        q, k = (t.unflatten(-1, (n, n_blocks)).transpose(-1, -2) for t in (q, k))  # (B, H, L, n_b, n)
        batch, heads, length = q.shape[:3]
        rows = []
        for i in range(length):
            logits: list[Tensor] = []
            walked = q[:, :, i]  # W_{j+1}ᵀ … W_iᵀ q_i, one more factor for each step back
            for j in range(i, -1, -1):
                logits.insert(0, (walked * k[:, :, j]).sum(dim=(-1, -2)))
                walked = torch.einsum("bhnij,bhni->bhnj", rotation[:, j], walked)
            blank = q.new_zeros(batch, heads, length - i - 1)
            rows.append(torch.cat((torch.stack(logits, dim=-1), blank), dim=-1))
        scores = torch.stack(rows, dim=2) / self.heads.head_dim**0.5 / self.options.attn_temperature
        return self.heads.merge(masked_softmax(scores, context, self.options) @ v)

    def _rotations(self, x: Tensor, context: Context) -> Tensor:
        theta = self.path.angles(x, context)  # (B, L, H, K, n_b)
        n = self.path.n
        i, j = torch.triu_indices(n, n, offset=1)
        generators = x.new_zeros(self.path.k, n, n)
        generators[torch.arange(self.path.k), j, i], generators[torch.arange(self.path.k), i, j] = 1.0, -1.0
        return torch.linalg.matrix_exp(torch.einsum("blhkm,kij->blhmij", theta.to(x.dtype), generators))


register_layer(
    "mapwm-nc",
    summary="MapWM whose movements need not commute, on fused attention (beyond the paper).",
    options=RotationOptions,
    build=lambda shape, options: Block(shape, MapWMNC(shape, options)),
    variants=({}, {"block": 2, "self_key": False}, {"block": 8, "rank": 2, "attn_temperature": 0.5}),
    benchmarked=({}, {"block": 8}),
)
