"""What a tensor is besides its numbers: its shape and type, whether it is a shard, what shares its memory."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor


class Kind(NamedTuple):
    """Two tensors are exchangeable in a checkpoint if they are of one kind."""

    shape: torch.Size
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} of shape {tuple(self.shape)}"


def kind_of(tensor: Tensor) -> Kind:
    return Kind(tensor.shape, tensor.dtype)


def is_shard(tensor: Tensor) -> bool:
    """Whether a process holds only its part of a tensor (a DTensor, whose module takes a second to import)."""
    return hasattr(tensor, "to_local")


def local(tensor: Tensor) -> Tensor:
    """This process's part of a sharded tensor; any other as it is."""
    part: Tensor = tensor.to_local() if is_shard(tensor) else tensor  # type: ignore[attr-defined]
    return part


def without_shared_memory(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, copied where two share memory, as tied weights do: safetensors refuses that."""
    kept: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        storage = local(tensor).untyped_storage().data_ptr()
        kept[name] = tensor.clone() if storage in seen else tensor
        seen.add(storage)
    return kept
