"""`mapformers lm COMMAND`: language, from text on a disk or a hub."""

from collections.abc import Sequence
from importlib import import_module

from mapformers.errors import unknown

# Command -> (module, function, what it does), imported when it is asked for.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "prepare": ("lm_data", "prepare", "turn text into token shards"),
    "train": ("lm_train", "main", "train a language model on a prepared text"),
    "eval": ("lm_eval", "main", "measure perplexity, long contexts and BLiMP of a trained model"),
    "generate": ("lm_generate", "main", "continue prompts with a trained model"),
    "check": ("lm_data", "check", "read a prepared folder again and compare its checksums"),
}

HELP = """usage: mapformers lm COMMAND [options]

Language models: prepare text from anywhere, train on it, measure, generate.

{commands}

  mapformers lm prepare books/ --out data/books --tokenizer bpe:4096     any folder of text
  mapformers lm prepare python: --out data/python --tokenizer bpe:4096   Python's standard library
  mapformers lm train --data data/books --model mapwm                    a run on it
  mapformers lm eval runs/text-mapwm-seed0                               how good it is
  mapformers lm generate runs/text-mapwm-seed0 --prompt "It was"         text from that run
  mapformers lm COMMAND --help                                           more on each
"""


def main(args: Sequence[str]) -> int:
    if not args or args[0] in ("-h", "--help", "help"):
        print(HELP.format(commands="\n".join(f"  {name:<10} {what}" for name, (_, _, what) in COMMANDS.items())))
        raise SystemExit(0)
    if args[0] not in COMMANDS:
        raise unknown("command of `mapformers lm`", args[0], COMMANDS)
    module, function, _ = COMMANDS[args[0]]
    code: int = getattr(import_module(f"mapformers.cli.{module}"), function)(args[1:])
    return code
