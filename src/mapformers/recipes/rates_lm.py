"""`rates-lm`: RoPE and MapWM on a part of the books at seven learning rates, on seed 100 (to choose).

The text is the training part of the books alone, of which `mapformers lm prepare` holds some back to measure on
(docs/language.md has the command): what the table of language reports on is not read here.

Runs have half of the budget of `lm`. `rates-lm-whole` has the best of them with all of it, and decides.
"""

from mapformers.recipes.language import AS_IN_THE_PAPER, AS_ROPE, PERPLEXITY, SMALL, VAL
from mapformers.recipes.measures import Curve
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import LineView, TableView

RATES = (8e-4, 1.5e-3, 3e-3, 5e-3, 8e-3, 1.2e-2, 2e-2)  # up to 8e-3 RoPE was best at the highest, so two follow
BOOKS = {**SMALL, "data": "data/books-rates", "batch_size": 16, "sequences": 3_200, "eval_sequences": 64}
WORLD = "books"
CHOSEN = (
    "Measured on documents held back from the training text of `lm`, of which nothing that `lm` reports on is a part."
)
MEASURES = (PERPLEXITY, Curve("perplexity", True))


def at_every_rate(row: str) -> str:
    """Where the sentence of the recipe has the figures of a row."""
    return ", ".join(f"{{{row}, lr={rate:g} | {WORLD} | {VAL}}}" for rate in RATES)


RATES_LM = register_recipe(
    Recipe(
        name="rates-lm",
        task="text",
        worlds={WORLD: BOOKS},
        rows=(
            Row("RoPE", "rope"),
            Row("MapWM, paper", "mapwm", AS_IN_THE_PAPER),
            Row("MapWM, from RoPE", "mapwm", AS_ROPE),
        ),
        seeds=(100,),
        sweep={"lr": RATES},
        measures=MEASURES,
        chosen=CHOSEN,
        views=(TableView(), LineView("lr", split=VAL, log=True)),
        finding=f"With half of the budget, at rates of {', '.join(f'{rate:g}' for rate in RATES)}, RoPE has a "
        f"perplexity of {at_every_rate('RoPE')}, "
        f"MapWM as in the paper {at_every_rate('MapWM, paper')}, and MapWM that starts as "
        f"RoPE {at_every_rate('MapWM, from RoPE')}.",
    )
)
