"""`table2`: accuracy on 1D and 2D navigation (table 2 of the paper)."""

from mapformers.recipes.claims import At, Claim
from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import DEEP, DENSE, IID, LOG_N, NAVIGATION, SPARSE, figures, paper_figures, rate
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import BarView, CurveView, TableView

PRINTED = {  # 1D (iid, dense, sparse), 2D (iid, dense, sparse)
    "MapEM-o": ((0.14, 0.03), (0.20, 0.01), (0.12, 0.03), (0.16, 0.02), (0.08, 0.01), (0.08, 0.01)),
    "RoPE (1L)": ((0.25, 0.03), (0.40, 0.05), (0.16, 0.02), (0.46, 0.01), (0.52, 0.02), (0.39, 0.01)),
    "RoPE (4L)": ((0.95, 0.01), (0.97, 0.01), (0.70, 0.03), (0.82, 0.05), (0.87, 0.03), (0.68, 0.03)),
    "TAPE (1L)": ((0.23, 0.01), (0.40, 0.02), (0.15, 0.03), (0.37, 0.01), (0.45, 0.02), (0.35, 0.02)),
    "TAPE (4L)": ((0.93, 0.02), (0.96, 0.03), (0.67, 0.01), (0.65, 0.02), (0.68, 0.01), (0.53, 0.02)),
    "CoPE (1L)": ((0.63, 0.21), (0.71, 0.21), (0.47, 0.22), (0.65, 0.03), (0.71, 0.04), (0.56, 0.04)),
    "CoPE (4L)": ((0.88, 0.01), (0.91, 0.02), (0.65, 0.05), (0.76, 0.01), (0.86, 0.01), (0.70, 0.01)),
    "PathAtt (1L)": ((0.99, 0.00), (0.99, 0.00), (0.98, 0.00), (0.64, 0.04), (0.70, 0.05), (0.53, 0.05)),
    "MapWM-r1": ((1.00, 0.00), (1.00, 0.00), (1.00, 0.00), (0.66, 0.02), (0.74, 0.01), (0.62, 0.03)),
    "MapWM-r2": (*figures(1.00, 1.00, 1.00, 1.00, 1.00), (0.99, 0.01)),
    "MapEM-os": figures(1.00, 1.00, 1.00, 1.00, 1.00, 1.00),
    "MapEM-s": figures(1.00, 1.00, 1.00, 1.00, 1.00, 1.00),
}
PLACES = [(world, split) for world in ("1D", "2D") for split in (IID, DENSE, SPARSE)]
BASELINES = ("RoPE (1L)", "RoPE (4L)", "TAPE (1L)", "TAPE (4L)", "CoPE (1L)", "CoPE (4L)", "PathAtt (1L)")
OURS = ("MapWM-r2", "MapEM-os", "MapEM-s")
LATE = (
    'One seed of three has not finished learning when its sequences run out, and answers "empty" too often (its second '
    'score, without "empty", is above 0.99). The budget is 40,000 sequences, where the paper has 700,000.'
)
LONGER = (
    'Part of what is missing goes to "empty": the second score, which leaves it out of the argmax, is higher on every '
    "seed below 1. Attention over twice as many keys is flatter. In 2D, on one seed (`ablations`), logits that grow "
    "with log n close the gap of MapWM-r2, and a learned sharpness that of MapEM-os; four times the budget does not."
)

TABLE2 = register_recipe(
    Recipe(
        name="table2",
        task="navigation",
        worlds={"1D": {"dims": 1}, "2D": {"dims": 2}},
        rows=(
            Row("MapEM-o", "mapem", {"attend": "o"}, at_cpu=rate(1e-3)),
            Row("RoPE (1L)", "rope", at_cpu=rate(1e-3)),
            Row("RoPE (4L)", "rope", DEEP, at_cpu=rate(1e-3)),
            Row("TAPE (1L)", "tape", at_cpu=rate(1e-3)),
            Row("TAPE (4L)", "tape", DEEP, at_cpu=rate(1e-3)),
            Row("CoPE (1L)", "cope", at_cpu=rate(1e-3)),
            Row("CoPE (4L)", "cope", DEEP, at_cpu=rate(1e-3)),
            Row("PathAtt (1L)", "path"),
            Row("MapWM-r1", "mapwm", {"rank": 1}),
            Row("MapWM-r2", "mapwm", {"rank": 2}),
            Row("MapEM-os", "mapem", {"attend": "os"}),
            Row("MapEM-s", "mapem", {"attend": "s"}),
            Row("MapWM-r2, log n", "mapwm", {"rank": 2, **LOG_N}),
            Row("MapEM-os, log n", "mapem", {"attend": "os", **LOG_N}),
        ),
        measures=(Splits(NAVIGATION, also=("accuracy_objects",), comparable=("accuracy_objects",)), Curve()),
        views=(TableView(), BarView(), CurveView(together=True), CurveView()),
        paper=paper_figures(PRINTED, PLACES),
        claims=(
            *(
                Claim(
                    f"{row} recalls at least {least:g} on {NAVIGATION[split]} in {world}.",
                    At(row, world, split),
                    at_least=least,
                    finding=LONGER if split == SPARSE else LATE,
                )
                for world in ("1D", "2D")
                for row in OURS
                for split, least in ((IID, 0.99), (DENSE, 0.99), (SPARSE, 0.99))
            ),
            *(
                Claim(
                    f"{row} beats {baseline} in larger, emptier {world} worlds.",
                    At(row, world, SPARSE),
                    At(baseline, world, SPARSE),
                )
                for world in ("1D", "2D")
                for row in OURS
                for baseline in BASELINES
            ),
            Claim(
                "In 2D, MapWM of rank 2 recalls at least 0.1 more than of rank 1.",
                At("MapWM-r2", "2D", IID),
                At("MapWM-r1", "2D", IID),
                margin=0.1,
            ),
            *(
                Claim(
                    f"In 1D, rank 1 is enough for MapWM, on {NAVIGATION[split]}.",
                    At("MapWM-r1", "1D", split),
                    at_least=0.99,
                    finding=LONGER,
                )
                for split in (IID, DENSE, SPARSE)
            ),
            Claim(
                "PathAtt recalls at least 0.1 more in 1D than in 2D.",
                At("PathAtt (1L)", "1D", IID),
                At("PathAtt (1L)", "2D", IID),
                margin=0.1,
            ),
            Claim("One layer of CoPE falls short even in 1D: at most 0.9.", At("CoPE (1L)", "1D", IID), at_most=0.9),
            *(
                Claim(
                    f"{name} recalls more with four layers than with one in {world}.",
                    At(f"{name} (4L)", world, IID),
                    At(f"{name} (1L)", world, IID),
                )
                for name in ("RoPE", "TAPE", "CoPE")
                for world in ("1D", "2D")
            ),
            Claim(
                "RoPE recalls more than MapEM-o, which has no position.",
                At("RoPE (1L)", "2D", IID),
                At("MapEM-o", "2D", IID),
            ),
        ),
        finding="In larger and emptier 2D worlds than it was trained in, MapWM with a map of two dimensions recalls "
        "{MapWM-r2 | 2D | ood-sparse} of what it saw, RoPE {RoPE (1L) | 2D | ood-sparse}.",
    )
)
