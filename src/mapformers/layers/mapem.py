"""`mapem`: MapFormer of episodic memory, attention to what was seen times attention to where (os), or either alone.

Paper: sec. 3.2, A.4, A.7.
"""

from dataclasses import dataclass

from torch import Tensor

from mapformers import lie
from mapformers.modules.episodic_attention import EpisodicAttention, EpisodicOptions
from mapformers.modules.layer import register_layer
from mapformers.modules.movement import MapOptions, PathIntegrator


@dataclass(frozen=True)
class MapEMOptions(EpisodicOptions, MapOptions):
    pass


class MapEM(EpisodicAttention):
    """Its places are q_p = R(θ_t) q₀ᵖ and k_p = R(θ_t) k₀ᵖ: absolute position, in a population of its own."""

    Options = MapEMOptions
    options: MapEMOptions

    def build_path(self) -> PathIntegrator:
        return PathIntegrator(self.shape, self.options.rank, self.options)

    def carry(self, rotations: Tensor, *origins: Tensor) -> tuple[Tensor, ...]:
        return lie.rotate(rotations, *origins)


register_layer(
    "mapem",
    MapEM,
    variants=(
        {},
        {"self_key": False},
        {"attend": "s"},
        {"attend": "s", "self_key": False, "rank": 1},
        {"attend": "o"},
        {"origins": "independent"},
        {"attend": "gated"},
        {"attend": "gated", "self_key": False, "attn_temperature": 0.5},
        {"attend": "os", "origins": "shared", "project_position": True, "attn_temperature": 0.5},
        {"length_scaling": "log", "typical_length": 6, "init": "ordinary"},
        {"attend": "s", "length_scaling": "log", "typical_length": 6, "self_key": False},
        {"attend": "gated", "learn_sharpness": True},
    ),
    benchmarked=({}, {"attend": "s"}, {"attend": "gated"}),
)
