"""Typed arguments from dataclasses, with one sentence instead of a box when they are wrong."""

import contextlib
import io
import re
import sys
from collections.abc import Sequence
from typing import Any, TypeVar

import tyro

from mapformers.errors import UserError

Arguments = TypeVar("Arguments")

# Flat names (--rank, not --model-options.rank), and one flag per switch (--no-self-key).
STYLE = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)


def parse(cls: type[Arguments], args: Sequence[str], prog: str, description: str) -> Arguments:
    """Arguments as an instance of ``cls``; --help prints and exits, anything wrong is a :class:`UserError`."""
    with _one_sentence(prog):
        return tyro.cli(cls, args=args, prog=prog, description=description, config=STYLE)


def parse_known(cls: type[Arguments], args: Sequence[str], prog: str) -> Arguments:
    """The arguments of ``cls``, passing over those it does not have."""
    with _one_sentence(prog):
        known, _ = tyro.cli(cls, args=args, prog=prog, config=STYLE, return_unknown_args=True, add_help=False)
        return known


@contextlib.contextmanager
def _one_sentence(prog: str) -> Any:
    caught = io.StringIO()
    try:
        with contextlib.redirect_stderr(caught):
            yield
    except SystemExit as stop:
        if stop.code in (0, None):
            sys.stderr.write(caught.getvalue())
            raise
        raise UserError(sentence(caught.getvalue(), prog)) from None


def sentence(box: str, prog: str) -> str:
    """What tyro drew in a box, as one sentence that ends with where to look."""
    lines = [line.strip("│ ") for line in box.splitlines() if line.startswith("│")]
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n─+\n", "\n".join(lines))]
    what = paragraphs[0] if paragraphs and paragraphs[0] else " ".join(box.split())
    what = re.sub(r"^Error parsing [a-z_-]+: ", "", what)
    for found, kind in (
        ("invalid literal for int.*: ", "a whole number"),
        ("could not convert string to float: ", "a number"),
    ):
        what = re.sub(rf"Error parsing (--\S+): {found}(.*)", rf"\1 takes {kind}, not \2", what)
    what = re.sub(r"^Missing from [^:]*: (--\S+).*", r"\1 is missing", what)
    hint = next((p for p in paragraphs[1:] if p.startswith("Perhaps you meant:")), "")
    near = re.search(r"--[\w-]+", hint)
    remedy = f"did you mean {near.group()}?" if near else f"see `{prog} --help`."
    return f"{what.rstrip('.')}; {remedy}" if near or what.endswith(")") or "must" not in what else what
