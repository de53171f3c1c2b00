"""A walk as a person would read it: its tokens, and in one or two dimensions the part of the world it has seen."""

from collections.abc import Sequence

Cell = tuple[int, ...]
KEY = "[ ] a scored revisit"


def draw_walk(names: Sequence[str], displacement: Sequence[Cell], first_visit: Sequence[int], empty: str) -> str:
    """``names`` are a₁ o₁ a₂ o₂ …; ``displacement`` is where each action led, before the torus wraps it.

    Revisits to cells that are not empty, which are what is scored, stand in brackets.
    """
    actions, seen = names[0::2], names[1::2]
    pairs = []
    for time, (action, found) in enumerate(zip(actions, seen)):
        scored = first_visit[time] < time and found != empty
        pairs.append(f"{action} [{found}]" if scored else f"{action} {found}")
    lines = [", ".join(pairs[i : i + 16]) for i in range(0, len(pairs), 16)]
    if len(displacement[0]) <= 2:
        lines += ["", *_picture([(*cell, 0)[:2] for cell in displacement], seen)]
        start = "" if any(not any(cell) for cell in displacement) else "S start, "  # unless it was seen later
        lines += ["", f"{start}letters and dots what was seen (the torus unrolled), {KEY}"]
    else:
        lines += ["", KEY]
    return "\n".join(lines)


def _picture(cells: Sequence[Cell], seen: Sequence[str]) -> list[str]:
    """The seen part of the world, y upwards; the start cell is S unless it was seen later."""
    world = {(0, 0): "S", **dict(zip(cells, seen))}
    columns = range(min(x for x, _ in world), max(x for x, _ in world) + 1)
    rows = range(max(y for _, y in world), min(y for _, y in world) - 1, -1)
    width = max(len(name) for name in world.values())
    return ["  " + " ".join(world.get((x, y), "").ljust(width) for x in columns).rstrip() for y in rows]
