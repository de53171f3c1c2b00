"""`dyck`: valid continuations of Dyck-2, at lengths and depths beyond training (figs. 2a, 2b, B.4)."""

from dataclasses import replace

from mapformers.recipes.claims import At, Claim
from mapformers.recipes.measures import Curve, GridMeasure, Splits
from mapformers.recipes.paper_tables import IID, TWO, rate
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import CurveView, GridView, SliceView, TableView

ONE_LAYER, TWO_LAYERS = "1 layer", "2 layers"
F1 = GridMeasure("length", (32, 48, 64, 96, 128), "depth", (4, 6, 8, 12, 16), "f1", n_sequences=128, label="F1")
CLOSER = replace(F1, metric="closer_accuracy", label="closer accuracy")
OURS = ("MapWM", "MapEM-os", "MapEM-s")
SPLITS = {
    IID: "IID",
    "ood-long": "L 128, D 4",
    "ood-deep": "L 32, D 12",
    "ood-long-deep": "L 128, D 12",
    "ood-long-deeper": "L 128, D 16",
}

BY_LENGTH = (
    "Depth alone costs less: at length 32 and depth 12 it is right more often (the grid of closer accuracy). A long "
    "word returns to a depth many times, and the last opener of that depth has to win against all before it. What "
    "log n does here has not been tried."
)

NO_NEED = (
    "With d_model hidden units the Stack-RNN fits words of depth 4 by its hidden state alone, as the LSTM does, and "
    "nothing makes it use its stack. The one in the literature has 8 hidden units (docs/fidelity.md); smaller ones "
    "were not tried."
)

DYCK = register_recipe(
    Recipe(
        name="dyck",
        task="dyck",
        worlds={ONE_LAYER: {}, TWO_LAYERS: TWO},
        rows=(
            Row("RoPE", "rope", at_cpu=rate(3e-3)),
            Row("TAPE", "tape", at_cpu=rate(3e-3)),
            Row("CoPE", "cope", at_cpu=rate(1e-3)),
            Row("PathAtt", "path", at_cpu=rate(1e-3)),
            Row("MapWM", "mapwm", at_cpu=rate(3e-3)),
            Row("MapEM-os", "mapem", {"attend": "os"}, at_cpu=rate(3e-3)),
            Row("MapEM-s", "mapem", {"attend": "s"}, at_cpu=rate(1e-3)),
            Row("LSTM", "lstm", at_cpu=rate(3e-3)),
            Row("Stack-RNN", "stack-rnn", at_cpu=rate(3e-3)),
            Row("RoPE, next token", "rope", {"loss": "next-token"}, at_cpu=rate(3e-3)),
            Row("MapWM, next token", "mapwm", {"loss": "next-token"}, at_cpu=rate(3e-3)),
        ),
        measures=(Splits(SPLITS, metric="f1", also=("closer_accuracy",)), Curve("f1"), F1, CLOSER),
        views=(
            TableView(),
            SliceView(F1, along="length", at=4, trained=32),
            SliceView(F1, along="depth", at=32, trained=4),
            SliceView(CLOSER, along="length", at=4, trained=32),
            SliceView(CLOSER, along="depth", at=32, trained=4),
            GridView(F1),
            GridView(CLOSER),
            CurveView(),
        ),
        claims=(
            *(
                Claim(
                    f"One layer of {row} has an F1 of at least {least} at {place}.",
                    At(row, ONE_LAYER, split),
                    at_least=least,
                )
                for row in OURS
                for split, place, least in (
                    ("ood-long", "length 128, depth 4", 0.99),
                    ("ood-deep", "length 32, depth 12", 0.99),
                    ("ood-long-deep", "length 128, depth 12", 0.98),
                )
            ),
            *(
                Claim(
                    f"One layer of {row} names the right closer in at least 0.98 of cases at length 128, depth 12.",
                    At(row, ONE_LAYER, grid=CLOSER.name, row=128, column=12),
                    at_least=0.98,
                    finding=BY_LENGTH,
                )
                for row in OURS
            ),
            *(
                Claim(
                    f"One layer of {ours} has a higher F1 than {layers} of {row} at length 128, depth 12.",
                    At(ours, ONE_LAYER, "ood-long-deep"),
                    At(row, world, "ood-long-deep"),
                )
                for ours in OURS
                for row in ("RoPE", "TAPE", "CoPE", "PathAtt")
                for layers, world in (("one layer", ONE_LAYER), ("two layers", TWO_LAYERS))
            ),
            *(
                Claim(
                    f"{row} names the right closer more often with two layers than with one, as trained.",
                    At(row, TWO_LAYERS, grid=CLOSER.name, row=32, column=4),
                    At(row, ONE_LAYER, grid=CLOSER.name, row=32, column=4),
                )
                for row in ("RoPE", "TAPE", "CoPE", "PathAtt")
            ),
            Claim(
                "The Stack-RNN has a higher F1 than the LSTM in words deeper than trained.",
                At("Stack-RNN", ONE_LAYER, "ood-deep"),
                At("LSTM", ONE_LAYER, "ood-deep"),
                finding=NO_NEED,
            ),
            Claim("Two layers of RoPE have an F1 of at least 0.99 on iid.", At("RoPE", TWO_LAYERS, IID), at_least=0.99),
            Claim(
                "Two layers of RoPE have an F1 of at most 0.95 at length 128, depth 12.",
                At("RoPE", TWO_LAYERS, "ood-long-deep"),
                at_most=0.95,
                finding="F1 asks only that the right closer is more likely than all wrong tokens together. A player "
                "that counts open brackets and has no stack scores above 0.95, too; closer accuracy tells them apart, "
                'and so does the loss on the next token (rows "next token").',
            ),
        ),
        finding=f"At length 128 and depth 12 one layer of MapWM has an F1 of {{MapWM | {ONE_LAYER} | ood-long-deep}}, "
        f"one layer of RoPE {{RoPE | {ONE_LAYER} | ood-long-deep}}, two layers "
        f"{{RoPE | {TWO_LAYERS} | ood-long-deep}}. "
        "That two layers of RoPE fall below 0.95 holds only where the next token is predicted in place of the valid "
        f"set: {{RoPE, next token | {TWO_LAYERS} | ood-long-deep}}, MapWM "
        f"{{MapWM, next token | {TWO_LAYERS} | ood-long-deep}}.",
    )
)
