"""`mapem-nc`: MapEM on a map whose movements do not commute: places are carried by products of SO(n) (D.2)."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from mapformers.mixers.episodic import EpisodicAttention, EpisodicOptions
from mapformers.mixers.layer import Block, LayerShape, register_layer
from mapformers.mixers.nope import NoPE
from mapformers.mixers.rotation_path import RotationOptions, RotationPath


@dataclass(frozen=True)
class MapEMNCOptions(EpisodicOptions, RotationOptions):
    pass


class MapEMNC(EpisodicAttention):
    """Its places are q_p = P_t q₀ᵖ and k_p = P_t k₀ᵖ with P_t = W_t … W_1."""

    options: MapEMNCOptions
    path: RotationPath

    def build_path(self, shape: LayerShape) -> RotationPath:
        return RotationPath(shape, self.options)

    def carry(self, rotations: Any, *origins: Tensor) -> tuple[Tensor, ...]:
        wide = (rotations if isinstance(rotations, Tensor) else rotations.theta).dtype
        return self.path.turn(rotations, *(origin.unsqueeze(0).to(wide) for origin in origins))


def build(shape: LayerShape, options: MapEMNCOptions) -> Block:
    return Block(shape, NoPE(shape, options) if options.attend == "o" else MapEMNC(shape, options))


register_layer(
    "mapem-nc",
    summary="MapEM whose movements need not commute: products of SO(n) along the path.",
    options=MapEMNCOptions,
    build=build,
    variants=(
        {},
        {"block": 2, "self_key": False},
        {"block": 8, "attend": "s", "rank": 3},
        {"origins": "shared", "project_position": True, "attn_temperature": 0.5, "rank": 2},
        {"attend": "gated", "learn_omega": False},
    ),
    benchmarked=({}, {"block": 8}),
)
