"""Which files of the library run between parsing and result.json in a smoke run of `mapwm` on navigation?

  python scripts/trace_files.py

Whoever wants to follow a run from the command to the figure has to read these.
"""

import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

import mapformers
from mapformers.cli import main, train

ROOT = str(Path(mapformers.__file__).parent)
ran: dict[str, set[str]] = {}


def note(frame: FrameType, event: str, arg: Any) -> None:
    """Called at every call and return: remember the function, and stop where result.json is about to be written."""
    file, name = frame.f_code.co_filename, frame.f_code.co_name
    if event != "call" or not file.startswith(ROOT):
        return
    if name == "write_json" and str(frame.f_locals.get("path", "")).endswith("result.json"):
        sys.setprofile(None)
    elif name != "<module>":
        ran.setdefault(str(Path(file).relative_to(ROOT)), set()).add(name)


def parse_then_watch(args: list[str]) -> Any:
    asked = parse(args)
    sys.setprofile(note)
    return asked


if __name__ == "__main__":
    parse, train.parse_train = train.parse_train, parse_then_watch  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder:
        words = "train --task navigation --model mapwm --scale smoke --out"
        main.main([*words.split(), f"{folder}/run"])
    sys.setprofile(None)
    for file in sorted(ran):
        print(f"{file:<34} {', '.join(sorted(name for name in ran[file] if not name.startswith('<')))}")
    print(len(ran), "files")
