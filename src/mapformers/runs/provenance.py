"""What a result depends on besides its config: the sources, versions, the machine and the command."""

import os
import platform
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path, PurePath
from typing import Any, Literal

from mapformers.errors import UserError
from mapformers.runs.checkout import commit
from mapformers.runs.config import RunConfig
from mapformers.runs.sources import PACKAGE, library_hash, sources_hash, sources_of

__all__ = ["Freshness", "command", "commit", "freshness", "is_stale", "provenance", "sources_hash", "sources_of"]

Freshness = Literal["current", "changed", "unrecorded"]
FOLDER_OPTIONS = ("--out", "--runs", "--results", "--write")  # where things were put decides no figure
PATH = re.compile(r"^(/|~|\.\.?/|[A-Za-z]:[\\/])")


def provenance(hardware: Mapping[str, Any], config: RunConfig | None = None) -> dict[str, Any]:
    """What a result depends on besides its config.

    ``commit``   of the checkout the package runs from, with "+changes" where its sources differ from it; else None.
    ``sources``  a hash of the files that decide a run (`sources_of`); None without a config.
    ``command``  what was typed, without folders of this machine.
    """
    versions = {name: metadata.version(name) for name in ("torch", "numpy", "safetensors", "accelerate")}
    try:
        versions["mapformers"] = metadata.version("mapformers")
    except metadata.PackageNotFoundError:
        versions["mapformers"] = "not installed"
    return {
        "command": typed(),
        "commit": commit(),
        "sources": None if config is None else sources_hash(config),
        "versions": {"python": platform.python_version(), **versions},
        "hardware": {"processor": processor(), "cores": os.cpu_count(), **hardware},
    }


def processor() -> str:
    """The kind of processor: figures of long runs depend on how it rounds."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def typed() -> str:
    """The command that was typed; of a Python program that is not ours, its name alone."""
    program = Path(sys.argv[0])
    own = program.stem == "mapformers" or program.resolve().is_relative_to(PACKAGE)
    return command(sys.argv[1:]) if own else f"python {program.name}"


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
