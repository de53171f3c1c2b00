"""Path integration by rotations that do not commute: products of SO(n) matrices along the sequence (D.2)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mapformers import lie
from mapformers.errors import require
from mapformers.lie import orthogonal, path_products
from mapformers.mixers.attention import AttentionOptions
from mapformers.mixers.context import Context
from mapformers.mixers.layer import LayerShape
from mapformers.mixers.movement import Movement

BLOCKS = (2, 3, 4, 6, 8)


@dataclass(frozen=True)
class RotationOptions(AttentionOptions):
    """Options of every mixer that integrates a path in SO(n)."""

    block: int = 4
    """n of SO(n): a head is cut into blocks of this size."""
    rank: int | None = None
    """Dimensions of the inner movement Δ_in (None: no bottleneck, one number per generator and block)."""
    omega_max: float = 2 * math.pi
    """Fastest angular velocity at the start."""
    base: float = 64.0
    """Steps after which the slowest block closes its circle at the start."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.block in BLOCKS, f"block must be one of {', '.join(map(str, BLOCKS))}, not {self.block}.")
        require(self.rank is None or self.rank >= 1, f"rank must be at least 1, not {self.rank}.")
        require(self.omega_max > 0, f"omega_max must be above 0, not {self.omega_max}.")
        slowest = 2 * math.pi / self.omega_max
        require(self.base >= slowest, f"base must be at least 2π/omega_max = {slowest:.4g}, not {self.base}.")


class RotationPath(Movement):
    """x_t → Δ_t → θ_t = ω ⊙ Δ_t → W_t = exp(Σ_k θ_{t,k} S_k) → P_t = W_t … W_1.

    The skew generators S_k are the canonical ones and not learned; ω (H, K, n_b) is. Places are (n, L, M) and rotations
    (n, n, L, M), entries first, with M = B·H·n_b (lie/orthogonal.py). A head's component c of block b is its unit
    c·n_b + b, so block 2 is the half-split layout of the commuting models.
    """

    no_decay = {"omega"}

    def __init__(self, shape: LayerShape, options: RotationOptions):
        n, k = options.block, orthogonal.n_generators(options.block)
        require(
            shape.head_dim % n == 0,
            f"A head of {shape.head_dim} cannot be cut into blocks of {n}; change block, d_model or n_heads.",
        )
        n_blocks = shape.head_dim // n
        super().__init__(shape, k * n_blocks if options.rank is None else options.rank)
        self.n, self.k, self.n_blocks = n, k, n_blocks
        omega = lie.ladder(n_blocks, options.omega_max, options.base).float()
        self.omega = nn.Parameter(omega.repeat(shape.n_heads, k, 1))  # (H, K, n_b)
        self.w_out = None
        if options.rank is not None:
            # each inner dimension starts with generators of its own, in all blocks
            mine = torch.eye(options.rank)[torch.arange(k) % options.rank]  # (K, r)
            self.w_out = nn.Parameter(mine.T[:, :, None].repeat(shape.n_heads, 1, 1, n_blocks))  # (H, r, K, n_b)

    def angles(self, x: Tensor, context: Context) -> Tensor:
        """θ of (B, L, H, K, n_b); 0 where there is padding."""
        delta_in = self.walked(x, context)
        if self.w_out is None:
            delta = delta_in.unflatten(-1, (self.k, self.n_blocks))
        else:
            delta = torch.einsum("blhr,hrkn->blhkn", delta_in, self.w_out.to(delta_in.dtype))
        theta = delta * self.omega.to(delta.dtype)
        if context.padding_mask is not None:
            theta = theta.masked_fill(~context.padding_mask[:, :, None, None, None], 0.0)
        context.note(delta_in=delta_in)
        return theta

    def forward(self, x: Tensor, start: Tensor | None, context: Context) -> tuple[Tensor, Tensor]:
        """(B, L, d_model) -> P (n, n, L, M), and the one where the chunk ends as (B, H, n_b, n, n)."""
        with torch.autocast(x.device.type, enabled=False):
            theta = self.angles(x, context).permute(3, 1, 0, 2, 4)  # (K, L, B, H, n_b)
            sizes = theta.shape[2:]
            products = path_products.rotation_products(theta.flatten(2).contiguous(), self.n)
            before = None if start is None else start.permute(3, 4, 0, 1, 2).flatten(2)  # (n, n, M)
            products = self._from_start(products, before, sizes, context)
            reached = products[:, :, -1].unflatten(2, sizes).permute(2, 3, 4, 0, 1)
            return products, reached

    def _from_start(self, products: Tensor, start: Tensor | None, sizes: torch.Size, context: Context) -> Tensor:
        """P counted from where the sequence stood before, and from the identity again after every reset."""
        continued = products if start is None else orthogonal.multiply(products, start.unsqueeze(2))
        if context.reset is None:
            return continued
        # The map in force at t began at the latest reset r up to t: P_t P_{r−1}ᵀ; −1 where there was none yet.
        times = torch.arange(products.shape[2], device=products.device)
        began = torch.where(context.reset, times, -1).cummax(dim=1).values  # (B, L)
        one = orthogonal.identity(products).expand_as(products[:, :, :1])
        shifted = torch.cat((one, products[:, :, :-1]), dim=2)
        per_matrix = began.T[:, :, None].expand(-1, -1, sizes[1] * sizes[2]).flatten(1)  # (L, M)
        index = per_matrix.clamp(min=0).expand_as(products)
        fresh = orthogonal.multiply(products, orthogonal.transpose(shifted.gather(2, index)))
        return torch.where(per_matrix >= 0, fresh, continued)

    def turn(self, products: Tensor, x: Tensor) -> Tensor:
        """P_t x_t of vectors (B or 1, H, L or 1, D), -> (B, H, L, D)."""
        parts = x.unflatten(-1, (self.n, self.n_blocks)).permute(3, 2, 0, 1, 4)  # (n, L, B, H, n_b)
        heads = x.shape[1]
        spread = products.unflatten(3, (-1, heads, self.n_blocks))  # (n, n, L, B, H, n_b)
        turned = spread[:, 0] * parts[0]
        for j in range(1, self.n):
            turned = torch.addcmul(turned, spread[:, j], parts[j].expand_as(turned[0]))
        return turned.permute(2, 3, 1, 0, 4).flatten(-2)
