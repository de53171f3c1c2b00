"""Typed arguments from dataclasses, with one sentence instead of a box when they are wrong."""

import contextlib
import io
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

import tyro

from mapformers.cli.help import plain_help
from mapformers.errors import UserError

FOLDER_OPTIONS = ("--out", "--runs", "--results", "--write", "--demo")
Arguments = TypeVar("Arguments")

# Flat names (--rank, not --model-options.rank), and one flag per switch (--no-self-key).
STYLE = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
HELP = {"-h", "--help"}


def parse(cls: type[Arguments], args: Sequence[str], prog: str, description: str, named: str = "") -> Arguments:
    """Arguments as an instance of ``cls``; --help prints and exits, anything wrong is a `UserError`.

    ``named``: what --help must be given besides to list all that there is, such as ``--task navigation``.
    """
    require_folder_names(args)
    with _plain_help() if HELP & set(args) else _one_sentence(f"{prog} {named}".rstrip()):
        return tyro.cli(cls, args=args, prog=prog, description=description, config=STYLE)


def require_folder_names(args: Sequence[str]) -> None:
    """Refuse ``--out ""``, which a script writes whose variable is not set: it would mean the current folder."""
    for word, after in pairwise([*args, "-"]):
        option, equals, value = word.partition("=")
        given = value if equals else after
        if option in FOLDER_OPTIONS and not given.strip():
            raise UserError(f"{option} needs the name of a folder, but got an empty one; . is the current folder.")


def given_flags(args: Sequence[str]) -> set[str]:
    """Which settings a command line gives: ``--rank 2`` and ``--no-learn-omega`` give rank and learn_omega."""
    flags = {arg[2:].split("=")[0].replace("-", "_") for arg in args if arg.startswith("--")}
    return flags | {flag.removeprefix("no_") for flag in flags if flag.startswith("no_")}


class _Drawn(io.TextIOWrapper):
    """Where tyro draws its boxes, which it does for the encoding of stdout: one that can hold any of them."""

    def __init__(self) -> None:
        self.bytes = io.BytesIO()
        super().__init__(self.bytes, encoding="utf-8", write_through=True)

    def text(self) -> str:
        return self.bytes.getvalue().decode()


@contextlib.contextmanager
def _one_sentence(prog: str) -> Iterator[None]:
    drawn = _Drawn()
    try:
        with contextlib.redirect_stdout(drawn), contextlib.redirect_stderr(drawn):
            yield
    except SystemExit:
        raise UserError(sentence(drawn.text(), prog)) from None


@contextlib.contextmanager
def _plain_help() -> Iterator[None]:
    try:
        "╭│".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:  # tyro has boxes for such terminals, too
        yield
        return
    drawn = _Drawn()
    try:
        with contextlib.redirect_stdout(drawn):
            yield
    finally:
        print(plain_help(drawn.text()), end="")
        print("Every command also takes --import FILE, for layers, tasks or recipes of your own.")


def sentence(box: str, prog: str) -> str:
    """What tyro drew in a box, as one sentence that ends with the remedy."""
    lines = [line.strip("│ ") for line in box.splitlines() if line.startswith("│")]
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n─+\n", "\n".join(lines))]
    what = re.sub(r"(?<=\()'None', |, 'None'(?=[,)])", "", paragraphs[0].rstrip("."))  # it is had by giving nothing
    near = re.search(r"Perhaps you meant: (--[\w-]+)", " ".join(paragraphs[1:]))
    if near:
        return f"{what}; did you mean {near.group(1)}?"
    for found, kind in (
        (r"invalid literal for int\(\) with base 10", "a whole number"),
        (r"could not convert string to float", "a number"),
    ):
        wrong = re.match(rf"Error parsing (\S+): {found}: (.*)", what)
        if wrong:
            return f"{wrong[1]} takes {kind}, not {wrong[2]}."
    neither = re.match(r"Error parsing (\S+): no type matching \{None\}\|(INT|FLOAT) .*? from \['(.*?)'\]", what)
    if neither:
        kind = "a whole number" if neither[2] == "INT" else "a number"
        return f"{neither[1]} takes {kind}, not {neither[3]!r}."
    several = re.match(r"Error parsing (\S+): Could not find valid parse for arguments: \[(.*)\]", what)
    if several:
        return f"{several[1]} does not take {several[2]}; see `{prog} --help`."
    refused = re.match(r"Error parsing [\w-]+: (.*)", what)
    if refused and not refused[1].startswith("invalid"):
        return f"{refused[1]}."
    missing = re.match(r"Missing from [^:]*: (--[\w-]+)|Missing from [^:]*: \S+ (.*?)\.? \(required\)", what)
    if missing:
        what = f"{missing[1]} is missing" if missing[1] else f"{prog} needs {missing[2][0].lower()}{missing[2][1:]}"
    return f"{what}; see `{prog} --help`."
