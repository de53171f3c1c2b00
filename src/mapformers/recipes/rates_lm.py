"""`rates-lm`: RoPE and MapWM on a part of the books at three learning rates, on seed 100 (to choose).

The text is the training part of the books alone, of which `mapformers lm prepare` holds some back to measure on
(docs/language.md has the command): what the table of language reports on is not read here.
"""

from mapformers.recipes.language import AS_IN_THE_PAPER, AS_ROPE, PERPLEXITY, SMALL
from mapformers.recipes.measures import Curve
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import TableView

RATES = (1.5e-3, 3e-3, 5e-3)
BOOKS = {**SMALL, "data": "data/books-rates", "batch_size": 16, "sequences": 3_200, "eval_sequences": 64}
WORLD = "books"
MEASURES = (PERPLEXITY, Curve("perplexity", True))

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
        views=(TableView(),),
        finding="At a rate of 1.5e-3, 3e-3 and 5e-3 RoPE has a perplexity of {RoPE, lr=0.0015 | books | val}, "
        "{RoPE, lr=0.003 | books | val} and {RoPE, lr=0.005 | books | val}, and MapWM that starts as RoPE "
        "{MapWM, from RoPE, lr=0.0015 | books | val}, {MapWM, from RoPE, lr=0.003 | books | val} and "
        "{MapWM, from RoPE, lr=0.005 | books | val}.",
    )
)
