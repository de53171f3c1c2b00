"""What `mapformers reproduce` reads from words: seeds, rows of one's own, options by name."""

import re
import shlex
from collections.abc import Sequence

from mapformers.cli.train import layer_spec, plain_value
from mapformers.errors import UserError, require
from mapformers.recipes import Row

MANY = 100  # so many seeds are asked for by a slip: seeds from 100 on are those that settings are chosen on


def parse_seeds(words: Sequence[str]) -> list[int]:
    """``3`` is seeds 0 to 2; ``100-102``, ``0,4,100`` and ``0 4 100`` name them.

    Examples:
        >>> parse_seeds(["3"]), parse_seeds(["100-102"]), parse_seeds(["4", "0-1"]), parse_seeds(["0,3,7-8"])
        ([0, 1, 2], [100, 101, 102], [4, 0, 1], [0, 3, 7, 8])
    """
    require(bool(words), "--seeds needs a number, or seeds by name: --seeds 3, --seeds 100-102, --seeds 0,4,100.")
    if len(words) == 1 and words[0].lstrip("-").isdecimal():
        count = int(words[0])
        require(count >= 1, f"--seeds must be at least 1, not {words[0]}.")
        remedy = f"write {count}-{count} for seed {count} alone, 0-{count - 1} for all"
        require(count < MANY, f"--seeds {count} is {count} seeds: {remedy}.")
        return list(range(count))
    seeds: list[int] = []
    for word in ",".join(words).split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", word)
        if found is None:
            raise UserError(f"--seeds takes a whole number, not {word!r}; or seeds by name: 100-102, or 0,4,100.")
        first, last = int(found[1]), int(found[2] or found[1])
        require(first <= last, f"--seeds {word} is empty; write {last}-{first}.")
        seeds += range(first, last + 1)
    return list(dict.fromkeys(seeds))


def parse_row(text: str) -> Row:
    """``LABEL=MODEL SETTING=VALUE …`` as a row; values are read as those of a hybrid's layers are.

    Examples:
        >>> row = parse_row("MapWM-r3=mapwm rank=3 lr=1e-3")
        >>> row.label, row.model, row.settings
        ('MapWM-r3', 'mapwm', {'rank': 3, 'lr': 0.001})
    """
    label, equals, rest = text.partition("=")
    words = _words(rest)
    right = bool(equals and label.strip() and words) and "=" not in words[0].partition(":")[0]
    require(right, f"A row is given as LABEL=MODEL SETTING=VALUE …, such as 'MapWM-r3=mapwm rank=3', not {text!r}.")
    given = parse_words(words[1:], f"The row {label.strip()!r}")
    settings = {name: plain_value(value) for name, value in given.items()}
    if "+" in words[0] or ":" in words[0]:
        return Row(label.strip(), None, settings, [layer_spec(layer) for layer in words[0].split("+")])
    return Row(label.strip(), words[0], settings)


def parse_words(words: Sequence[str], of: str) -> dict[str, str]:
    """``time=04:00:00 cpus-per-task=2`` by name."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        require(bool(equals and name and value), f"{of} takes settings as NAME=VALUE, not {word!r}.")
        name = name.replace("-", "_")
        require(name not in found, f"{of} gives {name} twice.")
        found[name] = value
    return found


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UserError(f"{text!r} cannot be read: {str(error).lower()}.") from None
