"""`batches-dims`: MapEM in three dimensions with batches of 32 and of 16, on seeds 100 and 101 (to choose).

As many sequences, and twice the steps. With batches of 32 a run in three dimensions may give opposite actions the same
movement, and never find back; which runs do differs from seed to seed.
"""

from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import IID
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import TableView

BATCHES_DIMS = register_recipe(
    Recipe(
        name="batches-dims",
        task="navigation",
        worlds={"3D": {"dims": 3}},
        rows=(Row("MapEM-os", "mapem"), Row("MapEM-s", "mapem", {"attend": "s"})),
        seeds=(100, 101),
        sweep={"batch_size": (16, 32)},
        measures=(Splits({IID: "IID"}), Curve()),
        views=(TableView(),),
        finding="With batches of 16 and 32 MapEM-os has {MapEM-os, batch_size=16 | 3D | iid} and "
        "{MapEM-os, batch_size=32 | 3D | iid} on iid sequences, MapEM-s {MapEM-s, batch_size=16 | 3D | iid} and "
        "{MapEM-s, batch_size=32 | 3D | iid}.",
    )
)
