"""Marks in tables: a sign behind a label or a figure, and what it means in a note under the table."""

from collections.abc import Iterable

MARKS = {
    "above": "↑",
    "below": "↓",
    "mapless": "‡",
    "learning": "↗",
    "changed": "†",
    "otherwise": "§",
    "unrecorded": "°",
}
MEANINGS = {
    "↑": "more than 0.05 above the paper's figure.",
    "↓": "more than 0.05 below the paper's figure.",
    "‡": "worse than the best player without a map on that split.",
    "↗": "a seed was still learning when its training ended: not converged.",
    "†": "the sources that decide it have changed since it was measured.",
    "§": "run with other settings than the recipe has now.",
    "°": "measured before sources were recorded.",
}
TOLERANCE = 0.05  # how far a figure may be from the paper's without a mark


def marked(text: str, states: Iterable[str]) -> str:
    """A text with the marks of what is behind it, such as "changed"; a state without a mark adds nothing."""
    states = set(states)
    marks = "".join(mark for state, mark in MARKS.items() if state in states)
    return f"{text} {marks}" if marks else text


def against(ours: float, printed: float) -> str:
    """How a figure compares with the paper's: "above", "below" or "near"."""
    difference = ours - printed
    if abs(difference) <= TOLERANCE + 1e-9:  # 0.95 is not more than 0.05 below 1.00
        return "near"
    return "above" if difference > 0 else "below"


def footnotes(texts: Iterable[str]) -> list[str]:
    """What the marks mean that stand behind any of the texts."""
    last_words = {text.rsplit(" ", 1)[-1] for text in texts if " " in text}
    used = {mark for word in last_words if set(word) <= set(MEANINGS) for mark in word}
    return [f"{mark} {meaning}" for mark, meaning in MEANINGS.items() if mark in used]
