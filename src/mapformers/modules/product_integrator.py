"""Path integration by rotations that do not commute: products of SO(n) matrices along the sequence (D.2)."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from mapformers import lie
from mapformers.errors import require
from mapformers.lie.generators import n_generators, skew
from mapformers.modules.attention import AttentionOptions
from mapformers.modules.context import Context
from mapformers.modules.mixer import LayerShape
from mapformers.modules.movement import Movement, VelocityOptions, require_rank, without_autocast
from mapformers.ops import rotation_products
from mapformers.ops.operator import in_forward_mode, is_plain_step
from mapformers.ops.rotation_products import time_blocks
from mapformers.ops.rotation_products.single import single_rotation

Block = Literal[2, 3, 4, 6, 8]


@dataclass(frozen=True)
class ProductOptions(VelocityOptions, AttentionOptions):
    """Options of every attention layer that integrates a path in SO(n)."""

    block: Block = 4
    """n of SO(n): a head is cut into blocks of this size."""
    rank: int | None = None
    """Dimensions of the inner movement Δ_in (None: no bottleneck, one number per generator and block)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_rank(self.rank)


class Rotations(NamedTuple):
    """A path from the origin: the angles of its steps and the rotations P they make (ops/rotation_products)."""

    theta: Tensor  # (K, G, S, T, B)
    p: Tensor
    length: int


class ProductIntegrator(Movement):
    """x_t → Δ_t → θ_t = ω ⊙ Δ_t → W_t = exp(Σ_k θ_{t,k} S_k) → P_t = W_t … W_1.

    The skew generators S_k are the canonical ones and not learned; ω (H, K, n_b) is. A head's component c of block b is
    its unit c·n_b + b, so block 2 is the half-split layout of the commuting models.
    """

    no_decay = {"omega"}

    def __init__(self, shape: LayerShape, options: ProductOptions):
        n, k = options.block, n_generators(options.block)
        require(
            shape.head_dim % n == 0,
            f"A head of {shape.head_dim} cannot be cut into blocks of {n}; change block, d_model or n_heads.",
        )
        n_blocks = shape.head_dim // n
        super().__init__(shape, k * n_blocks if options.rank is None else options.rank)
        self.n, self.k, self.n_blocks = n, k, n_blocks
        omega = lie.ladder(n_blocks, options.omega_max, options.base).float()
        self.omega = nn.Parameter(omega.repeat(shape.n_heads, k, 1), requires_grad=options.learn_omega)  # (H, K, n_b)
        self.w_out = None
        if options.rank is not None:
            require(
                options.rank <= k * n_blocks,
                f"rank {options.rank} needs as many rotations; generators × blocks of a head are {k * n_blocks}.",
            )
            # Each inner dimension starts with generators of its own, in all blocks, or in some if there are too few.
            dealt = torch.arange(n_blocks) * (k if options.rank > k else 0)
            mine = torch.eye(options.rank)[(torch.arange(k).unsqueeze(1) + dealt) % options.rank]  # (K, n_b, r)
            self.w_out = nn.Parameter(mine.permute(2, 0, 1).repeat(shape.n_heads, 1, 1, 1))  # (H, r, K, n_b)

    def angles(self, x: Tensor, context: Context) -> Tensor:
        """θ of (B, L, H, K, n_b); 0 where there is padding."""
        delta_in = self.integrated_movement(x, context)
        delta = self.durations(delta_in)
        theta = delta * self.omega.to(delta.dtype)
        if context.padding_mask is not None:
            theta = theta.masked_fill(~context.padding_mask[:, :, None, None, None], 0.0)
        context.note(delta_in=delta_in, delta_out=delta.flatten(-2))
        return theta

    def durations(self, delta_in: Tensor) -> Tensor:
        """Δ = W_out Δ_in: how long every generator of every block turns at each token, (B, L, H, K, n_b)."""
        if self.w_out is None:
            return delta_in.unflatten(-1, (self.k, self.n_blocks))
        return torch.einsum("blhr,hrkn->blhkn", delta_in, self.w_out.to(delta_in.dtype))

    def _angles_along(self, x: Tensor, context: Context) -> Tensor:
        """The same as (K, G, S, T, B), G = H·n_b.

        Mostly ω can go into W_in, and one product of matrices writes the angles where they are wanted.
        """
        changed = self.is_adjusted or context.padding_mask is not None or context.movement_scale is not None
        if self.w_out is not None or changed:
            theta = time_blocks.cut(self.angles(x, context)).permute(4, 3, 5, 0, 1, 2)  # (K, H, n_b, S, T, B)
            return theta.flatten(1, 2).contiguous()
        if context.recording is not None:
            delta_in = self.movement(x)
            context.note(delta_in=delta_in, delta_out=delta_in)
        wide = torch.promote_types(x.dtype, torch.float32)
        omega = self.omega.to(wide).transpose(0, 1).unsqueeze(-1)  # (K, H, n_b, 1)
        w_in, mean = (t.to(wide).reshape(self.n_heads, self.k, self.n_blocks, -1) for t in (self.w_in, self.mean))
        rate = (w_in.transpose(0, 1) * omega).flatten(0, 2)  # (K·G, d_model)
        mean_angle = (mean.transpose(0, 1) * omega).flatten(0, 2)  # (K·G, 1)
        tokens = time_blocks.cut(x.to(wide))
        theta = torch.addmm(mean_angle, rate, tokens.reshape(-1, x.shape[-1]).T, beta=-1)
        return theta.reshape(self.k, -1, *tokens.shape[:3])

    def forward(self, x: Tensor, start: Tensor | None, context: Context) -> tuple[Rotations | Tensor, Tensor]:
        """(B, L, d_model) -> the path for `rotate`, and its P where the chunk ends as (B, H, n_b, n, n)."""
        with without_autocast(x.device):
            if is_plain_step(x.shape[1]):
                return self._one_step(x, start, context)
            theta = self._angles_along(x, context)
            length = x.shape[1]
            p = rotation_products.accumulate(theta.detach(), self.n)
            if start is None and context.reset is None and not in_forward_mode():
                if context.recording is not None:
                    context.note(rotation=self._products(theta, p, length))
                last = rotation_products.rotation_at(theta, p, self.n, length - 1)  # (n, n, G, B)
                return Rotations(theta, p, length), last.unflatten(2, (-1, self.n_blocks)).permute(4, 2, 3, 0, 1)
            products = self._from_start(self._products(theta, p, length), start, context)
            context.note(rotation=products)
            return products, products[:, -1].clone()

    def _products(self, theta: Tensor, p: Tensor, length: int) -> Tensor:
        """P_t from the beginning of the chunk on as matrices (B, L, H, n_b, n, n)."""
        products = rotation_products.all_rotations(theta, p, self.n).unflatten(2, (-1, self.n_blocks))
        return time_blocks.joined(products.permute(4, 5, 6, 2, 3, 0, 1), length)

    def _one_step(self, x: Tensor, start: Tensor | None, context: Context) -> tuple[Tensor, Tensor]:
        """The same for a single token: its rotation times that of the past."""
        turn = single_rotation(self.angles(x, context).transpose(-1, -2), self.n)  # (B, 1, H, n_b, n, n)
        if start is None:
            context.note(rotation=turn)
            return turn, turn[:, 0]
        start = start.to(turn.dtype)
        if context.reset is not None:
            one = torch.eye(self.n, dtype=turn.dtype, device=turn.device)
            start = torch.where(context.reset[:, :, None, None, None], one, start)
        reached = turn[:, 0] @ start
        context.note(rotation=reached.unsqueeze(1))
        return reached.unsqueeze(1), reached

    def _from_start(self, products: Tensor, start: Tensor | None, context: Context) -> Tensor:
        """P counted from where the sequence stood before, and from the identity again after every reset."""
        continued = products if start is None else products @ start.unsqueeze(1)
        if context.reset is None:
            return continued
        # The map in force at t began at the latest reset r up to t: P_t P_{r−1}ᵀ; −1 where there was none yet.
        times = torch.arange(products.shape[1], device=products.device)
        began = torch.where(context.reset, times, -1).cummax(dim=1).values[:, :, None, None, None, None]
        one = torch.eye(self.n, dtype=products.dtype, device=products.device).expand_as(products[:, :1])
        shifted = torch.cat((one, products[:, :-1]), dim=1)
        fresh = products @ shifted.gather(1, began.clamp(min=0).expand_as(products)).mT
        return torch.where(began >= 0, fresh, continued)

    def rotate(self, path: Rotations | Tensor, *vectors: Tensor, back: bool = False) -> tuple[Tensor, ...]:
        """P_t x_t, or P_tᵀ x_t (``back``), of vectors (B, H, L, D), or (1, H, 1, D) at all times, -> (B, H, L, D)."""
        parts = torch.stack(vectors).unflatten(-1, (self.n, self.n_blocks))  # (V, B, H, L, n, n_b)
        if isinstance(path, Tensor):
            with without_autocast(path.device):
                turns = (path.mT if back else path).transpose(1, 2)  # (B, H, L, n_b, n, n)
                turned = turns @ parts.movedim(0, -1).transpose(-3, -2)  # of columns (B, H, L, n_b, n, V)
                return turned.transpose(-3, -2).flatten(-3, -2).unbind(-1)
        columns = parts.permute(1, 3, 4, 0, 2, 5)  # (B, L, n, V, H, n_b)
        rows = columns[0, 0, ..., None, None, None] if columns.shape[1] < path.length else self._in(columns)
        y = rotation_products.apply(path.theta, path.p, rows.flatten(2, 3).contiguous(), self.n, back)
        return self._out(y, path.length).unbind(0)

    def _in(self, columns: Tensor) -> Tensor:
        """(B, L, n, V, H, n_b) -> (n, V, H, n_b, S, T, B); PyTorch transposes matrices, but not tensors, in blocks."""
        cut = time_blocks.cut(columns)  # (S, T, B, …)
        return cut.flatten(0, 2).flatten(1).T.contiguous().reshape(*columns.shape[2:], *cut.shape[:3])

    def _out(self, y: Tensor, length: int) -> Tensor:
        """(n, V, G, S, T, B) -> (V, B, H, L, D)."""
        n, v, _, *times = y.shape
        columns = y.flatten(0, 2).flatten(1).T.contiguous().reshape(*times, n, v, -1, self.n_blocks)
        return time_blocks.joined(columns, length).permute(3, 0, 4, 1, 2, 5).flatten(-2)

    def step_matrices(self, x: Tensor, context: Context) -> Tensor:
        """W_t of every step as explicit matrices (B, L, H, n_b, n, n), for references that go step by step."""
        theta = self.angles(x, context).movedim(3, 0)  # (K, B, L, H, n_b)
        return torch.linalg.matrix_exp(skew(theta.to(x.dtype), self.n).movedim((0, 1), (-2, -1)))
