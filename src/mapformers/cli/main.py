"""`mapformers COMMAND`: find the command, run it, and turn wrong input into one sentence and exit code 2."""

import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib import metadata

from mapformers.cli import bench, demo, evaluate, look, reproduce, train
from mapformers.errors import UserError, unknown

COMMANDS: dict[str, tuple[Callable[[Sequence[str]], int], str]] = {
    "demo": (demo.main, "learn a map of a 2D world in minutes, and see it"),
    "train": (train.main, "train a model on a task"),
    "eval": (evaluate.main, "measure a trained run on every split"),
    "show": (look.show_main, "draw a sample of a task"),
    "list": (look.list_main, "names of models, tasks and recipes"),
    "reproduce": (reproduce.main, "run the rows of a table of the paper"),
    "report": (reproduce.report_main, "print a table of the paper beside ours"),
    "bench": (bench.main, "throughput of every mixer on this machine"),
}

HELP = """usage: mapformers COMMAND [options]

Learn cognitive maps: transformers whose position is path-integrated from the tokens they read.

{commands}

  mapformers demo                                     start here
  mapformers show navigation                          what the model gets to see
  mapformers train --task navigation --model mapwm    a run of your own, in runs/
  mapformers COMMAND --help                           more on each
"""


def main(args: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if args is None else args)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # arrows on a terminal that has none
    if not args or args[0] in ("-h", "--help", "help"):
        print(HELP.format(commands="\n".join(f"  {name:<10} {what}" for name, (_, what) in COMMANDS.items())))
        return 0
    if args[0] == "--version":
        print(f"mapformers {metadata.version('mapformers')}")
        return 0
    try:
        if args[0] not in COMMANDS:
            raise unknown("command", args[0], COMMANDS)
        return COMMANDS[args[0]][0](args[1:])
    except UserError as error:
        print(f"mapformers: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 0
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        print(f"mapformers: Cannot use{where}: {(error.strerror or str(error)).lower()}.", file=sys.stderr)
        return 2


def entry() -> None:
    """The console script."""
    code = main()
    if "RANK" in os.environ:  # one of several processes: a thread of gloo may outlive the interpreter and abort it
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
