"""`recall`: how much MapEM and MapWM can hold, by size of head, length and number of objects (C.3)."""

from mapformers.recipes.claims import At, Claim
from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import IID
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import AlongWorlds, TableView

HEADS, STEPS, OBJECTS = (16, 32, 48, 64, 128), (16, 64, 128, 384), (10, 100, 1000, 10_000)


def by_head(size: int) -> str:
    return f"head of {size}"


def by_length(steps: int) -> str:
    return f"{steps} steps"


def by_objects(number: int) -> str:
    return f"{number} objects"


ROWS = ("MapWM", "MapEM-os", "MapEM-s")
SPLITS = {IID: "train accuracy (fresh iid sequences)"}

WORLDS = {
    **{by_head(n): {"steps": 256, "d_model": n, "head_dim": n} for n in HEADS},
    **{by_length(n): {"steps": n, "d_model": 48, "head_dim": 48} for n in STEPS},
    **{by_objects(n): {"steps": 16, "n_objects": n, "d_model": 32, "head_dim": 32} for n in OBJECTS},
}

RECALL = register_recipe(
    Recipe(
        name="recall",
        task="navigation",
        worlds=WORLDS,
        at_cpu={world: {"sequences": 15_000} for world in WORLDS},
        rows=(Row("MapWM", "mapwm"), Row("MapEM-os", "mapem"), Row("MapEM-s", "mapem", {"attend": "s"})),
        measures=(Splits(SPLITS), Curve()),
        views=(
            AlongWorlds("size of the head", {n: by_head(n) for n in HEADS}, log=True),
            AlongWorlds("steps of a walk", {**{n: by_length(n) for n in STEPS}, 256: by_head(48)}),
            AlongWorlds("number of objects", {n: by_objects(n) for n in OBJECTS}, log=True),
            TableView(),
        ),
        claims=(
            *(
                Claim(
                    f"{row} recalls more than MapWM with a head of 32.",
                    At(row, by_head(32), IID),
                    At("MapWM", by_head(32), IID),
                )
                for row in ROWS[1:]
            ),
            *(
                Claim(
                    f"{row} recalls more than MapWM on walks of 384 steps.",
                    At(row, by_length(384), IID),
                    At("MapWM", by_length(384), IID),
                )
                for row in ROWS[1:]
            ),
            *(
                Claim(
                    f"{row} recalls more than MapWM among 1000 objects.",
                    At(row, by_objects(1000), IID),
                    At("MapWM", by_objects(1000), IID),
                )
                for row in ROWS[1:]
            ),
        ),
        finding=f"With a head of 32, MapWM recalls {{MapWM | {by_head(32)} | iid}} of 256 steps, MapEM-s "
        f"{{MapEM-s | {by_head(32)} | iid}}.",
    )
)
