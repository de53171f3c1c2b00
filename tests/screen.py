"""A terminal in a few lines: what stands on the screen after a program has written to it."""

import re

CONTROL = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])")


def screen(written: str, width: int) -> list[str]:
    """The lines of a terminal of some width. It knows what `rich` uses: line feeds, going up, clearing a line."""
    rows: list[list[str]] = [[]]
    x = y = at = 0
    while at < len(written):
        control = CONTROL.match(written, at)
        if control:
            at = control.end()
            y -= int(control[1]) if control[2] == "A" else 0
            if control[2] == "K":
                rows[y] = []
            continue
        letter = written[at]
        at += 1
        if letter == "\r":
            x = 0
        elif letter == "\n":
            x, y = 0, y + 1
        else:
            x, y = (0, y + 1) if x == width else (x, y)
        rows += [[] for _ in range(y + 1 - len(rows))]
        if letter not in "\r\n":
            rows[y] += [" "] * (x + 1 - len(rows[y]))
            rows[y][x] = letter
            x += 1
    return ["".join(row).rstrip() for row in rows]
