"""Claims: the orderings and thresholds that carry an argument, each checked against the record."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mapformers.errors import require, unknown
from mapformers.evaluation.aggregate import Summary, summarise
from mapformers.evaluation.significance import welch
from mapformers.recipes.measures import Figures, GridMeasure
from mapformers.recipes.recipe import Recipe
from mapformers.recipes.record import runs_of, whole
from mapformers.reports.table import Table

PLAYER = "player: "


@dataclass(frozen=True)
class At:
    """A place of a recipe's results: a line in a world, and there

    a split              ``At("MapWM-r2", "2D", "ood-sparse")``, or of a player ``At("player: best-lag", "2D", "iid")``,
    a place of a grid    ``At("MapWM", "1 layer", grid="length x depth", row=128, column=12)``,
    of its iid curve     ``At("MapEM-os", "5D", after=100_000)``, in training sequences,
    or another figure    ``At("MapWM", "books", measure="contexts", figure="4096")``.
    """

    line: str
    world: str
    split: str | None = None
    grid: str | None = None
    row: Any = None
    column: Any = None
    after: int | None = None
    measure: str | None = None
    figure: str | None = None

    def __post_init__(self) -> None:
        given = [value for value in (self.split, self.grid, self.after, self.measure) if value is not None]
        wanted = "is a split, a grid with its row and column, after so many sequences, or a measure's figure"
        require(len(given) == 1, f"A place of {self.line!r} {wanted}; give one of them.")

    @property
    def player(self) -> str | None:
        """The rule-based player it is about; None where it is about a line of the table."""
        return self.line.removeprefix(PLAYER) if self.line.startswith(PLAYER) else None

    @property
    def place(self) -> str:
        """Where it is, besides the line: ``2D, ood-sparse``."""
        if self.after is not None:
            return f"{self.world}, iid after {self.after:,} sequences"
        if self.measure is not None:
            return f"{self.world}, {self.measure} {self.figure}"
        return f"{self.world}, {self.split or f'{self.grid} at {self.row}, {self.column}'}"

    def require_in(self, recipe: Recipe) -> None:
        """Refuse a place that the recipe does not have."""
        if self.player is None:
            _require_known(f"line of {recipe.name!r}", self.line, recipe.lines())
        else:
            require(self.split is not None, "Players are measured on splits; name one.")
        _require_known(f"world of {recipe.name!r}", self.world, recipe.worlds)
        if self.split is not None:
            _require_known(f"split of {recipe.name!r}", self.split, recipe.splits)
        elif self.measure is not None:
            _require_known(f"measure of {recipe.name!r}", self.measure, figures_of(recipe))
            _require_known(f"figure of {self.measure!r}", self.figure, figures_of(recipe)[self.measure].headings)
        elif self.after is not None:
            require(recipe.curve is not None, f"Recipe {recipe.name!r} measures no Curve to make a claim about.")
        else:
            grids = {each.name: each for each in recipe.measures if isinstance(each, GridMeasure)}
            _require_known(f"grid of {recipe.name!r}", self.grid, grids)
            grid = grids[str(self.grid)]
            _require_known(grid.rows, self.row, grid.row_values)
            _require_known(grid.columns, self.column, grid.column_values)

    def lower_is_better(self, recipe: Recipe) -> bool:
        """Whether a smaller figure is a better one there."""
        if self.after is not None:
            return recipe.curve is not None and recipe.curve.lower_is_better
        if self.measure is not None:
            return figures_of(recipe)[self.measure].lower_is_better
        return self.split is not None and recipe.lower_is_better

    def figures(self, recipe: Recipe, record: Mapping[str, Any]) -> Summary | None:
        """What was measured there over seeds; None where no run, or not every run, has a figure."""
        if self.player is not None:
            score = record.get("players", {}).get(self.world, {}).get(self.player, {}).get(self.split)
            return None if score is None else summarise([score])
        values = self.values(recipe, record)
        return summarise(values) if values else None

    def values(self, recipe: Recipe, record: Mapping[str, Any]) -> list[float]:
        """The figure of every seed; none where one of them has none."""
        return whole([self._value(recipe, run) for run in runs_of(record, self.line, self.world)])

    def _value(self, recipe: Recipe, run: Mapping[str, Any]) -> float | None:
        if self.split is not None:
            scores = run["splits"].get(self.split, {})
            return scores[recipe.metric]["value"] if recipe.metric in scores else None
        if self.after is not None:
            return recipe.curve.at(run, self.after) if recipe.curve else None
        if self.measure is not None:
            return figures_of(recipe)[self.measure].value(run, str(self.figure))
        [grid] = [each for each in recipe.measures if isinstance(each, GridMeasure) and each.name == self.grid]
        return grid.at(run, self.row, self.column) if grid.fits(grid.of(run)) else None


def figures_of(recipe: Recipe) -> dict[str, Figures]:
    """The measures of a recipe that have figures by name."""
    return {measure.name: measure for measure in recipe.measures if isinstance(measure, Figures)}


def _require_known(kind: str, name: object, known: Any) -> None:
    if name not in known:
        raise unknown(kind, name, map(str, known))


@dataclass(frozen=True)
class Claim:
    """One place is better than another by more than ``margin``; or the figure of one is ``at_least`` or ``at_most``.

    ``p_below``: a difference holds only if Welch's test over seeds has a smaller p; then several seeds are needed. Of
    figures such as a perplexity it compares logarithms, as the table of differences does.
    ``finding``: why it does not hold, and what was tried; shown where it does not.

    Examples:
        >>> place = At("MapWM-r2", "2D", "ood-sparse")
        >>> claim = Claim("A map carries over to larger worlds.", better=place, at_least=0.95)
    """

    text: str
    better: At
    worse: At | None = None
    margin: float = 0.0
    at_least: float | None = None
    at_most: float | None = None
    p_below: float | None = None
    finding: str = ""

    def __post_init__(self) -> None:
        given = [value for value in (self.worse, self.at_least, self.at_most) if value is not None]
        require(len(given) == 1, f"The claim {self.text!r} needs one of worse, at_least and at_most.")
        tested = self.p_below is None or self.worse is not None
        require(tested, f"The claim {self.text!r} compares nothing, so there is no p.")

    def require_places(self, recipe: Recipe) -> None:
        """Refuse a claim about what the recipe does not have."""
        for place in (self.better, self.worse):
            if place is not None:
                place.require_in(recipe)

    def slack(self, measured: float) -> float:
        """By how much more than wanted a difference, or a figure, is."""
        if self.at_most is not None:
            return self.at_most - measured
        return measured - (self.margin if self.at_least is None else self.at_least)

    def compared(self, recipe: Recipe) -> str:
        """``MapWM-r2 − RoPE (1L), 2D, ood-sparse``; where lower is better, what is taken from what is the other way."""
        if self.worse is None:
            return f"{self.better.line}, {self.better.place}"
        lower = self.better.lower_is_better(recipe)
        first, second = (self.worse, self.better) if lower else (self.better, self.worse)
        if first.place == second.place:
            return f"{first.line} − {second.line}, {first.place}"
        return f"{first.line}, {first.place} − {second.line}, {second.place}"

    @property
    def wanted(self) -> str:
        """``> 0.100``: what the figure, or the difference, must be."""
        if self.worse is not None:
            return f"> {self.margin:g}" + (f", p < {self.p_below:g}" if self.p_below is not None else "")
        return f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"


@dataclass(frozen=True)
class Check:
    """What became of a claim.

    ``measured``  the difference, or the figure; None where it was not measured.
    ``spread``    the standard deviation over seeds, pooled; None where there is one seed.
    ``p``         of Welch's test, where the claim asks for it.
    ``of_one``    the line that has one seed and is compared with one that has several: its spread is not known.
    """

    claim: Claim
    measured: float | None = None
    spread: float | None = None
    p: float | None = None
    of_one: str = ""

    @property
    def holds(self) -> bool | None:
        if self.measured is None:
            return None
        slack = self.claim.slack(self.measured)
        certain = self.claim.p_below is None or (self.p is not None and self.p < self.claim.p_below)
        return slack > 0 and certain if self.claim.worse is not None else slack >= 0

    @property
    def verdict(self) -> str:
        """``holds``, ``does not hold`` or ``not measured``, and whether seeds could have turned it round."""
        if self.measured is None:
            return "not measured"
        verdict = "holds" if self.holds else "does not hold"
        if self.claim.p_below is not None:
            return f"{verdict}, p = {self.p:.2g}"
        close = self.spread is not None and abs(self.claim.slack(self.measured)) < self.spread
        return verdict + (", within the spread" if close else "")

    @property
    def figure(self) -> str:
        """A difference with its sign, a figure without."""
        if self.measured is None:
            return "–"
        digits = 4 if abs(self.claim.slack(self.measured)) < 0.001 else 3  # no 0.990 that is not ≥ 0.99
        return f"{self.measured:{'+' if self.claim.worse is not None else ''}.{digits}f}"

    @property
    def spread_text(self) -> str:
        if self.measured is None:
            return "–"
        if self.spread is None:
            return "one seed"
        return f"{self.spread:.3f}" + (f", {self.of_one} has one seed" if self.of_one else "")


def check(claim: Claim, recipe: Recipe, record: Mapping[str, Any]) -> Check:
    """Measure a claim against a record."""
    better = claim.better.figures(recipe, record)
    if claim.worse is not None:
        worse = claim.worse.figures(recipe, record)
        if better is None or worse is None:
            return Check(claim)
        gain = worse.mean - better.mean if claim.better.lower_is_better(recipe) else better.mean - worse.mean
        if claim.p_below is None:
            alone = [side.line for side, found in ((claim.better, better), (claim.worse, worse)) if found.n == 1]
            of_one = alone[0] if len(alone) == 1 and not alone[0].startswith(PLAYER) else ""
            return Check(claim, gain, pooled([better, worse]), of_one=of_one)
        if min(better.n, worse.n) < 2:
            return Check(claim)
        sides = [place.values(recipe, record) for place in (claim.better, claim.worse)]
        if claim.better.lower_is_better(recipe) and min(map(min, sides)) > 0:
            sides = [list(map(math.log, values)) for values in sides]
        tested = welch(*sides)
        return Check(claim, gain, pooled([better, worse]), tested.p)
    return Check(claim) if better is None else Check(claim, better.mean, pooled([better]))


def pooled(groups: Sequence[Summary]) -> float | None:
    """The pooled standard deviation of groups of seeds: √(Σ (n − 1) s² / Σ (n − 1)); None if each is one seed."""
    free = sum(group.n - 1 for group in groups)
    return math.sqrt(sum((group.n - 1) * group.std**2 for group in groups) / free) if free else None


def checks(recipe: Recipe, record: Mapping[str, Any]) -> list[Check]:
    """Every claim of a recipe, checked."""
    return [check(claim, recipe, record) for claim in recipe.claims]


def claims_table(recipe: Recipe, record: Mapping[str, Any]) -> Table:
    """A line for each claim: what was compared, by how much, against the spread over seeds, and the verdict."""
    found = checks(recipe, record)
    rows = [
        [each.claim.text, each.claim.compared(recipe), each.figure, each.claim.wanted, each.spread_text, each.verdict]
        for each in found
    ]
    headings = ["claim", "compared", "measured", "wanted", "spread over seeds", "verdict"]
    notes = [f"{each.claim.text} {each.claim.finding}" for each in found if each.holds is False and each.claim.finding]
    title = f"{recipe.name}: what is claimed, and whether it holds"
    return Table(title, headings, rows, notes=notes, words=["claim", "compared", "verdict"])


def claims_sentence(recipe: Recipe, record: Mapping[str, Any]) -> str:
    """How many claims hold; nothing for a recipe without claims."""
    found = checks(recipe, record)
    held, missing = sum(each.holds is True for each in found), sum(each.holds is None for each in found)
    unknown_too = f", {missing} not measured" if missing else ""
    return f"{held} of {len(found)} claims hold{unknown_too}." if found else ""


def claims_that_fail(recipe: Recipe, record: Mapping[str, Any]) -> str:
    """A list of the claims that do not hold, with their figures; those that have one finding share an item."""
    by_finding: dict[str, list[Check]] = {}
    for each in checks(recipe, record):
        if each.holds is False:
            by_finding.setdefault(each.claim.finding, []).append(each)
    return "\n".join(
        f"- Does not hold: {' '.join(map(_measured, failed))} {finding}".strip()
        for finding, failed in by_finding.items()
    )


def _measured(check: Check) -> str:
    wanted = f"measured {check.figure}, wanted {check.claim.wanted}, spread over seeds {check.spread_text}"
    return f"{check.claim.text.removesuffix('.')} ({wanted})."
