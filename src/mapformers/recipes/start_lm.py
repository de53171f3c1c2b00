"""`start-lm`: what a path needs to bear RoPE's rate on text, one thing changed at a time, on seed 100 (to choose)."""

from mapformers.recipes.language import AS_IN_THE_PAPER, AS_ROPE, SLOWER
from mapformers.recipes.rates_lm import BOOKS, CHOSEN, MEASURES, WORLD
from mapformers.recipes.recipe import Recipe, Row, register_recipe
from mapformers.recipes.views import TableView

RATE = 1.2e-2  # the best of RoPE in `rates-lm`

START_LM = register_recipe(
    Recipe(
        name="start-lm",
        task="text",
        worlds={WORLD: {**BOOKS, "lr": RATE}},
        rows=(
            Row("RoPE", "rope"),
            Row("MapWM, paper", "mapwm", AS_IN_THE_PAPER),
            Row("a tenth of the rate", "mapwm", {**AS_IN_THE_PAPER, "path_lr": 0.1}),
            Row("and ω_max 0.5", "mapwm", {**AS_IN_THE_PAPER, "path_lr": 0.1, "omega_max": 0.5}),
            Row("MapWM, from RoPE", "mapwm", AS_ROPE),
            Row("the whole rate", "mapwm", {**AS_ROPE, "path_lr": 1.0}),
            Row("a thirtieth of the rate", "mapwm", SLOWER),
            Row("a hundredth of the rate", "mapwm", {**AS_ROPE, "path_lr": 0.01}),
            Row("with weight decay", "mapwm", {**AS_ROPE, "path_decay": 1.0}),
        ),
        seeds=(100,),
        measures=MEASURES,
        chosen=CHOSEN,
        views=(TableView(),),
        finding=f"At a rate of {RATE:g} RoPE has a perplexity of {{RoPE | books | val}}. MapWM that starts as RoPE has "
        "{MapWM, from RoPE | books | val} with a tenth of the rate for its path, and "
        "{a hundredth of the rate | books | val} with a hundredth.",
    )
)
