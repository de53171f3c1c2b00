"""`mapformers explore`: walk in a model's world by hand, and watch its map; or write that page to a file."""

import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from mapformers.cli.parse import parse
from mapformers.cli.threads import use_threads
from mapformers.errors import in_bytes, require
from mapformers.explorer.bundle import bundle
from mapformers.explorer.loaded_runs import LoadedRuns, open_runs
from mapformers.explorer.server import Explorer, Server
from mapformers.files import clear_file_errors, write_atomically

PROG = "mapformers explore"
DESCRIPTION = """Walk in a world with the arrow keys, and watch a trained model keep track of it.

  mapformers explore runs/demo/mapwm-r2                         opens a page in your browser
  mapformers explore runs/demo/mapwm-r2 runs/demo/rope          two models on one walk
  mapformers explore runs/demo/mapwm-r2 --export page.html      one file that needs no Python: pass it on

The page is served on this machine alone, until you press Ctrl-C.
"""


@dataclass(frozen=True)
class Arguments:
    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The folder that `mapformers train` wrote."""
    other: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="[RUN2]")] = None
    """A second run of the same task, to walk beside it."""
    export: Path | None = None
    """Write the page with the models in it to this file, instead of serving it."""
    no_open: bool = False
    """Only print the address of the page; do not open a browser."""
    threads: int | None = 1
    """Threads to compute on; one is fastest for one token at a time."""


def main(args: Sequence[str]) -> int:
    asked = parse(Arguments, args, PROG, DESCRIPTION)
    with use_threads(asked.threads):
        loaded = open_runs([folder for folder in (asked.run, asked.other) if folder is not None])
        return serve(loaded, open_browser=not asked.no_open) if asked.export is None else export(loaded, asked.export)


def serve(loaded: LoadedRuns, open_browser: bool) -> int:
    server = Server(Explorer(loaded))
    print(f"Exploring at {server.url}", flush=True)
    print("Press Ctrl-C to stop.", flush=True)
    if open_browser:
        webbrowser.open(server.url)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        server.server_close()
    return 0


def export(loaded: LoadedRuns, path: Path) -> int:
    require(path.suffix == ".html", f"--export writes a page; give it a name that ends in .html, not {path.name!r}.")
    page = bundle(loaded).encode()
    with clear_file_errors("write to", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, page)
    print(f"Page: {path} ({in_bytes(len(page))}); open it with a double click.")
    return 0
