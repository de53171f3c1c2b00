"""What a source file does, as a hash: comments, docstrings and layout do not count."""

import hashlib
import io
import json
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

IGNORED = {tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER}
F_STRING_START, F_STRING_END = (getattr(tokenize, f"FSTRING_{end}", -1) for end in ("START", "END"))  # from 3.12


def fingerprint(path: Path) -> str:
    """A hash of one file: of the tokens of Python, of the data of JSON."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        content = json.dumps(json.loads(text), sort_keys=True)
    else:
        content = "\n".join(" ".join(line) for line in meaningful_lines(text))
    return hashlib.sha256(content.encode()).hexdigest()


def meaningful_lines(text: str) -> Iterator[list[str]]:
    """The logical lines of Python as words; a line that is nothing but a string, such as a docstring, is left out.

    An f-string is one word in every version of Python, as it was before 3.12.
    """
    line: list[str] = []
    only_strings = True
    for kind, word in _words(text):
        if kind == tokenize.NEWLINE:
            if line and not only_strings:
                yield line
            line, only_strings = [], True
        elif kind in (tokenize.INDENT, tokenize.DEDENT):
            yield ["indent" if kind == tokenize.INDENT else "dedent"]
        else:
            line.append(word)
            only_strings = only_strings and kind == tokenize.STRING


def _words(text: str) -> Iterator[tuple[int, str]]:
    lines = text.splitlines(keepends=True)
    depth, began = 0, (0, 0)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == F_STRING_START:
            began = began if depth else token.start
            depth += 1
        elif token.type == F_STRING_END:
            depth -= 1
            if depth == 0:
                yield tokenize.STRING, _between(lines, began, token.end)
        elif depth == 0 and token.type not in IGNORED:
            yield token.type, token.string


def _between(lines: Sequence[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    if start[0] == end[0]:
        return lines[start[0] - 1][start[1] : end[1]]
    middle = lines[start[0] : end[0] - 1]
    return "".join([lines[start[0] - 1][start[1] :], *middle, lines[end[0] - 1][: end[1]]])
