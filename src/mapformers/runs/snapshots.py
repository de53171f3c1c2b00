"""Snapshots: the weights alone at some moments of a run, for whoever wants to see it learn (`--snapshots`).

A snapshot is not a checkpoint: a run cannot resume from it. Snapshots are kept until the run is started anew.
"""

from functools import cache
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import nn

from mapformers.errors import UserError
from mapformers.files import write_atomically

FOLDER = "snapshots"


@cache
def moments(steps: int, n: int) -> frozenset[int]:
    """At most n of the steps of a run, its last among them, closer together at the beginning, where most happens."""
    return frozenset(max(1, round(steps * (i / n) ** 2)) for i in range(1, n + 1))


def save(run: Path, step: int, model: nn.Module) -> Path:
    """Keep the weights as they are now in the folder of a run."""
    weights = {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}
    path = run / FOLDER / f"step-{step:09d}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, safetensors.torch.save(weights))
    return path


def found_in(run: Path) -> list[tuple[int, Path]]:
    """The snapshots of a run, each with its step, in order."""
    return [(int(path.stem.removeprefix("step-")), path) for path in sorted((run / FOLDER).glob("step-*.safetensors"))]


def fill(path: Path, model: nn.Module) -> None:
    """Put the weights of a snapshot into a model."""
    try:
        model.load_state_dict(safetensors.torch.load_file(path))
    except (SafetensorError, RuntimeError, OSError) as error:
        raise UserError(f"{path} is not a snapshot of this run: {error}") from None


def clear(run: Path) -> None:
    for _, path in found_in(run):
        path.unlink()
