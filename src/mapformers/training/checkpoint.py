"""Checkpoints: a folder per step, complete or absent, weights and optimiser as safetensors, never a pickle."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from mapformers.errors import UserError
from mapformers.training.files import write_atomically, write_json

KEPT = 2
WEIGHTS, OPTIMIZER, MANIFEST = "weights.safetensors", "optimizer.safetensors", "manifest.json"


def save(folder: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, extra: dict[str, Any]) -> Path:
    """Write ``folder/step-…`` whole: into a hidden folder first, checksums last, then one rename."""
    target = folder / f"step-{step:08d}"
    part = folder / f".{target.name}.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    files = {
        WEIGHTS: safetensors.torch.save(_contiguous(model.state_dict())),
        OPTIMIZER: safetensors.torch.save(_flatten(optimizer)),
    }
    for name, content in files.items():
        write_atomically(part / name, content)
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    write_json(part / MANIFEST, {"step": step, "sha256": sums, **extra})
    if target.exists():
        shutil.rmtree(target)
    part.replace(target)
    for old in _steps(folder)[:-KEPT]:
        shutil.rmtree(old)
    return target


def latest(folder: Path) -> tuple[Path | None, list[str]]:
    """The newest checkpoint that is whole, and a sentence for each newer one that is not."""
    complaints: list[str] = []
    for path in reversed(_steps(folder)):
        fault = _fault(path)
        if fault is None:
            return path, complaints
        complaints.append(f"Checkpoint {path} is damaged ({fault}); using the one before it.")
    return None, complaints


def load_weights(path: Path, model: nn.Module) -> None:
    try:
        model.load_state_dict(safetensors.torch.load_file(path / WEIGHTS))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise UserError(f"The weights in {path} do not fit this model ({_first_line(error)}).") from None


def load_optimizer(path: Path, optimizer: torch.optim.Optimizer) -> None:
    """Put the moments back; their order is that of the optimiser's own parameters."""
    tensors = safetensors.torch.load_file(path / OPTIMIZER)
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def manifest(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((path / MANIFEST).read_text())
    return data


def _steps(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*"))


def _fault(path: Path) -> str | None:
    """Why a checkpoint cannot be used, or None."""
    try:
        for name, expected in manifest(path)["sha256"].items():
            if hashlib.sha256((path / name).read_bytes()).hexdigest() != expected:
                return f"{name} is not what was written"
    except (OSError, KeyError, ValueError):
        return "files are missing or cut short"
    return None


def _flatten(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = optimizer.state_dict()["state"]
    return {f"{index}.{key}": value.contiguous() for index, entry in state.items() for key, value in entry.items()}


def _contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
