"""A walk as text for a person to read: its tokens and, in one or two dimensions, a picture of the cells it has seen."""

from collections.abc import Sequence

Cell = tuple[int, ...]
LEGEND = "[ ] a scored revisit"


def draw_walk(
    names: Sequence[str], displacement: Sequence[Cell], first_visit: Sequence[int], empty: str, note: str = ""
) -> str:
    """The text of one walk. Scored revisits (to cells that are not empty) are in brackets.

    ``names``         the names of the tokens a₁ o₁ a₂ o₂ …
    ``displacement``  the cell to which each action leads, counted from the start and not wrapped around a torus.
    ``first_visit``   for each step, the step at which its cell was first visited.
    ``note``          what the picture does not show by itself.
    """
    actions, seen = names[0::2], names[1::2]
    pairs = []
    for time, (action, found) in enumerate(zip(actions, seen)):
        scored = first_visit[time] < time and found != empty
        pairs.append(f"{action} [{found}]" if scored else f"{action} {found}")
    lines = [", ".join(pairs[i : i + 16]) for i in range(0, len(pairs), 16)]
    if len(displacement[0]) <= 2:
        lines += ["", *_picture([(*cell, 0)[:2] for cell in displacement], seen)]
        start = "" if any(not any(cell) for cell in displacement) else "S start, "  # unless the walk came back to it
        lines += ["", f"{start}letters and dots what was seen{note}, {LEGEND}"]
    else:
        lines += ["", LEGEND]
    return "\n".join(lines)


def _picture(cells: Sequence[Cell], seen: Sequence[str]) -> list[str]:
    """The cells that were seen, y upwards. The start cell is S unless the walk came back to it."""
    world = {(0, 0): "S", **dict(zip(cells, seen))}
    columns = range(min(x for x, _ in world), max(x for x, _ in world) + 1)
    rows = range(max(y for _, y in world), min(y for _, y in world) - 1, -1)
    width = max(len(name) for name in world.values())
    return ["  " + " ".join(world.get((x, y), "").ljust(width) for x in columns).rstrip() for y in rows]
