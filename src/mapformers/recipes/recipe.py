"""What a recipe is: cells to run, what is measured of each, and how the record of it is shown."""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mapformers import registry
from mapformers.errors import require, unknown
from mapformers.model import LayerSpec
from mapformers.recipes.measures import Curve, Measure, Splits
from mapformers.runs.config import RunConfig, Scale, TrainConfig, fields_of
from mapformers.tasks import TASKS, Task, build_task

if TYPE_CHECKING:
    from mapformers.recipes.claims import Claim
    from mapformers.recipes.views import View

Paper = tuple[float, float]  # mean and ± as printed
Key = tuple[str, str, int, str]  # row, world, seed, swept settings as text


@dataclass(frozen=True)
class Row:
    """A model of the table: a registered name (or the layers of a hybrid), and settings of its own.

    ``settings``  whatever `RunConfig.compose` takes by name: ``{"rank": 2, "lr": 1e-3}``.
    ``at_cpu``    more of them at `cpu` scale alone: what was chosen for its budget, such as a learning rate.
    ``seeds``     world -> those it is run on there unless others are asked for, where they are not the recipe's.
    ``worlds``    those it is run in, where they are not all of the recipe's.
    ``added``     not of the recipe's file (`Recipe.with_rows`): cell.json and the record say what it is.
    """

    label: str
    model: str | None
    settings: Mapping[str, Any] = field(default_factory=dict)
    layers: Sequence[LayerSpec] | None = None
    at_cpu: Mapping[str, Any] = field(default_factory=dict)
    seeds: Mapping[str, Sequence[int]] = field(default_factory=dict)
    worlds: Sequence[str] | None = None
    added: bool = False

    def is_in(self, world: str) -> bool:
        """Whether it is run in a world."""
        return self.worlds is None or world in self.worlds

    def to_dict(self) -> dict[str, Any]:
        """What it is, besides its label: plain data, which `from_dict` reads."""
        return {"model": self.model, "settings": dict(self.settings), "layers": self.layers}

    @classmethod
    def from_dict(cls, label: str, plain: Mapping[str, Any]) -> "Row":
        model, settings, layers = (plain.get(name) for name in ("model", "settings", "layers"))
        words = model is None or isinstance(model, str)
        right = words and isinstance(settings, Mapping) and (layers is None or isinstance(layers, list | tuple))
        require(right, f"What the row {label!r} is was not written by `mapformers reproduce`; run it anew.")
        return cls(label, model, dict(settings or {}), layers)


@dataclass(frozen=True)
class Cell:
    """One run of a recipe: a row in a world with a seed, at one value of each swept setting."""

    recipe: "Recipe"
    row: Row
    world: str
    seed: int
    sweep: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        return self.row.label, self.world, self.seed, sweep_text(self.sweep)

    @property
    def title(self) -> str:
        """What a person calls it."""
        return f"{line_label(self.row.label, self.sweep)}, {self.world}, seed {self.seed}"

    def config(self, scale: Scale) -> RunConfig:
        """The run behind it; a row's settings go over the world's, and swept ones over both."""
        recipe, cpu = self.recipe, scale == "cpu"
        world = {**recipe.worlds[self.world], **(recipe.at_cpu.get(self.world, {}) if cpu else {})}
        settings = {**world, **self.row.settings, **(self.row.at_cpu if cpu else {}), **self.sweep}
        defaults, layers = recipe.defaults.get(scale), self.row.layers
        return RunConfig.compose(
            recipe.task, self.row.model, scale, layers=layers, seed=self.seed, defaults=defaults, **settings
        )

    def to_dict(self, scale: Scale) -> dict[str, Any]:
        """What cell.json in its run folder says, and all a worker needs to know."""
        return {"recipe": self.recipe.name, "scale": scale, **self.place()}

    def place(self) -> dict[str, Any]:
        """Which cell of its recipe it is, and what its row is where the recipe's file does not say so."""
        place = {"row": self.row.label, "world": self.world, "seed": self.seed, "sweep": dict(self.sweep)}
        return {**place, "added": self.row.to_dict()} if self.row.added else place


@dataclass(frozen=True)
class Recipe:
    """Every row is trained once per world, seed and combination of swept settings.

    ``worlds``    name -> settings of the task, and of whatever else differs there.
    ``at_cpu``    more of them at `cpu` scale alone, by world: a budget of its own.
    ``defaults``  scale -> settings that go over the task's suggestions, in rows that have a use for them.
    ``measures``  what is kept of each finished run.
    ``views``     how the record of all runs is shown.
    ``sweep``     settings and the values each of them takes, crossed with rows and worlds.
    ``paper``     (line of the table, world, split) -> the figure that the paper prints.
    ``claims``    orderings and thresholds that the record is checked against.
    ``seeds``     those it is run on unless others are asked for. A recipe that is there to choose settings has seeds
                  that no table reports, and `reproduce all` leaves it out.
    ``chosen``    how its settings were chosen, for the top of its page.
    ``finding``   one sentence on the result; ``{row | world | split}`` stands for a measured figure.
    ``summary``   the first line of its file, unless given.
    """

    name: str
    task: str
    worlds: Mapping[str, Mapping[str, Any]]
    rows: Sequence[Row]
    measures: Sequence[Measure]
    views: "Sequence[View]"
    sweep: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    at_cpu: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    paper: Mapping[tuple[str, str, str], Paper] = field(default_factory=dict)
    claims: "Sequence[Claim]" = ()
    seeds: Sequence[int] = (0,)
    chosen: str = "All choices are made on the iid split; OOD splits are only reported."
    finding: str = ""
    summary: str = ""

    def __post_init__(self) -> None:
        require(bool(re.fullmatch(r"[\w-]+", self.name)), f"A recipe is named by one word, not {self.name!r}.")
        for what, names in (("rows", [row.label for row in self.rows]), ("measures", [m.name for m in self.measures])):
            require(len(names) == len(set(names)), f"Two {what} of recipe {self.name!r} have the same name.")
        for setting, values in self.sweep.items():
            require(len(values) > 0, f"Recipe {self.name!r} sweeps {setting} over no values; give at least one.")
        for world in (*self.at_cpu, *(world for row in self.rows for world in (*(row.worlds or ()), *row.seeds))):
            self.require_world(world)
        for claim in self.claims:
            claim.require_places(self)

    @property
    def splits(self) -> Mapping[str, str]:
        """split -> heading, of the splits that are measured."""
        return next((measure.headings for measure in self.measures if isinstance(measure, Splits)), {})

    @property
    def metric(self) -> str:
        """What is measured on the splits."""
        return next((measure.metric for measure in self.measures if isinstance(measure, Splits)), "accuracy")

    @property
    def also(self) -> Sequence[str]:
        """What else is measured on the splits."""
        return next((measure.also for measure in self.measures if isinstance(measure, Splits)), ())

    @property
    def comparable(self) -> Sequence[str]:
        """Those of `also` that the paper may have reported."""
        return next((measure.comparable for measure in self.measures if isinstance(measure, Splits)), ())

    @property
    def curve(self) -> Curve | None:
        """How its runs learned, if that is measured."""
        return next((measure for measure in self.measures if isinstance(measure, Curve)), None)

    @property
    def lower_is_better(self) -> bool:
        """Whether a smaller figure on a split is a better one."""
        return any(measure.lower_is_better for measure in self.measures if isinstance(measure, Splits))

    @property
    def has_players(self) -> bool:
        """Whether rules are measured beside models: they are sure of every answer, so a perplexity says nothing."""
        return not self.lower_is_better

    @property
    def chooses(self) -> bool:
        """Whether it is there to choose settings, on seeds that no table reports."""
        return 0 not in self.seeds

    def build_task(self, world: str) -> Task[Any]:
        """The task of a world; a world may also hold settings of the model and of training."""
        own = fields_of(TASKS[self.task].settings)
        return build_task(self.task, **{name: value for name, value in self.worlds[world].items() if name in own})

    def final_sequences(self, world: str, scale: Scale) -> int:
        """Sequences of every split on which runs in a world are measured, unless a row has its own number."""
        settings = {**self.build_task(world).training(scale), **self.defaults.get(scale, {}), **self.worlds[world]}
        settings |= self.at_cpu.get(world, {}) if scale == "cpu" else {}
        return int(settings.get("final_sequences", TrainConfig.final_sequences))

    def row(self, label: str) -> Row:
        for row in self.rows:
            if row.label == label:
                return row
        raise unknown(f"row of {self.name!r}", label, [row.label for row in self.rows])

    def with_rows(self, *rows: Row) -> "Recipe":
        """The same recipe with rows of one's own after its own.

        Examples:
            >>> from mapformers.recipes import RECIPES
            >>> table = RECIPES["table2"].with_rows(Row("MapWM-r3", "mapwm", {"rank": 3}))
        """
        taken = {row.label for row in self.rows}
        for row in rows:
            require(bool(row.label.strip()), "A row needs a label, as in: MapWM-r3=mapwm rank=3.")
            free = f"Recipe {self.name!r} already has a row {row.label!r}; choose another label."
            require(row.label not in taken, free)
            taken.add(row.label)
        return dataclasses.replace(self, rows=(*self.rows, *(dataclasses.replace(row, added=True) for row in rows)))

    def cell(self, label: str, world: str, seed: int = 0, **sweep: Any) -> Cell:
        """One cell by name."""
        self.require_world(world)
        swept = sorted(sweep) == sorted(self.sweep)
        require(swept, f"A cell of {self.name!r} is at one value of each of: {', '.join(self.sweep) or 'nothing'}.")
        return Cell(self, self.row(label), world, seed, {name: sweep[name] for name in self.sweep})

    def require_world(self, name: str) -> None:
        if name not in self.worlds:
            raise unknown(f"world of {self.name!r}", name, self.worlds)

    def cells(
        self,
        rows: Sequence[str] | None = None,
        seeds: int | Sequence[int] | None = None,
        worlds: Sequence[str] | None = None,
    ) -> Iterator[Cell]:
        """Every cell of some rows and worlds (all unless given), seed by seed; a number N of seeds is 0 to N-1.

        ``rows``  labels, or lines of the table, such as ``MapWM, lr=0.003``, where settings are swept.
        """
        for world in worlds or ():
            self.require_world(world)
        chosen = self._chosen([row.label for row in self.rows] if rows is None else rows)
        places = [(world, self.row(label)) for world in worlds or self.worlds for label in chosen]
        places = [(world, row) for world, row in places if row.is_in(world)]
        asked = range(seeds) if isinstance(seeds, int) else seeds
        own = [row.seeds.get(world, self.seeds) if asked is None else asked for world, row in places]
        for seed in dict.fromkeys(itertools.chain.from_iterable(own)):
            for (world, row), of_place in zip(places, own):
                for sweep in chosen[row.label] if seed in of_place else ():
                    yield Cell(self, row, world, seed, sweep)

    def _chosen(self, names: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """Labels of rows with the swept settings that are meant by them: all of a row, or that of one line."""
        lines = {line_label(row.label, sweep): (row.label, sweep) for row in self.rows for sweep in self.swept()}
        chosen: dict[str, list[dict[str, Any]]] = {}
        for name in names:
            label, sweep = lines.get(name, (name, None))
            found = chosen.setdefault(self.row(label).label, [])
            found += [each for each in self.swept() if sweep in (None, each) and each not in found]
        return chosen

    def swept(self) -> list[dict[str, Any]]:
        """Every combination of swept settings; a single empty one where nothing is swept."""
        return [dict(zip(self.sweep, values)) for values in itertools.product(*self.sweep.values())]

    def lines(self, world: str | None = None) -> list[str]:
        """The lines of its table (in one world): rows, each at every combination of swept settings."""
        rows = [row for row in self.rows if world is None or row.is_in(world)]
        return [line_label(row.label, sweep) for row in rows for sweep in self.swept()]

    def require_ready(self, worlds: Iterable[str] | None = None) -> None:
        """Refuse to begin where data of a world (any unless given), or files that a measure needs, are not there."""
        for world in self.worlds if worlds is None else worlds:
            _ = self.build_task(world).vocab_size
        for measure in self.measures:
            measure.require_ready()


def line_label(row: str, sweep: Mapping[str, Any]) -> str:
    """``MapWM, head_dim=16``: a row and where in a sweep it is."""
    return ", ".join([row, *(f"{name}={value}" for name, value in sweep.items())])


def sweep_text(sweep: Mapping[str, Any]) -> str:
    """A sweep as part of a cell's key; a tuple is written as the list that it is in a record."""
    values = {name: list(value) if isinstance(value, tuple) else value for name, value in sweep.items()}
    return ", ".join(f"{name}={value!r}" for name, value in sorted(values.items()))


RECIPES: registry.Registry[Recipe] = registry.RECIPES


def register_recipe(recipe: Recipe) -> Recipe:
    """Make a recipe known by name; its summary is that of its file unless it has one of its own."""
    if not recipe.summary and recipe.name in RECIPES:
        recipe = dataclasses.replace(recipe, summary=RECIPES.summary(recipe.name))
    RECIPES.add(recipe.name, recipe)
    return recipe
