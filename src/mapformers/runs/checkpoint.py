"""Checkpoints: a folder per step, complete or absent, weights and optimiser as safetensors, never a pickle.

Each of the two is one file, or a folder of shards (`runs/shards.py`) where several processes share the model out.
"""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from mapformers.errors import UserError
from mapformers.files import flush_folder, sha256, write_atomically, write_json
from mapformers.runs import moments
from mapformers.runs.tensors import is_shard, without_shared_memory

KEPT = 2  # checkpoints of a run
FOREVER = 1e12  # seconds that no run takes
WEIGHTS, OPTIMIZER, MANIFEST = "weights.safetensors", "optimizer.safetensors", "manifest.json"


def save(
    folder: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer | None, extra: dict[str, Any]
) -> Path:
    """Write ``folder/step-…`` whole: into a hidden folder first, checksums last, then one rename.

    Without an optimiser it can be loaded, but a run cannot resume from it.
    """
    target = _path(folder, step)
    part = folder / f".{target.name}.part"
    shutil.rmtree(part, ignore_errors=True)
    files = {WEIGHTS: safetensors.torch.save(_separate(model.state_dict()))}
    if optimizer is not None:
        files[OPTIMIZER] = safetensors.torch.save(moments.by_name(optimizer, model))
    facts = _facts(step, model, optimizer)
    facts["sha256"] = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    try:
        part.mkdir(parents=True)
        for name, content in files.items():
            write_atomically(part / name, content)
        write_json(part / MANIFEST, {**facts, **extra})
    except BaseException:  # such as a full disk: half a checkpoint would only take space
        shutil.rmtree(part, ignore_errors=True)
        raise
    return _publish(part, target)


def save_shards(
    folder: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, extra: dict[str, Any], last: bool
) -> None:
    """The same of a model that is sharded, by all processes together: each writes its part of weights and moments.

    ``last``: the weights are written as one file, which is what the end of a run leaves for everyone.
    """
    from mapformers.runs import shards

    target = _path(folder, step)
    part = folder / f".{target.name}.part"
    first = torch.distributed.get_rank() == 0
    if first:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
    shards.everyone("the folder is there")
    try:
        files = _write_whole(part, model) if last else _write_shards(part, WEIGHTS, model.state_dict())
        files |= _write_shards(part, OPTIMIZER, moments.by_name(optimizer, model))
        if first:
            write_json(part / MANIFEST, {**_facts(step, model, optimizer), "sha256": files, **extra})
            _publish(part, target)
    except BaseException:
        if first:
            shutil.rmtree(part, ignore_errors=True)
        raise
    shards.everyone("the checkpoint is there")


def _write_whole(part: Path, model: nn.Module) -> dict[str, str]:
    """The weights of a sharded model as one file, written by the first process."""
    from mapformers.runs import shards

    whole = shards.whole_state(model)
    if not whole:
        return {}
    content = safetensors.torch.save(_separate(whole))
    write_atomically(part / WEIGHTS, content)
    return {WEIGHTS: hashlib.sha256(content).hexdigest()}


def _write_shards(part: Path, name: str, tensors: dict[str, Any]) -> dict[str, str]:
    from mapformers.runs import shards

    folder = _shards_of(name)
    return {f"{folder}/{file}": checksum for file, checksum in shards.write(tensors, part / folder).items()}


def _facts(step: int, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[str, Any]:
    untouched = [] if optimizer is None else moments.untouched(optimizer, model)
    return {"step": step, "threads": torch.get_num_threads(), **({"untouched": untouched} if untouched else {})}


def _shards_of(name: str) -> str:
    """The folder that stands for a file where it is in shards."""
    return Path(name).stem


def _publish(part: Path, target: Path) -> Path:
    """Give a whole checkpoint its name by one rename, and remove those that are older than the last."""
    folder = target.parent
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
    """Put the weights of a checkpoint into a model; either of them may be sharded."""
    place = _place(path, WEIGHTS)
    try:
        if place.is_dir() or is_sharded(model):
            from mapformers.runs import shards

            shards.read(place, model.state_dict())
        else:
            _load_whole(place, model)
    except (*moments.UNREADABLE, moments.Unfit) as error:
        raise UserError(f"The weights in {path} do not fit the model of its config.json: {_cause(error)}.") from None


def _load_whole(file: Path, model: nn.Module) -> None:
    try:
        weights = safetensors.torch.load_file(file)
        model.load_state_dict({_present_name(name): tensor for name, tensor in weights.items()})
    except RuntimeError as error:
        raise moments.Unfit(_cause(error)) from None


def _present_name(name: str) -> str:
    """What a weight that version 0.1.0 saved is called now."""
    for before, now in {".path.drift": ".path.mean", ".mixer.balance.": ".mixer.gate."}.items():
        name = name.replace(before, now)
    return name


def load_optimizer(path: Path, optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    """Put the moments back, once each is known to be what a step of this model left."""
    place = _place(path, OPTIMIZER)
    if not place.exists():
        raise UserError(f"{path} holds weights alone: it can be measured, but training cannot go on from it.")
    facts = manifest(path)
    state = facts["step"], facts.get("untouched", [])
    try:
        if place.is_dir() or is_sharded(model):
            from mapformers.runs import shards

            parts = shards.read_moments(place, model)
            shards.agreed(lambda: moments.restore(parts, optimizer, model, *state), is_sharded(model))
        else:
            moments.restore(safetensors.torch.load(place.read_bytes()), optimizer, model, *state)
    except (*moments.UNREADABLE, moments.Unfit) as error:
        remedy = "remove that folder to go on from the checkpoint before it, or start anew"
        raise UserError(f"{place} does not fit the model: {_cause(error)}; {remedy}.") from None


def is_sharded(model: nn.Module) -> bool:
    """Whether this process holds parts of the parameters only (DTensors)."""
    return any(is_shard(parameter) for parameter in model.parameters())


def _place(path: Path, name: str) -> Path:
    """Where a checkpoint has its weights or its moments: a folder of shards, or one file."""
    folder = path / _shards_of(name)
    return folder if folder.is_dir() else path / name


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
        for name in _files(path, facts["sha256"]):
            if sha256(path / name) != facts["sha256"][name]:
                return f"{name} is not what was written"
    except (OSError, LookupError, TypeError, ValueError, RecursionError):
        return "files are missing or cut short"
    return None


def _files(path: Path, listed: dict[str, str]) -> list[str]:
    """The files that a checkpoint consists of: weights, and moments if they were kept, each whole or in shards."""
    kept = any((path / name).exists() or name in listed for name in (OPTIMIZER, _shards_of(OPTIMIZER)))
    files: list[str] = []
    for name in [WEIGHTS, OPTIMIZER] if kept else [WEIGHTS]:
        place = _place(path, name)
        if place.is_dir():
            written = {file for file in listed if file.startswith(f"{place.name}/")}
            if not written:
                raise LookupError(name)
            files += sorted(written | {f"{place.name}/{file.name}" for file in place.iterdir()})
        else:
            files.append(name)
    return files


def _is_of_step(facts: dict[str, Any], path: Path) -> bool:
    """Whether a manifest has the step that its folder is named after, and what the run had taken to get there."""
    step, seconds, untouched = facts["step"], facts["seconds"], facts.get("untouched", [])
    numbers = type(step) is int and type(seconds) in (int, float) and 0 <= seconds < FOREVER
    numbers = numbers and type(facts.get("threads", 1)) is int and facts.get("threads", 1) >= 1
    words = isinstance(untouched, list) and all(isinstance(name, str) for name in untouched)
    return numbers and words and path.name == _path(path.parent, step).name


def _separate(state: dict[str, Any]) -> dict[str, Tensor]:
    """What safetensors asks for: contiguous tensors, none of which shares memory with another."""
    for name, tensor in state.items():
        if not isinstance(tensor, Tensor):
            raise UserError(f"{name} of the model's state is no tensor; only tensors are saved, so make it a buffer.")
    return {name: tensor.contiguous() for name, tensor in without_shared_memory(state).items()}


def _cause(error: Exception) -> str:
    """The first telling line of an error that torch spreads over many."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[min(1, len(lines) - 1)].rstrip(".")
