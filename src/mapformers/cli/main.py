"""`mapformers COMMAND`: find the command, run it, and turn wrong input into one sentence and exit code 2."""

import errno
import io
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from functools import cache
from importlib import import_module

from mapformers import signals
from mapformers.errors import UserError, memory_asked_for, require, unknown
from mapformers.stages import Stage, Watcher, watched_by

# Command -> (module, function, what it does). A module is imported when its command is asked for: torch takes seconds.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "demo": ("demo", "main", "learn a map of a 2D world in minutes, and see it"),
    "train": ("train", "main", "train a model on a task"),
    "eval": ("evaluate", "main", "measure a trained run on every split"),
    "analyze": ("analyze", "main", "draw and measure what a trained run has learned"),
    "show": ("show", "main", "draw a sample of a task"),
    "explore": ("explore", "main", "walk in a world by hand, and watch a model's map, in the browser"),
    "list": ("listing", "main", "list the models, tasks and recipes"),
    "reproduce": ("reproduce", "main", "run the rows of a table of the paper"),
    "report": ("report", "main", "print a table of the paper beside ours"),
    "collect": ("collect", "main", "rebuild a table's record from run folders"),
    "confirm": ("confirm", "main", "keep recorded runs after a change that does not affect what they compute"),
    "export": ("export", "main", "write a trained run as an ONNX file"),
    "lm": ("lm", "main", "language models: prepare text, train, evaluate, generate"),
    "bench": ("bench", "main", "speed and memory of every layer on this machine"),
    "doctor": ("doctor", "main", "say what is installed, which device is used, and what is missing"),
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
LESS_MEMORY = {
    "train": "lower --batch-size, raise --accumulate, or choose shorter sequences or a smaller model",
    "reproduce": "run fewer --jobs at a time, or on a machine with more memory",
}
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NOBODY_READS = 141  # what a shell makes of SIGPIPE


def main(args: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if args is None else args)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # arrows on a terminal that has none
    try:
        code = run(args)
        sys.stdout.flush()
        return code
    except UserError as error:
        return _refuse(str(error))
    except KeyboardInterrupt as error:
        said = signals.sentence(error)
        return _refuse(said, signals.exit_code(error)) if said else signals.exit_code(error)
    except SystemExit as error:  # of rich, which is told that nobody reads on, or of a parser's --help
        if isinstance(error.__context__, BrokenPipeError):
            return _discard_output()
        raise
    except BrokenPipeError:
        return _discard_output()
    except OSError as error:
        if not error.filename:  # the output itself, such as a full disk behind it
            _discard_output()
        full = error.errno in NO_ROOM
        where, remedy = error.filename or ("the output" if full else "a file"), "; make room there" if full else ""
        return _refuse(f"Cannot use {where}: {(error.strerror or str(error)).lower()}{remedy}.")
    except (MemoryError, RuntimeError) as error:
        size = memory_asked_for(error)
        if size is None:
            raise
        less = next((remedy for name, remedy in LESS_MEMORY.items() if name in args), "choose shorter sequences")
        return _refuse(f"There is not enough memory: {size} was asked for at once; {less}.")


def run(args: Sequence[str]) -> int:
    """Answer a question about the command line itself, or run the command it names."""
    if not args or args[0] in ("-h", "--help", "help"):
        print(HELP.format(commands="\n".join(f"  {name:<10} {what}" for name, (_, _, what) in COMMANDS.items())))
        return 0
    if args[0] == "--version":
        from mapformers import __version__

        print(f"mapformers {__version__}")
        return 0
    args = import_named(args)
    if not args or args[0] not in COMMANDS:
        raise unknown("command", " ".join(args[:1]), COMMANDS)
    module, function, _ = COMMANDS[args[0]]
    command = getattr(import_module(f"mapformers.cli.{module}"), function)
    with signals.interrupting(), watched_by(_show if os.environ.get("RANK", "0") == "0" else None):
        code: int = command(args[1:])
    return code


def _refuse(sentence: str, code: int = 2) -> int:
    print(f"mapformers: {sentence}", file=sys.stderr)
    return code


def _discard_output() -> int:
    """Whoever read the output has enough of it (`| head`): what is left of it goes nowhere, in silence."""
    with suppress(OSError, ValueError):  # a stream that is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return NOBODY_READS


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


def _show(stage: Stage) -> AbstractContextManager[None]:
    """Show long work; what draws it is imported when there is some."""
    return _display()(stage)


@cache
def _display() -> Watcher:
    from mapformers.progress import StageDisplay

    return StageDisplay()


def entry() -> None:
    """The console script."""
    signals.end_at_once()
    try:
        code = main()
    finally:
        signals.end_at_once()
    # One of several processes: a thread of gloo may outlive the interpreter and abort it. Or nobody wants to wait.
    if "RANK" in os.environ or code in (signals.INTERRUPTED, signals.TERMINATED):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
