"""`ssm`: state-space models on 2D navigation with 32 steps, and what holds MAmPa back (A.6)."""

from mapformers.layers.mampa import LITERAL
from mapformers.recipes.claims import At, Claim
from mapformers.recipes.measures import Curve, Splits
from mapformers.recipes.paper_tables import IID, SPARSE, THREE, figures, paper_figures, rate
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import BarView, CurveView, TableView

WORLD = "2D, 32 steps"
PRINTED = {
    "Mamba": ((0.38, 0.02), (0.66, 0.03), (0.30, 0.01)),
    "MAmPa": ((0.84, 0.03), (0.96, 0.03), (0.71, 0.04)),
    "MapWM": figures(1.00, 1.00, 1.00),
    "MapEM-os": figures(1.00, 1.00, 1.00),
    "MapEM-s": figures(1.00, 1.00, 1.00),
}

NO_DILUTION = (
    "A sum over keys without softmax is not flattened by more keys, and in larger worlds the two are level; what the "
    "softmax adds is on iid."
)
AS_GOOD = (
    "With a signed movement, an input that the step does not scale and no convolution MAmPa learns the map on every "
    "seed, so on 32 steps it is level with the MapFormers; the paper's MAmPa (0.84) is not. MapEM-s, whose keys have "
    "no content, loses most in larger worlds."
)

SSM = register_recipe(
    Recipe(
        name="ssm",
        task="navigation",
        worlds={WORLD: {"dims": 2, "steps": 32}},
        rows=(
            Row("Mamba", "mamba", {"d_state": 32}, at_cpu=rate(3e-3)),
            Row("Mamba-2", "mamba2", {"d_state": 32}, at_cpu=rate(1e-3)),
            Row("MAmPa, literal", "mampa", LITERAL, at_cpu=rate(3e-3)),
            Row("MAmPa, literal, no convolution", "mampa", {**LITERAL, "conv": False}, at_cpu=rate(3e-3)),
            Row("MAmPa", "mampa", at_cpu=rate(3e-3)),
            Row("MAmPa with convolution", "mampa", {"conv": True}, at_cpu=rate(3e-3)),
            Row("MapWM without softmax", "mapwm", {"softmax": False}, at_cpu=rate(3e-3)),
            Row("MapWM", "mapwm", at_cpu=rate(3e-3)),
            Row("MapEM-os", "mapem", at_cpu=rate(3e-3)),
            Row("MapEM-s", "mapem", {"attend": "s"}, at_cpu=rate(1e-3)),
        ),
        measures=(Splits(THREE, also=("accuracy_objects",), comparable=("accuracy_objects",)), Curve()),
        views=(TableView(), BarView(), CurveView()),
        paper=paper_figures(PRINTED, [(WORLD, split) for split in THREE]),
        claims=(
            Claim("MAmPa recalls more than Mamba.", At("MAmPa", WORLD, IID), At("Mamba", WORLD, IID)),
            Claim("MAmPa recalls at least the printed 0.84.", At("MAmPa", WORLD, IID), at_least=0.84),
            Claim(
                "Mamba with a rotation for A, and nothing else changed, recalls more than Mamba.",
                At("MAmPa, literal", WORLD, IID),
                At("Mamba", WORLD, IID),
                finding="A step Δ = softplus(·) is positive, so no action undoes another, and an input scaled by Δ is "
                "not written where nothing moves, as at observations. With a signed movement and an input that Δ "
                "does not scale it learns the map (row MAmPa).",
            ),
            *(
                Claim(
                    f"MapWM recalls more with softmax than without, on {THREE[split]}.",
                    At("MapWM", WORLD, split),
                    At("MapWM without softmax", WORLD, split),
                    finding=NO_DILUTION,
                )
                for split in (IID, SPARSE)
            ),
            Claim(
                "MAmPa recalls more without the convolution than with it.",
                At("MAmPa", WORLD, IID),
                At("MAmPa with convolution", WORLD, IID),
            ),
            *(
                Claim(
                    f"{row} recalls more than MAmPa, on {THREE[split]}.",
                    At(row, WORLD, split),
                    At("MAmPa", WORLD, split),
                    finding=AS_GOOD,
                )
                for row in ("MapWM", "MapEM-os", "MapEM-s")
                for split in (IID, SPARSE)
            ),
        ),
        finding=f"On fresh iid sequences Mamba recalls {{Mamba | {WORLD} | iid}}, MAmPa {{MAmPa | {WORLD} | iid}} and "
        f"MapWM {{MapWM | {WORLD} | iid}}.",
    )
)
