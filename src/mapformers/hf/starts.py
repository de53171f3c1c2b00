"""Weights that a checkpoint does not have start as those of a new model do."""

import math

import torch
from torch import Tensor, nn

from mapformers.model import EMBEDDING_STD, Decoder
from mapformers.modules.layer import LAYERS, RMSNorm

READY = "_is_hf_initialized"  # how transformers marks what it has loaded, on tensors or on the modules that own them


def start(decoder: Decoder, module: nn.Module, tied: bool = False) -> None:
    """Give every tensor of ``module`` that is not there yet the value it has in a new decoder.

    ``tied``: whether the head is the embedding, before which the norm starts with smaller gains.

    The weights of a layer start together (W_o is the transpose of W_v, for one), so a layer is built anew and what is
    missing copied from it: the one description of the start is the constructor.
    """
    for index, layer in enumerate(decoder.layers):
        if any(part is module for part in layer.modules()):
            return start_layer(decoder, index)
    missing = [tensor for tensor in module.parameters(recurse=False) if not ready(module, tensor)]
    for tensor in missing:
        if isinstance(module, RMSNorm):
            tensor.fill_(1 / math.sqrt(len(tensor)) if tied else 1.0)
        else:  # the embedding, or the head, which starts as the embedding in size
            tensor.normal_(std=EMBEDDING_STD if isinstance(module, nn.Embedding) else 1 / math.sqrt(tensor.shape[-1]))
    return None


def start_layer(decoder: Decoder, index: int, only_tables: bool = False) -> None:
    """Fill what one layer misses; ``only_tables``: the buffers that no checkpoint holds, missing or not."""
    layer = decoder.layers[index]
    wanted = tables(layer) if only_tables else missing_tensors(layer)
    if not wanted:
        return
    new = new_layer(decoder, index)
    values = {**dict(new.named_parameters()), **dict(new.named_buffers())}
    for name, tensor in wanted.items():
        tensor.copy_(values[name])
        setattr(tensor, READY, True)


def new_layer(decoder: Decoder, index: int) -> nn.Module:
    """A layer as a new decoder has it, in float32 on the CPU, whatever is being built around."""
    layer, shape = decoder.config.layers[index], decoder.config.layer_shapes()[index]
    with in_float32(), torch.device("cpu"):
        return LAYERS[layer.name].build(shape, layer.options)


def missing_tensors(layer: nn.Module) -> dict[str, Tensor]:
    found = {}
    for prefix, module in layer.named_modules():
        own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        for name, tensor in own:
            if not ready(module, tensor):
                found[f"{prefix}.{name}" if prefix else name] = tensor
    return found


def tables(layer: nn.Module) -> dict[str, Tensor]:
    """Buffers that are not saved, such as tem-t's table of actions."""
    saved = set(layer.state_dict())
    return {name: buffer for name, buffer in layer.named_buffers() if name not in saved and not buffer.is_meta}


def ready(owner: nn.Module, tensor: Tensor) -> bool:
    return tensor.is_meta or getattr(owner, READY, False) or getattr(tensor, READY, False)


class in_float32:
    """A start is computed in float32 (there is no orthogonal start in bf16) and then cast to what is wanted."""

    def __enter__(self) -> None:
        self.before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)

    def __exit__(self, *_: object) -> None:
        torch.set_default_dtype(self.before)
