"""`table1`: selective copy, with fewer and more blanks than in training (table 1 of the paper)."""

from mapformers.recipes.claims import At, Claim
from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import DENSE, IID, SPARSE, THREE, figures, paper_figures, rate
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import BarView, CurveView, TableView

WORLD = "128 symbols"
PRINTED = {
    "MapEM-o": ((0.11, 0.02), (0.08, 0.03), (0.07, 0.02)),
    "MapEM-s": ((0.10, 0.01), (0.11, 0.01), (0.10, 0.01)),
    "RoPE": ((1.00, 0.00), (0.48, 0.04), (0.22, 0.05)),
    "TAPE": ((1.00, 0.00), (0.88, 0.05), (0.10, 0.07)),
    "CoPE": figures(1.00, 1.00, 1.00),
    "PathAtt": figures(1.00, 1.00, 1.00),
    "MapWM": figures(1.00, 1.00, 1.00),
    "MapEM-os": figures(1.00, 1.00, 1.00),
}
INTEGRATE = ("MapWM", "MapEM-os", "CoPE", "PathAtt")
LARGER_BATCHES = {"batch_size": 32}  # with which PathAtt learns more (docs/fidelity.md); the other rows have 16
TWICE = "MapEM-os, twice the budget"  # on the seed that finds the gate last
LATE = (
    "The budget is 32,000 sequences, where the paper has 100,000. Runs differ in when they find the gate, and those "
    "that find it late do worst."
)
SHORT = "The budget is 32,000 sequences, where the paper has 100,000, and it was still learning at the end."

POSITION_IS_ENOUGH = (
    "What is copied lies 127 symbols back, whatever it is. To look there takes a path that does not move at blanks, "
    "and no comparison of content: values carry the symbol. With origins that start independently MapEM-s learns it "
    "about as well as MapEM-os. The paper does not say why its own fails."
)
BLANKS = ((DENSE, "half"), (SPARSE, "twice"))

TABLE1 = register_recipe(
    Recipe(
        name="table1",
        task="selective-copy",
        worlds={WORLD: {}},
        rows=(
            Row("MapEM-o", "mapem", {"attend": "o"}, at_cpu=rate(3e-4)),
            Row("MapEM-s", "mapem", {"attend": "s"}, at_cpu=rate(1e-3)),
            Row("RoPE", "rope", at_cpu=rate(1e-3)),
            Row("TAPE", "tape", at_cpu=rate(3e-3)),
            Row("CoPE", "cope", at_cpu=rate(1e-3)),
            Row("PathAtt", "path", at_cpu={**rate(3e-3), **LARGER_BATCHES}),
            Row("MapWM", "mapwm", at_cpu=rate(1e-3)),
            Row("MapEM-os", "mapem", {"attend": "os"}, at_cpu=rate(1e-3)),
            Row(TWICE, "mapem", {"attend": "os"}, at_cpu={**rate(1e-3), "sequences": 64_000}, seeds={WORLD: (2,)}),
        ),
        measures=(Splits(THREE, also=("exact_match", "free_accuracy")), Curve()),
        views=(TableView(), BarView(), CurveView()),
        paper=paper_figures(PRINTED, [(WORLD, split) for split in THREE]),
        claims=(
            *(
                Claim(f"{row} copies at least 0.99 in order.", At(row, WORLD, IID), at_least=0.99, finding=finding)
                for row, finding in (*((row, LATE) for row in INTEGRATE), ("RoPE", SHORT), ("TAPE", SHORT))
            ),
            *(
                Claim(
                    f"{row} copies at least 0.99 with {much} the blanks of training.",
                    At(row, WORLD, split),
                    at_least=0.99,
                    finding=LATE,
                )
                for row in INTEGRATE
                for split, much in BLANKS
            ),
            *(
                Claim(
                    f"{row} copies at most 0.9 with {much} the blanks of training.", At(row, WORLD, split), at_most=0.9
                )
                for row in ("RoPE", "TAPE")
                for split, much in BLANKS
            ),
            *(
                Claim(
                    f"{row} copies more than {baseline} with {much} the blanks of training.",
                    At(row, WORLD, split),
                    At(baseline, WORLD, split),
                )
                for row in ("MapWM", "MapEM-os")
                for baseline in ("RoPE", "TAPE")
                for split, much in BLANKS
            ),
            Claim(
                "TAPE copies more than RoPE with half the blanks of training.",
                At("TAPE", WORLD, DENSE),
                At("RoPE", WORLD, DENSE),
            ),
            *(
                Claim(
                    f"MapEM-os, which compares content too, copies more than MapEM-s, on {THREE[split]}.",
                    At("MapEM-os", WORLD, split),
                    At("MapEM-s", WORLD, split),
                    finding=POSITION_IS_ENOUGH,
                )
                for split in THREE
            ),
            Claim("MapEM-o, which has no position, copies at most 0.5.", At("MapEM-o", WORLD, IID), at_most=0.5),
            Claim(
                "MapEM-s, which compares position alone, copies at most 0.5.",
                At("MapEM-s", WORLD, IID),
                at_most=0.5,
                finding=POSITION_IS_ENOUGH,
            ),
        ),
        finding=f"With twice the blanks of training MapWM copies {{MapWM | {WORLD} | ood-sparse}}, RoPE "
        f"{{RoPE | {WORLD} | ood-sparse}}.",
    )
)
