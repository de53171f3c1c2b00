"""`mapem`: the MapFormer of episodic memory, absolute position in a population of its own (sec. 3.2, A.4, A.7)."""

from dataclasses import dataclass

from torch import Tensor

from mapformers import lie
from mapformers.mixers.episodic import EpisodicAttention, EpisodicOptions
from mapformers.mixers.layer import Block, LayerShape, register_layer
from mapformers.mixers.nope import NoPE
from mapformers.mixers.path_integrator import MapOptions, PathIntegrator


@dataclass(frozen=True)
class MapEMOptions(EpisodicOptions, MapOptions):
    pass


class MapEM(EpisodicAttention):
    """Its places are q_p = R(θ_t) q₀ᵖ and k_p = R(θ_t) k₀ᵖ."""

    options: MapEMOptions

    def build_path(self, shape: LayerShape) -> PathIntegrator:
        return PathIntegrator(shape, self.options)

    def carry(self, rotations: Tensor, *origins: Tensor) -> tuple[Tensor, ...]:
        return lie.rotate(rotations, *origins)

    def places(self, rotations: Tensor) -> tuple[Tensor, Tensor]:
        """Two vectors with the same product as q_p and k_p, at half the work, unless C comes between them."""
        if self.projection is not None:
            return super().places(rotations)
        key_origin = self.query_origin if self.key_origin is None else self.key_origin
        return lie.carried_origins(rotations, self.query_origin.unsqueeze(1), key_origin.unsqueeze(1))


def build(shape: LayerShape, options: MapEMOptions) -> Block:
    """`o` has no position at all, so it is :class:`NoPE`: nothing is built that would never get a gradient."""
    return Block(shape, NoPE(shape, options) if options.attend == "o" else MapEM(shape, options))


register_layer(
    "mapem",
    summary="MapFormer, episodic memory: attention to what was seen times attention to where (os), or either alone.",
    options=MapEMOptions,
    build=build,
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
    ),
    benchmarked=({}, {"attend": "s"}, {"attend": "gated"}),
)
