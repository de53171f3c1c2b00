"""Half precision for all of a model but its paths: angles grow with the path, and so does the rounding of ω."""

import torch
from torch import nn

from mapformers.modules.movement import find_movements
from mapformers.starts import tensors


def cast_but_paths(model: nn.Module, dtype: torch.dtype) -> None:
    """Give weights and buffers a dtype; those of paths stay in float32 where it is a smaller one."""
    wide = torch.promote_types(dtype, torch.float32)
    paths = {id(tensor) for movement in find_movements(model) for tensor in tensors(movement).values()}
    for tensor in tensors(model).values():
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(wide if id(tensor) in paths else dtype)


def cast_like(model: nn.Module, other: nn.Module) -> None:
    """Give every weight and buffer the dtype that it has in another model."""
    wanted = tensors(other)
    for name, tensor in tensors(model).items():
        tensor.data = tensor.data.to(wanted[name].dtype)
