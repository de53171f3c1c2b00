"""AdamW's moments as a checkpoint keeps them: by the name of the parameter, and checked before they are believed.

A fused step reads moments as if they had the shape of their parameter. Those of another shape would be read beyond
their end, and a negative mean square has no root.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from mapformers.runs.tensors import is_shard as is_shard  # for training, which asks for it here
from mapformers.runs.tensors import kind_of, local

MEAN, MEAN_SQUARE, STEP = "exp_avg", "exp_avg_sq", "step"
# What a file that is no safetensors (a pickle, say) can end in.
UNREADABLE = (OSError, SafetensorError, LookupError, TypeError, ValueError, OverflowError)
LAST_COUNTED = 2**24  # float32, in which AdamW counts steps, has no next whole number after it


class Unfit(Exception):
    """Why moments cannot be those of a model after a number of steps."""


def by_name(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """``NAME.exp_avg``, ``NAME.exp_avg_sq`` and ``NAME.step`` of every parameter that has had a gradient."""
    state = optimizer.state_dict()["state"]
    names = _names(optimizer, model)
    return {
        f"{names[index]}.{key}": value.contiguous() for index, entry in state.items() for key, value in entry.items()
    }


def untouched(optimizer: torch.optim.Optimizer, model: nn.Module) -> list[str]:
    """The parameters that have had no gradient yet, and so have no moments."""
    state = optimizer.state_dict()["state"]
    return [name for index, name in enumerate(_names(optimizer, model)) if index not in state]


def restore(
    found: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
    model: nn.Module,
    step: int,
    without: Sequence[str] = (),
) -> None:
    """Put moments back; `Unfit` if they cannot be those of this model after so many steps.

    ``without``: the parameters that had no gradient yet. At step 0 none had one.
    """
    names, parameters = _names(optimizer, model), list(_parameters(optimizer))
    found = _renamed(found, names)
    lacking = set(names) if step == 0 else set(without)
    wanted = {f"{name}.{key}" for name in names if name not in lacking for key in (MEAN, MEAN_SQUARE, STEP)}
    for name in sorted(wanted - set(found)):
        raise Unfit(f"{name} is missing")
    for name in sorted(set(found) - wanted):
        raise Unfit(f"{name} belongs to no parameter that is trained")
    state: dict[int, dict[str, Tensor]] = {}
    for index, (name, parameter) in enumerate(zip(names, parameters)):
        if name not in lacking:
            state[index] = {key: found[f"{name}.{key}"] for key in (STEP, MEAN, MEAN_SQUARE)}
            _check(name, state[index], parameter, step)
    if state and max(int(entry[STEP]) for entry in state.values()) != min(step, LAST_COUNTED):
        raise Unfit(f"its moments are not those of step {step}")
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _check(name: str, entry: Mapping[str, Tensor], parameter: nn.Parameter, step: int) -> None:
    for key in (MEAN, MEAN_SQUARE):
        value = entry[key]
        if kind_of(value) != kind_of(parameter):
            raise Unfit(f"{name}.{key} is {kind_of(value)}, but the parameter is {kind_of(parameter)}")
        if bool(local(value).isnan().any()):
            raise Unfit(f"{name}.{key} holds NaN")
    if bool((local(entry[MEAN_SQUARE]) < 0).any()):
        raise Unfit(f"{name}.{MEAN_SQUARE} is a mean of squares, but holds negative numbers")
    taken = entry[STEP]
    if taken.shape != () or taken.dtype != torch.float32 or not (1 <= float(taken) <= step and float(taken) % 1 == 0):
        raise Unfit(f"{name}.{STEP} is no number of steps up to {step}")


def _names(optimizer: torch.optim.Optimizer, model: nn.Module) -> list[str]:
    """The names of the optimiser's parameters, in its own order."""
    known = {parameter: name for name, parameter in model.named_parameters()}
    return [known[parameter] for parameter in _parameters(optimizer)]


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[nn.Parameter]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _renamed(found: Mapping[str, Tensor], names: Sequence[str]) -> Mapping[str, Tensor]:
    """Moments that version 0.1.0 saved are counted in the optimiser's order (``0.exp_avg``) instead of named."""
    owners = {key.rpartition(".")[0] for key in found}
    if owners <= set(names) or not all(owner.isdecimal() for owner in owners):
        return found
    by_index = dict(enumerate(names))
    return {
        f"{by_index.get(int(owner), owner)}.{key}": tensor
        for (owner, _, key), tensor in ((name.rpartition("."), tensor) for name, tensor in found.items())
    }
