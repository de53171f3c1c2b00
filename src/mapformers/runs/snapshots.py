"""Snapshots: small copies of the weights along a run, kept on request, to look at how a model learned."""

import re
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import nn

from mapformers.errors import UserError
from mapformers.files import write_atomically

NAME = re.compile(r"step-(\d{8})\.safetensors")


def snapshot_steps(steps: int, number: int) -> list[int]:
    """After which steps of a run ``number`` snapshots are taken: the first before any, the last at the end.

    They are denser at the beginning, where most is learned: step i of n is at the share (i / (n − 1))².
    """
    if number == 0:
        return []
    shares = [(index / max(1, number - 1)) ** 2 for index in range(number)]
    return sorted({round(steps * share) for share in shares})


def save(folder: Path, step: int, model: nn.Module) -> None:
    """Keep the weights as they are after a step."""
    folder.mkdir(exist_ok=True)
    weights = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.state_dict().items()}
    write_atomically(folder / f"step-{step:08d}.safetensors", safetensors.torch.save(weights))


def steps_of(folder: Path) -> dict[int, Path]:
    """step -> file, of all snapshots in a folder, in order."""
    found = [(NAME.fullmatch(path.name), path) for path in sorted(folder.iterdir())] if folder.is_dir() else []
    return {int(match.group(1)): path for match, path in found if match}


def load_into(path: Path, model: nn.Module) -> None:
    """Put the weights of a snapshot into a model."""
    try:
        model.load_state_dict(safetensors.torch.load_file(path))
    except (SafetensorError, RuntimeError, OSError):
        raise UserError(f"{path} is no snapshot of this model; delete it.") from None
