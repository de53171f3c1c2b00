"""What a figure depends on besides its config: the sources, versions, the machine and the command."""

import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import PurePath
from typing import Any, Literal

from mapformers.errors import UserError
from mapformers.runs.config import RunConfig
from mapformers.runs.sources import PACKAGE, library_hash, sources_hash, sources_of

__all__ = ["Freshness", "command", "commit", "freshness", "is_stale", "provenance", "sources_hash", "sources_of"]

Freshness = Literal["current", "changed", "unrecorded"]
FOLDER_OPTIONS = ("--out", "--runs", "--results", "--write")  # where things were put decides no figure
PATH = re.compile(r"^(/|~|\.\.?/|[A-Za-z]:[\\/])")


def provenance(hardware: Mapping[str, Any], config: RunConfig | None = None) -> dict[str, Any]:
    """What a figure depends on besides its config.

    ``commit``   of the checkout the package runs from, with "+changes" where its sources differ from it; else None.
    ``sources``  a hash of the files that decide a run (:func:`sources_of`); None without a config.
    ``command``  what was typed, without folders of this machine.
    """
    versions = {name: metadata.version(name) for name in ("torch", "numpy", "safetensors", "accelerate")}
    try:
        versions["mapformers"] = metadata.version("mapformers")
    except metadata.PackageNotFoundError:
        versions["mapformers"] = "not installed"
    processor = platform.processor() or platform.machine()
    return {
        "command": command(sys.argv[1:]),
        "commit": commit(),
        "sources": None if config is None else sources_hash(config),
        "versions": {"python": platform.python_version(), **versions},
        "hardware": {"processor": processor, "cores": os.cpu_count(), **hardware},
    }


def command(args: Sequence[str]) -> str:
    """A command line as another person would type it: folders for output are left out, other paths are bare names."""
    kept: list[str] = []
    words = list(args)
    while words:
        word = words.pop(0)
        option, equals, value = word.partition("=")
        if option in FOLDER_OPTIONS:
            if not equals and words and not words[0].startswith("-"):
                words.pop(0)
        elif equals and PATH.match(value):
            kept.append(f"{option}={PurePath(value).name}")
        else:
            kept.append(PurePath(word).name if PATH.match(word) else word)
    return shlex.join(["mapformers", *kept])


@cache
def commit() -> str | None:
    """The git commit of the checkout that holds this package; None where the package is installed as a copy."""
    try:
        _git("ls-files", "--error-unmatch", "__init__.py")  # a copy inside another project's checkout is not tracked
        changed = _git("status", "--porcelain", "--", ".")
        return _git("rev-parse", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(PACKAGE), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def freshness(record: Mapping[str, Any]) -> Freshness:
    """Whether a measured run or benchmark is of the sources as they are now, or was confirmed with them.

    "unrecorded": it was measured before sources were recorded.
    """
    recorded = record.get("sources")
    if recorded is None:
        return "unrecorded"
    try:
        now = library_hash() if "benchmark" in record else sources_hash(record["config"])
    except (UserError, LookupError):
        return "changed"  # a layer or task that is no longer there
    return "current" if now in (recorded, record.get("confirmed", {}).get("sources")) else "changed"


def is_stale(record: Mapping[str, Any]) -> bool:
    """Whether the sources that decide a recorded run or benchmark have changed since it was measured."""
    return freshness(record) == "changed"
