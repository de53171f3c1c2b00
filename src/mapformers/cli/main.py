"""`mapformers COMMAND`: find the command, run it, and turn wrong input into one sentence and exit code 2."""

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from mapformers.errors import UserError, require, unknown

# Command -> (module, function, what it does). A module is imported when its command is asked for: torch takes seconds.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "demo": ("demo", "main", "learn a map of a 2D world in minutes, and see it"),
    "train": ("train", "main", "train a model on a task"),
    "eval": ("evaluate", "main", "measure a trained run on every split"),
    "show": ("show", "main", "draw a sample of a task"),
    "list": ("listing", "main", "names of models, tasks and recipes"),
    "reproduce": ("reproduce", "main", "run the rows of a table of the paper"),
    "report": ("report", "main", "print a table of the paper beside ours"),
    "collect": ("collect", "main", "rebuild a table's record from run folders"),
    "lm": ("lm", "main", "language models: prepare text to train on"),
    "bench": ("bench", "main", "throughput of every layer on this machine"),
}

HELP = """usage: mapformers COMMAND [options]

Learn cognitive maps: transformers whose position is path-integrated from the tokens they read.

{commands}

  mapformers demo                                     start here
  mapformers show navigation                          what the model gets to see
  mapformers train --task navigation --model mapwm    a run of your own, in runs/
  mapformers COMMAND --help                           more on each
  mapformers COMMAND --import mine.py                 with layers, tasks or recipes of your own
"""


def main(args: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if args is None else args)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # arrows on a terminal that has none
    if not args or args[0] in ("-h", "--help", "help"):
        print(HELP.format(commands="\n".join(f"  {name:<10} {what}" for name, (_, _, what) in COMMANDS.items())))
        return 0
    if args[0] == "--version":
        from mapformers import __version__

        print(f"mapformers {__version__}")
        return 0
    try:
        args = import_named(args)
        if not args or args[0] not in COMMANDS:
            raise unknown("command", " ".join(args[:1]), COMMANDS)
        module, function, _ = COMMANDS[args[0]]
        code: int = getattr(import_module(f"mapformers.cli.{module}"), function)(args[1:])
        return code
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


def import_named(args: Sequence[str]) -> list[str]:
    """Import every ``--import FILE`` of a command line, and return what else is on it."""
    rest, names, words = [], [], iter(args)
    for word in words:
        option, equals, value = word.partition("=")
        if option != "--import":
            rest.append(word)
            continue
        value = value if equals else next(words, "")
        require(bool(value) and not value.startswith("--"), "--import needs a Python file or a module.")
        names.append(value)
    if names:
        from mapformers.plugins import import_plugins

        import_plugins(names)
    return rest


def entry() -> None:
    """The console script."""
    code = main()
    if "RANK" in os.environ:  # one of several processes: a thread of gloo may outlive the interpreter and abort it
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
