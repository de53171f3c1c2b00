"""One model over several processes: each holds its share of every parameter, gradient and moment (FSDP2).

The parameters of a layer are put together when the layer is about to be used, and let go after it. So a model need not
fit into the memory of one device, but for its largest layer; the price is that weights travel in every step.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from mapformers.errors import require
from mapformers.runs.moments import is_shard


def shard(model: nn.Module, device: torch.device) -> nn.Module:
    """The same module, its parameters shared out between all processes: layer by layer, and then what is left.

    Parameters stay float32, also where they are put together: bfloat16 is autocast's, as without sharding, so that the
    path on the map is exact and a run can be measured in float32.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    needs = "--sharding full needs a torch that can write shards as safetensors (2.9 or newer); leave it out."
    require(find_spec("torch.distributed.checkpoint.hf_storage") is not None, needs)
    for name, parameter in model.named_parameters():
        remedy = "give it the shape (1,), or leave out --sharding full"
        require(parameter.dim() > 0, f"{name} is a single number, which cannot be shared out; {remedy}.")
    model.to(device)
    for name, tensor in model.state_dict().items():
        require(isinstance(tensor, torch.Tensor), f"{name} of the model's state is no tensor; make it a buffer.")
        dist.broadcast(tensor, src=0)  # a module of one's own may have started otherwise elsewhere
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(reduce_dtype=torch.float32)
    for part in [*layers_of(model), model]:
        fully_shard(part, mesh=mesh, mp_policy=policy)
    whole = [name for name, parameter in model.named_parameters() if not is_shard(parameter)]
    assert not whole, f"every process would hold all of {', '.join(whole)}"
    return model


def let_go(model: Any) -> None:
    """Keep this process's share alone: what a forward has put together stays so until a backward, if there is one."""
    model.reshard()


def layers_of(module: nn.Module) -> Iterator[nn.Module]:
    """What a model is stacked from: the elements of its outermost lists of modules that have parameters."""
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield from (layer for layer in child if any(True for _ in layer.parameters()))
        else:
            yield from layers_of(child)
