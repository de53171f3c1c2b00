"""What the recipes of language share: the size of their models, how a path starts, and what was chosen by them.

`rates-lm` and `start-lm` measure rates and starts on text of their own; what they choose is written here, and `lm`
takes it from here.
"""

from typing import Any

from mapformers.recipes.measures import Splits

VAL = "val"
SEQUENCES = 6_400  # of a run of `lm`: 1.6 million tokens
SMALL: dict[str, Any] = {"d_model": 128, "n_layers": 4, "n_heads": 4, "context": 256}
PERPLEXITY = Splits({VAL: "perplexity"}, metric="perplexity", lower_is_better=True)

# As B.5 has it; what the paper does not say (ω_max, the start) is as in our other tables.
AS_IN_THE_PAPER: dict[str, Any] = {"path_start": "random", "path_lr": 1.0, "path_decay": 1.0}
AS_ROPE: dict[str, Any] = {"path_start": "rope", "path_lr": 0.1, "path_decay": 0.0}
SLOWER: dict[str, Any] = {**AS_ROPE, "path_lr": 0.03}

# What `start-lm` and `rates-lm-whole` chose (docs/fidelity.md). A slower path was no better with the whole budget.
TUNED = AS_ROPE
RATE_AS_IN_THE_PAPER = 5e-3  # of a path that starts at random, which does not bear more
RATE_OF_ROPE = 8e-3  # of NoPE, CoPE and PathAtt too, for which none is searched
RATE_TUNED = 8e-3  # of every path that starts as RoPE


def hybrid(*names: str) -> dict[str, Any]:
    """The layers of a tuned hybrid, and what training is told of its paths: arguments of a row."""
    training = {name: value for name, value in TUNED.items() if name in ("path_lr", "path_decay")}
    options = {name: value for name, value in TUNED.items() if name not in training}
    return {"model": None, "settings": training, "layers": [(name, options) for name in names]}
