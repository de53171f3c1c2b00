"""`analyse`: every figure and every number that a run has, in the order in which a reader wants them."""

from collections.abc import Callable, Iterator
from functools import partial

from mapformers.analysis import brackets, compositions, frequencies, learning, places, tokens, walks
from mapformers.analysis.finding import Missing, Outcome, Subject
from mapformers.stages import doing

ANY = (learning.curves, tokens.movements, tokens.values, learning.movement_curves, frequencies.velocities)
NAVIGATION = (walks.walks, places.rate_maps, places.revisits, compositions.compositions)
DYCK = (
    brackets.bracket_codes,
    brackets.bracket_attention,
    brackets.continuations,
    brackets.lengths_and_depths,
)
WORLD = (compositions.compositions,)


def analyses(task: str, string: str = brackets.STRING) -> list[Callable[[Subject], Outcome]]:
    """The analyses of a task, and of no other; each says whether the run's layers have what it takes."""
    own: dict[str, tuple[Callable[[Subject], Outcome], ...]] = {
        "navigation": NAVIGATION,
        "dyck": (partial(brackets.trajectory, string=string), *DYCK),
        "family-tree": WORLD,
        "graph": WORLD,
    }
    return [*ANY, *own.get(task, ())]


def analyse(subject: Subject, string: str = brackets.STRING) -> Iterator[Outcome]:
    """Every figure of a run, or why it has not got it."""
    with doing("analysing"):
        for look in analyses(subject.task.name, string):
            yield look(subject)


def as_json(outcomes: list[Outcome]) -> dict[str, object]:
    """Numbers by the name of their figure, and what is missing, with the reason."""
    return {
        "figures": {found.name: dict(found.numbers) for found in outcomes if not isinstance(found, Missing)},
        "missing": {found.name: found.why for found in outcomes if isinstance(found, Missing)},
    }
