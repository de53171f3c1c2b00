"""Checkpoints: a folder per step, complete or absent, weights and optimiser as safetensors, never a pickle."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from mapformers.errors import UserError
from mapformers.files import flush_folder, write_atomically, write_json
from mapformers.runs import moments

KEPT = 2  # checkpoints of a run
FOREVER = 1e12  # seconds that no run takes
WEIGHTS, OPTIMIZER, MANIFEST = "weights.safetensors", "optimizer.safetensors", "manifest.json"


def save(
    folder: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer | None, extra: dict[str, Any]
) -> Path:
    """Write ``folder/step-…`` whole: into a hidden folder first, checksums last, then one rename.

    Without an optimiser it can be loaded, but not gone on from.
    """
    target = _path(folder, step)
    part = folder / f".{target.name}.part"
    shutil.rmtree(part, ignore_errors=True)
    files = {WEIGHTS: safetensors.torch.save(_separate(model.state_dict()))}
    facts: dict[str, Any] = {"step": step, "threads": torch.get_num_threads()}
    if optimizer is not None:
        files[OPTIMIZER] = safetensors.torch.save(moments.by_name(optimizer, model))
        untouched = moments.untouched(optimizer, model)
        facts |= {"untouched": untouched} if untouched else {}
    facts["sha256"] = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    try:
        part.mkdir(parents=True)
        for name, content in files.items():
            write_atomically(part / name, content)
        write_json(part / MANIFEST, {**facts, **extra})
    except BaseException:  # a full disk: what it has room for is left to others
        shutil.rmtree(part, ignore_errors=True)
        raise
    if target.exists():
        _remove(target)
    part.replace(target)
    flush_folder(folder)
    earlier = [path for path in _steps(folder) if path.name < target.name]  # a newer one can only be damaged
    for old in earlier[: -(KEPT - 1)]:
        _remove(old)
    return target


def latest(folder: Path) -> tuple[Path | None, list[str]]:
    """The newest checkpoint that is whole, and a sentence for each newer one that is not."""
    faults: list[str] = []
    for path in reversed(_steps(folder)):
        fault = _fault(path)
        if fault is None:
            return path, [f"{sentence} Using {path.name} instead." for sentence in faults]
        faults.append(f"Checkpoint {path} is damaged: {fault}.")
    return None, faults


def is_whole(folder: Path, step: int) -> bool:
    """Whether the checkpoint of a step is there and complete."""
    return _fault(_path(folder, step)) is None


def tidy(folder: Path) -> None:
    """Leave what a killed process should have left: no half-made or half-removed folders, and the newest whole ones.

    Checkpoints that are not whole are renamed, so that they neither count nor get in the way.
    """
    for leftover in folder.glob(".step-*"):
        shutil.rmtree(leftover)
    for path in _steps(folder):
        if _fault(path) is not None:
            aside = path.with_name(f"damaged-{path.name}")
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)
    for old in _steps(folder)[:-KEPT]:
        _remove(old)


def _remove(path: Path) -> None:
    """First out of sight by one rename, so that no half-removed checkpoint can be taken for a damaged one."""
    gone = path.with_name(f".{path.name}.old")
    shutil.rmtree(gone, ignore_errors=True)
    path.replace(gone)
    shutil.rmtree(gone)


def load_weights(path: Path, model: nn.Module) -> None:
    try:
        weights = safetensors.torch.load_file(path / WEIGHTS)
        model.load_state_dict({_present_name(name): tensor for name, tensor in weights.items()})
    except (*moments.UNREADABLE, RuntimeError) as error:
        raise UserError(f"The weights in {path} do not fit the model of its config.json: {_cause(error)}.") from None


def _present_name(name: str) -> str:
    """What a weight that version 0.1.0 saved is called now."""
    for before, now in {".path.drift": ".path.mean", ".mixer.balance.": ".mixer.gate."}.items():
        name = name.replace(before, now)
    return name


def load_optimizer(path: Path, optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    """Put the moments back, once each is known to be what a step of this model left."""
    if not (path / OPTIMIZER).exists():
        raise UserError(f"{path} holds weights alone: it can be measured, but training cannot go on from it.")
    facts = manifest(path)
    try:
        found = safetensors.torch.load((path / OPTIMIZER).read_bytes())
        moments.restore(found, optimizer, model, facts["step"], facts.get("untouched", []))
    except (*moments.UNREADABLE, moments.Unfit) as error:
        remedy = "remove that folder to go on from the checkpoint before it, or start anew"
        raise UserError(f"{path / OPTIMIZER} does not fit the model: {_cause(error)}; {remedy}.") from None


def manifest(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    return data


def threads(folder: Path) -> int | None:
    """On how many threads the run was computed up to its newest checkpoint; None where that is not known."""
    try:
        number = manifest(_steps(folder)[-1]).get("threads")
    except (OSError, LookupError, AttributeError, ValueError, RecursionError):
        return None
    return number if type(number) is int and number >= 1 else None


def is_there(folder: Path) -> bool:
    """Whether any step was saved, whole or not."""
    return bool(_steps(folder))


def clear(folder: Path) -> None:
    """Remove every checkpoint of a run, also half-made and damaged ones, and the folder if it held nothing else."""
    for path in _steps(folder):
        _remove(path)
    for path in [*folder.glob(".step-*"), *folder.glob("damaged-step-*")]:
        shutil.rmtree(path)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _path(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}"


def _steps(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*"))


def _fault(path: Path) -> str | None:
    """Why a checkpoint cannot be used, or None."""
    try:
        facts = manifest(path)
        if not _is_of_step(facts, path):
            return f"{MANIFEST} is not what was written"
        kept = OPTIMIZER in facts["sha256"] or (path / OPTIMIZER).exists()
        for name in [WEIGHTS, OPTIMIZER] if kept else [WEIGHTS]:
            if hashlib.sha256((path / name).read_bytes()).hexdigest() != facts["sha256"][name]:
                return f"{name} is not what was written"
    except (OSError, LookupError, TypeError, ValueError, RecursionError):
        return "files are missing or cut short"
    return None


def _is_of_step(facts: dict[str, Any], path: Path) -> bool:
    """Whether a manifest has the step that its folder is named after, and what the run had taken to get there."""
    step, seconds, untouched = facts["step"], facts["seconds"], facts.get("untouched", [])
    numbers = type(step) is int and type(seconds) in (int, float) and 0 <= seconds < FOREVER
    numbers = numbers and type(facts.get("threads", 1)) is int and facts.get("threads", 1) >= 1
    words = isinstance(untouched, list) and all(isinstance(name, str) for name in untouched)
    return numbers and words and path.name == _path(path.parent, step).name


def _separate(state: dict[str, Any]) -> dict[str, Tensor]:
    """Contiguous tensors, none of which shares memory with another, as tied weights do."""
    kept: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in state.items():
        if not isinstance(tensor, Tensor):
            raise UserError(f"{name} of the model's state is no tensor; only tensors are saved, so make it a buffer.")
        storage = tensor.untyped_storage().data_ptr()
        kept[name] = tensor.clone() if storage in seen else tensor.contiguous()
        seen.add(storage)
    return kept


def _cause(error: Exception) -> str:
    """The first telling line of an error that torch spreads over many."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[min(1, len(lines) - 1)].rstrip(".")
