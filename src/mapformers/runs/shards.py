"""Tensors in shards: every process writes and reads its own part, through `torch.distributed.checkpoint`.

That library's own format keeps its index in a pickle, which may do anything when it is read. Its storage in safetensors
is used instead: one file for each process, in whose header stand the offsets of its parts. So nothing is unpickled, any
number of processes can read what another number wrote, and one can read it without being part of a group.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from mapformers.files import errors_naming, flush_folder, sha256
from mapformers.runs import moments
from mapformers.runs.moments import UNREADABLE, Unfit
from mapformers.runs.tensors import Kind, is_shard, kind_of, without_shared_memory


def write(tensors: Mapping[str, Tensor], folder: Path) -> dict[str, str]:
    """Each process writes its part of the sharded tensors, one of them what is not sharded.

    Returns the SHA-256 of every file by its name, on every process.
    """
    with errors_naming(folder), _own_errors():
        save(
            without_shared_memory(tensors), storage_writer=HuggingFaceStorageWriter(str(folder), save_distributed=True)
        )
    own = {file.name: sha256(file) for file in folder.glob(f"shard-{dist.get_rank() + 1:05d}-*")}
    flush_folder(folder)
    return {name: checksum for part in everyone(own) for name, checksum in part.items()}


def read(place: Path, into: Mapping[str, Tensor]) -> None:
    """Fill tensors from a folder of shards or from one whole file; `Unfit` if they are not those that it holds.

    Where the tensors are sharded, all processes must call this.
    """
    sharded = any(map(is_shard, into.values()))

    def check() -> None:
        found = kinds(place)
        for name in sorted(set(into) - set(found)):
            raise Unfit(f"{name} is missing")
        for name in sorted(set(found) - set(into)):
            raise Unfit(f"{name} is no tensor of the model")
        for name, tensor in into.items():
            if found[name] != kind_of(tensor):
                raise Unfit(f"{name} is {found[name]}, but the model's is {kind_of(tensor)}")

    agreed(check, sharded)
    _fill(into, place, sharded)


def read_moments(place: Path, model: nn.Module) -> dict[str, Tensor]:
    """The moments that a folder of shards or a whole file holds, each sharded as its parameter is.

    They are those of any names; whether they can be this model's, `moments.restore` says.
    """
    parameters = dict(model.named_parameters())
    sharded = any(map(is_shard, parameters.values()))
    found: dict[str, Tensor] = {}

    def prepare() -> None:
        for name, kind in kinds(place).items():
            owner, _, key = name.rpartition(".")
            parameter = parameters.get(owner)
            if parameter is None:
                raise Unfit(f"{name} belongs to no parameter that is trained")
            if key == moments.STEP:
                found[name] = torch.zeros(kind.shape, dtype=kind.dtype)
            elif kind.shape == parameter.shape:
                found[name] = torch.zeros_like(parameter, dtype=kind.dtype, requires_grad=False)
            else:
                raise Unfit(f"{name} is {kind}, but the parameter is {kind_of(parameter)}")

    agreed(prepare, sharded)
    _fill(found, place, sharded)
    return found


def kinds(place: Path) -> dict[str, Kind]:
    """The tensors in a folder of shards or in one file; `Unfit` if one has gaps or overlaps."""
    found: dict[str, Kind] = {}
    for name, stored in _reader(place).read_metadata().state_dict_metadata.items():
        if not isinstance(stored, TensorStorageMetadata) or not _is_whole(stored):
            raise Unfit(f"the parts of {name} do not make a whole")
        found[name] = Kind(stored.size, stored.properties.dtype)
    return found


def _is_whole(stored: TensorStorageMetadata) -> bool:
    """Whether the parts of a tensor follow each other along its first dimension, from its beginning to its end."""
    parts = sorted((tuple(part.offsets), tuple(part.sizes)) for part in stored.chunks)
    if not stored.size:
        return len(parts) == 1
    reached = 0
    for offsets, sizes in parts:
        if offsets[0] != reached or any(offsets[1:]) or sizes[1:] != tuple(stored.size[1:]):
            return False
        reached += sizes[0]
    return reached == stored.size[0]


def _fill(tensors: Mapping[str, Tensor], place: Path, sharded: bool) -> None:
    with _own_errors(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # by no_dist, as meant
        load(dict(tensors), storage_reader=_reader(place), no_dist=not sharded)


def _reader(place: Path) -> HuggingFaceStorageReader:
    if place.is_dir():
        return HuggingFaceStorageReader(str(place))
    reader = HuggingFaceStorageReader(str(place.parent))
    reader.fs = _OneFile(place)
    return reader


class _OneFile(FileSystem):
    """A folder of which one file is seen."""

    def __init__(self, file: Path):
        self.file = file

    def ls(self, path: Any) -> list[str]:
        return [str(self.file)]


def whole_state(model: nn.Module) -> dict[str, Tensor]:
    """The weights of a sharded model, put together one after another; on the first process alone, others help."""
    gathered: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        whole = tensor.full_tensor() if is_shard(tensor) else tensor
        if dist.get_rank() == 0:
            gathered[name] = whole.cpu()
    return gathered


def everyone(value: Any) -> list[Any]:
    """What every process of the group gives, in their order; none goes on before all have given it."""
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def agreed(action: Any, together: bool) -> None:
    """Do something on every process; if one of them finds that files do not fit, all of them say so."""
    fault = None
    try:
        action()
    except (*UNREADABLE, Unfit) as error:
        fault = str(error) or type(error).__name__
    for said in everyone(fault) if together else [fault]:
        if said is not None:
            raise Unfit(said)


@contextmanager
def _own_errors() -> Iterator[None]:
    """The first error of any process as itself: the library wraps them all into one that is no `Exception`."""
    try:
        yield
    except CheckpointException as error:
        raise next(iter(error.failures.values()))[0] from None
