"""The git checkout that the package runs from: its commit, and the sources as they were at earlier ones."""

import subprocess
import tarfile
from functools import cache
from io import BytesIO
from pathlib import Path

from mapformers.errors import UserError
from mapformers.runs.sources import PACKAGE


@cache
def commit() -> str | None:
    """The commit, with "+changes" where the sources differ from it; None where the package is installed as a copy."""
    try:
        _git("ls-files", "--error-unmatch", "__init__.py")  # a copy inside another project's checkout is not tracked
        changed = _git("status", "--porcelain", "--", ".")
        return _text(_git("rev-parse", "HEAD")) + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def unpack_commit(name: str, folder: Path) -> None:
    """Put the package as it was at a commit into ``folder``/mapformers."""
    try:
        archive = _git("archive", name, ".")  # of the folder that git is called in
    except (OSError, subprocess.CalledProcessError):
        raise UserError(f"this checkout does not have its commit {name[:10]}; fetch the whole history.") from None
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(folder / PACKAGE.name, filter="data")


def _git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", str(PACKAGE), *words], capture_output=True, check=True).stdout


def _text(output: bytes) -> str:
    return output.decode().strip()
