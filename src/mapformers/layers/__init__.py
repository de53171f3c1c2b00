"""Layers, one file per row of the paper; each is usable alone in anyone's model.

>>> import torch
>>> import mapformers as mf
>>> layer = mf.layers.MapWM(d_model=64, n_heads=4, rank=2)
>>> y = layer(torch.randn(2, 10, 64))

A file whose first line names a layer is found by itself (`registry.py`) and imported when it is asked for.
"""

from typing import Any

from mapformers.modules.layer import LAYERS


def classes() -> dict[str, type]:
    """Every registered layer's class by its own name, plug-ins included."""
    return {LAYERS[name].layer.__name__: LAYERS[name].layer for name in LAYERS}


def __getattr__(name: str) -> Any:
    found = {} if name.startswith("_") else classes()
    if name not in found:
        raise AttributeError(f"There is no layer {name!r}; there are {', '.join(found)}.")
    return found[name]


def __dir__() -> list[str]:
    return [*classes(), "classes"]
