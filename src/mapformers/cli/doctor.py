"""`mapformers doctor`: what is installed, where it computes, which fast paths it has, and what is missing."""

import argparse
import os
import platform
import shutil
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from mapformers import __version__
from mapformers.cli.output import print_json
from mapformers.errors import UserError

EXTRAS = {
    "hf": "models for transformers, and text from datasets",
    "eval": "BLiMP through lm-eval",
    "gpt2": "GPT-2's tokenizer from packaged files",
    "onnx": "mapformers export --onnx",
    "slurm": "mapformers reproduce --cluster slurm",
    "track": "TensorBoard",
}


def main(args: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        "mapformers doctor", description="Say what is installed, which device is used, and what is missing."
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    asked, rest = parser.parse_known_args(list(args))
    if rest:
        raise UserError(f"Unrecognized options: {' '.join(rest)}; see `mapformers doctor --help`.")
    found = {"installed": installed(), "device": device(), "extras": extras()}
    if asked.json:
        print_json(found)
        return 0
    for title in ("installed", "device"):
        print(title)
        for name, value in found[title].items():
            print(f"  {name:<15} {value}")
        print()
    print("extras")
    for name, extra in found["extras"].items():
        state = "installed" if not extra["missing"] else f"missing {', '.join(extra['missing'])}: {extra['install']}"
        print(f"  {name:<15} {extra['for']}")
        print(f"  {'':<15} {state}")
    return 0


def installed() -> dict[str, str]:
    """This package, Python, and the packages that it needs."""
    names = [name for name, extra in requirements() if extra is None]
    versions = {name: version(name) or "missing" for name in names}
    return {"mapformers": __version__, "python": platform.python_version(), **versions}


def device() -> dict[str, Any]:
    """Where a run computes unless told otherwise, and how."""
    import torch

    accelerated = torch.accelerator.is_available()
    kind = torch.accelerator.current_accelerator().type if accelerated else "cpu"  # type: ignore[union-attr]
    compiler = next((name for name in ("c++", "g++", "clang++") if shutil.which(name)), None)
    return {
        "used": kind,
        "devices": torch.accelerator.device_count() if accelerated else 0,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "torch.compile": f"yes, with {compiler}" if compiler or kind != "cpu" else "no: it needs a C++ compiler",
        "bfloat16": "yes" if kind == "cpu" or torch.cuda.is_bf16_supported() else "no",
    }


def extras() -> dict[str, dict[str, Any]]:
    """What each extra is for, which of its packages are missing, and how they are installed."""
    wanted = requirements()
    return {
        extra: {
            "for": purpose,
            "missing": [name for name, of in wanted if of == extra and version(name) is None],
            "install": f"pip install 'mapformers[{extra}]'",
        }
        for extra, purpose in EXTRAS.items()
        if any(of == extra for _, of in wanted)
    }


def requirements() -> list[tuple[str, str | None]]:
    """(package, the extra that asks for it or None), as the installed package declares them; its own extras apart."""
    from packaging.requirements import Requirement

    found: list[tuple[str, str | None]] = []
    for wanted in map(Requirement, metadata.requires("mapformers") or []):
        if wanted.name == "mapformers":
            continue
        if wanted.marker is None:
            found.append((wanted.name, None))
        else:
            found += [(wanted.name, extra) for extra in EXTRAS if wanted.marker.evaluate({"extra": extra})]
    return found


def version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
