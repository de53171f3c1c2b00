"""A decoder without values starts as a new one does: `reset_parameters`, for builds on the device `meta`.

Apart from the decoder itself, whose file decides every recorded result.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from mapformers.errors import require
from mapformers.model import Decoder


@torch.no_grad()
def reset_parameters(decoder: Decoder) -> None:
    """Draw every parameter and buffer anew, as a new decoder has them; with the same seed, the same.

    For a decoder that was built on the device `meta`, once `to_empty` has given it memory; also for FSDP2's shards. All
    at once and not module by module: these start together (the head is the embedding, W_o the transpose of W_v).
    """
    require(isinstance(decoder, Decoder), "Give the decoder itself, as `build_model` returned it, not what wraps it.")
    here = tensors(decoder)
    in_memory = not any(tensor.is_meta for tensor in here.values())
    require(in_memory, 'The decoder is on the device meta; give it memory first, with to_empty(device="cpu").')
    with in_float32(), torch.device("cpu"):
        values = tensors(Decoder(decoder.config))
    for name, tensor in here.items():
        tensor.copy_(sharded_like(tensor, values[name]))


@contextmanager
def in_float32() -> Iterator[None]:
    """A start is computed in float32 (there is no orthogonal start in bf16) and then cast to what is wanted."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def tensors(module: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers by name, also buffers that are not saved."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def sharded_like(tensor: Any, value: Tensor) -> Tensor:
    """The value itself, or this process's share of it where the tensor is one (FSDP2; the first process's value)."""
    if not hasattr(tensor, "device_mesh"):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(tensor.device), tensor.device_mesh, tensor.placements)
