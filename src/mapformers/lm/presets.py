"""The sizes and settings of `mapformers lm train`, one set for each preset; whatever is given goes over them.

A setting that a model has no use for (a rank for `rope`) is left out. What a preset does not say is as the task `text`
has it for the scale of the same name (`lm/text.py`).
"""

from typing import Any

from mapformers.errors import unknown

# The paper's table B.5. What it leaves open is nanoGPT's, which it names: a tied head, ordinary initialisation, and the
# path is trained as everything else is.
PAPER: dict[str, Any] = {
    "context": 1024,
    "d_model": 768,
    "n_layers": 12,
    "n_heads": 12,
    "tie_head": True,
    "init": "ordinary",
    "rank": 4,
    "base": 1024.0,
    "path_start": "random",
    "path_lr": 1.0,
    "path_decay": 1.0,
}

PRESETS: dict[str, dict[str, Any]] = {
    "paper": PAPER,
    # The rate that `rates-lm-whole` chose for RoPE and for a path that starts as RoPE, at this size.
    "cpu": {"context": 256, "d_model": 128, "n_layers": 4, "n_heads": 4, "lr": 8e-3},
    "smoke": {"context": 32, "d_model": 32, "n_layers": 2, "n_heads": 2},
}


def preset(name: str) -> dict[str, Any]:
    """All settings of a preset by name, for ``mf.train("text", …, defaults=preset("cpu"))``."""
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return {**PRESETS[name], "read_ahead": True}
