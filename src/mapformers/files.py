"""Files that are either whole or not there."""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mapformers.errors import UserError, require


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside the target, flush to disk, then rename: a reader sees the old file or the new one.

    Where that fails (a full disk), nothing is left behind, and the error names the file.
    """
    part = path.with_name(path.name + ".part")
    try:
        with errors_naming(path):
            with part.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    flush_folder(path.parent)


def sha256(path: Path) -> str:
    """The checksum of a file, which is read piece by piece."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def errors_naming(path: Path) -> Iterator[None]:
    """The system says that a disk is full, but not where: inside the ``with`` block its errors name a file."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def flush_folder(path: Path) -> None:
    """Make renames within a folder survive a power cut, where the system can be asked to."""
    if os.name == "posix":
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_json(path: Path, data: Any) -> None:
    """JSON in UTF-8; names that came from the system under a locale without UTF-8 are written as they are there."""
    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_atomically(path, text.encode(errors="surrogateescape"))


def read_json(path: Path) -> Any:
    """The content of a JSON file, or one clear sentence."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"Cannot read {path}: {(error.strerror or str(error)).lower()}.") from None
    except (ValueError, RecursionError) as error:  # no JSON, no UTF-8, a number or a nesting beyond all bounds
        raise UserError(f"{path} is not readable JSON ({error}); restore it from a copy, or make it anew.") from None


@contextmanager
def hold_folder(path: Path, busy: str) -> Iterator[None]:
    """Make a folder, and keep other processes out of it; the system lets go of it when this one ends, however it ends.

    ``busy``: what to say if another process holds it.
    """
    from filelock import FileLock, Timeout

    require(
        not (path.exists() and not path.is_dir()), f"Cannot write to {path}: not a directory; choose another folder."
    )
    lock = FileLock(path / ".lock", blocking=False)
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise UserError(busy) from None
    except OSError as error:
        raise unusable("write to", path, error) from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def clear_file_errors(action: str, path: Path) -> Iterator[None]:
    """Turn the operating system's refusals into one sentence with the remedy."""
    try:
        yield
    except OSError as error:
        raise unusable(action, path, error) from None


def unusable(action: str, path: Path, error: OSError) -> UserError:
    """One sentence on what the operating system refused, and the remedy."""
    return UserError(f"Cannot {action} {path}: {(error.strerror or str(error)).lower()}; choose another folder.")
