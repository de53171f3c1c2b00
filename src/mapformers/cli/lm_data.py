"""`mapformers lm prepare` and `mapformers lm check`: a folder of token shards, made and verified."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from mapformers.cli.parse import parse
from mapformers.errors import UserError
from mapformers.lm.corpus import Corpus
from mapformers.lm.manifest import Manifest
from mapformers.lm.preparation import PrepareSettings
from mapformers.lm.preparation import prepare as prepare_text
from mapformers.reports.table import Table

PREPARE = """Turn text into token shards, which `--task text --data FOLDER` trains on.

  mapformers lm prepare books/train --out data/books --tokenizer bpe:4096 --val-from books/val
  mapformers lm prepare notes.txt --out data/notes --tokenizer bytes --val 0.05
  mapformers lm prepare python: --out data/python --tokenizer bpe:8192
  mapformers lm prepare hf:Skylion007/openwebtext --out data/openwebtext --val 0.0005

It can be stopped at any moment; the same command then continues after the last finished shard. With --finish-here it
closes the folder instead, with the shards that are finished: where a disk is full, or the source ends in a broken file.
"""
CHECK = "Read every file of a prepared folder, and compare it with its checksum."
SHOWN = 10  # of the documents that were left out


@dataclass(frozen=True)
class PrepareArguments:
    source: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SOURCE")]
    """A file, a folder, python: (python:all, python:PACKAGE) or hf:NAME[@CONFIG][:SPLIT]."""
    out: Path
    """The folder to write."""
    finish_here: bool = False
    """Instead of going on, close a folder that was begun, with the shards that are finished."""
    settings: PrepareSettings = field(default_factory=PrepareSettings)


@dataclass(frozen=True)
class CheckArguments:
    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")]
    """What `mapformers lm prepare` wrote."""


def prepare(args: Sequence[str]) -> int:
    asked = parse(PrepareArguments, args, "mapformers lm prepare", PREPARE)
    console = Console(stderr=True)
    settings: dict[str, Any] = {f.name: getattr(asked.settings, f.name) for f in dataclasses.fields(PrepareSettings)}
    try:
        corpus = prepare_text(asked.source, asked.out, console=console, finish_here=asked.finish_here, **settings)
    except KeyboardInterrupt:
        console.print(f"Stopped; the same command {goes_on(asked.out)}.", highlight=False)
        raise
    Console().print(contents(corpus))
    left_out = corpus.manifest.left_out
    for name, why in left_out[:SHOWN]:
        console.print(f"Left out: {name} {why}.", highlight=False, soft_wrap=True, markup=False)
    if len(left_out) > SHOWN:
        console.print(f"… and {len(left_out) - SHOWN:,} more, listed in {asked.out / 'manifest.json'}.", soft_wrap=True)
    return 0


def goes_on(folder: Path) -> str:
    """Where a preparation that was stopped continues."""
    try:
        begun = bool(Manifest.read(folder).rounds)
    except UserError:
        begun = False
    return "continues after the last finished shard" if begun else "starts anew, as no shard was finished yet"


def check(args: Sequence[str]) -> int:
    folder = parse(CheckArguments, args, "mapformers lm check", CHECK).folder
    corpus = Corpus.open(folder)
    faults = list(corpus.faults())
    if faults:
        more = f" (and {len(faults) - 1} files more)" if len(faults) > 1 else ""
        # The tokenizer is made once, with the folder; and a folder that was closed early is not gone on with.
        anew = "tokenizer.json" in faults[0] or corpus.manifest.closed_early
        remedy = "prepare the text into a new folder" if anew else f"delete it and prepare {folder} again"
        raise UserError(f"{faults[0]}{more}; {remedy}.")
    Console().print(contents(corpus))
    print("Every checksum is right.")
    return 0


def contents(corpus: Corpus) -> Table:
    """Tokens, documents and text of each split, and whether the source was read to its end."""
    made = corpus.manifest
    rows = []
    for name, count in made.totals().items():
        tokens, size = count["tokens"], count["text_bytes"]
        rows.append([name, f"{tokens:,}", f"{count['documents']:,}", f"{size / 1e6:,.2f}", f"{size / tokens:.2f}"])
    title = f"{made.made['source']['name']}: {made.tokenizer['kind']}, vocabulary {made.vocab_size:,}, {made.id_type}"
    early = f"Closed early, after {made.documents_read:,} documents: the source was not read to its end."
    headings = ["split", "tokens", "documents", "MB of text", "bytes per token"]
    return Table(title, headings, rows, notes=[early] if made.closed_early else [])
