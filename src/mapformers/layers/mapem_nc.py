"""`mapem-nc`: MapEM whose movements need not commute: places are carried by products of SO(n) along the path (D.2)."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from mapformers.modules.episodic_attention import EpisodicAttention, EpisodicOptions
from mapformers.modules.layer import register_layer
from mapformers.modules.product_integrator import ProductIntegrator, ProductOptions


@dataclass(frozen=True)
class MapEMNCOptions(EpisodicOptions, ProductOptions):
    pass


class MapEMNC(EpisodicAttention):
    """Its places are q_p = P_t q₀ᵖ and k_p = P_t k₀ᵖ with P_t = W_t … W_1."""

    Options = MapEMNCOptions
    options: MapEMNCOptions
    path: ProductIntegrator

    def build_path(self) -> ProductIntegrator:
        return ProductIntegrator(self.shape, self.options)

    def carry(self, rotations: Any, *origins: Tensor) -> tuple[Tensor, ...]:
        wide = (rotations if isinstance(rotations, Tensor) else rotations.theta).dtype
        return self.path.rotate(rotations, *(origin.unsqueeze(0).to(wide) for origin in origins))


register_layer(
    "mapem-nc",
    MapEMNC,
    variants=(
        {},
        {"block": 2, "self_key": False},
        {"block": 8, "attend": "s", "rank": 3},
        {"origins": "shared", "project_position": True, "attn_temperature": 0.5, "rank": 2},
        {"length_scaling": "log", "typical_length": 6},
        {"attend": "gated", "learn_omega": False},
    ),
    benchmarked=({}, {"block": 8}),
)
