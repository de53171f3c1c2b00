"""A run on text is resumed where its text is now, which need not be where it was when the run was started."""

from dataclasses import replace
from pathlib import Path

from mapformers.errors import require
from mapformers.lm.manifest import NAME
from mapformers.runs.config import RunConfig


def with_its_text(folder: Path, started: RunConfig, data: str | None) -> RunConfig:
    """The config of a run, with ``data`` as the place of its text if that is given and holds the same text.

    Another text is left to be refused with all other differences.
    """
    if started.task != "text":
        return started
    before = started.task_settings
    if data is None or data == before.data:
        remedy = "give the whole command, with the folder that it is in now as --data, and --resume"
        require((Path(before.data) / NAME).is_file(), f"The text of {folder}, {before.data}, is not there; {remedy}.")
        return started
    there = replace(before, data=data, data_checksum="")  # which reads the checksum of what is there
    if there.data_checksum != before.data_checksum:
        return started
    return replace(started, task_settings=there)
