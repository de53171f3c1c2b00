"""Weights that a checkpoint does not have start as those of a new model do."""

import math

import torch
import transformers
from packaging.version import Version
from torch import Tensor, nn

from mapformers.model import EMBEDDING_STD, Decoder
from mapformers.modules.layer import LAYERS, RMSNorm
from mapformers.starts import in_float32, tensors

READY = "_is_hf_initialized"  # how transformers marks what it has loaded, on tensors or on the modules that own them
LOADS_FIRST = Version(transformers.__version__) >= Version("5")  # earlier ones start what is missing before they load


def start(decoder: Decoder, module: nn.Module, tied: bool = False) -> None:
    """Give every tensor of ``module`` that is not there yet the value it has in a new decoder.

    ``tied``: whether the head is the embedding, before which the norm starts with smaller gains.

    The weights of a layer start together (W_o is the transpose of W_v, for one), so a layer is built anew and what is
    missing copied from it: the one description of the start is the constructor.
    """
    for index, layer in enumerate(decoder.layers):
        if any(part is module for part in layer.modules()):
            return start_layer(decoder, index)
    embedding = decoder.embedding.weight
    if module is decoder.head and any(tensor is embedding for tensor in module.parameters()):
        return None  # tied: it starts as the embedding
    for tensor in [tensor for tensor in module.parameters(recurse=False) if not ready(module, tensor)]:
        if isinstance(module, RMSNorm):
            tensor.fill_(1 / math.sqrt(len(tensor)) if tied else 1.0)
        elif module is decoder.head and LOADS_FIRST and not embedding.is_meta:  # the embedding's turn was before
            tensor.copy_(embedding / (EMBEDDING_STD * math.sqrt(embedding.shape[1])))
        else:  # the embedding; or one, or a head, with another number of tokens; or a head that comes first
            tensor.normal_(std=EMBEDDING_STD if isinstance(module, nn.Embedding) else 1 / math.sqrt(tensor.shape[-1]))
    return None


def start_layer(decoder: Decoder, index: int, only_tables: bool = False) -> None:
    """Fill what one layer misses; ``only_tables``: the buffers that no checkpoint holds, missing or not."""
    layer = decoder.layers[index]
    wanted = tables(layer) if only_tables else missing_tensors(layer)
    if not wanted:
        return
    values = tensors(new_layer(decoder, index))
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
