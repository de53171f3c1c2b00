"""What tyro draws for --help, in plainer words: an option that may be left out is no ``{None}|PATH``."""

import re

NONE_OR = re.compile(r"\{None(?:\}\||,([^}]*)\})(\S*)")  # {None}|PATH and {None,local,slurm}
NOTHING = re.compile(r"\(default:(?: |\s*│\n│\s*)(?:None|False|'')?\)")  # which may go on in the next line of a box
EMPTY_LINE = re.compile(r"^│ +│\n", flags=re.MULTILINE)


def plain_help(drawn: str) -> str:
    """The same help without tyro's words for "nothing is given"; the sides of its boxes stay where they are."""
    usage, corner, boxes = drawn.partition("╭")
    usage = NONE_OR.sub(lambda found: _named(found).rstrip(), usage).replace("\n\n\n", "\n\n")
    boxes = NOTHING.sub(_blank, NONE_OR.sub(_named, boxes))
    return usage + corner + EMPTY_LINE.sub("", boxes)


def _named(found: re.Match[str]) -> str:
    """The name alone, as long as what it replaces."""
    choices, rest = found.groups()
    return ((f"{{{choices}}}" if choices else "") + rest).ljust(len(found[0]))


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^│\n]", " ", found[0])
