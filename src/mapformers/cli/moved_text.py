"""A run on text is resumed where its text is now, which need not be where it was when the run was started."""

from dataclasses import replace
from pathlib import Path

from mapformers.errors import require
from mapformers.lm.manifest import NAME
from mapformers.runs.config import RunConfig


def with_its_text(folder: Path, started: RunConfig, data: str | None) -> RunConfig:
    """The config of a run, with ``data`` as the place of its text if that is given; another text is refused."""
    if started.task != "text":
        return started
    before = started.task_settings
    if data is None or data == before.data:
        there = Path(before.data)
        seen = "" if there.is_absolute() else f" in {Path.cwd().name or '/'}, the folder that you are in"
        remedy = "resume it with `mapformers lm train --resume`, and name the folder that it is in now with --data"
        require((there / NAME).is_file(), f"The text of {folder}, {there}, is not there{seen}; {remedy}.")
        return started
    there = replace(before, data=data, data_checksum="")  # which reads the checksum of what is there
    same = there.data_checksum == before.data_checksum
    require(same, f"{data} holds another text than the one {folder} was started with; name that with --data.")
    return replace(started, task_settings=there)
