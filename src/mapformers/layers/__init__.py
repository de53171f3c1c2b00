"""Layers, one file per registered model; each is usable alone in anyone's model.

Examples:
    >>> import torch
    >>> import mapformers as mf
    >>> layer = mf.layers.MapWM(d_model=64, n_heads=4, rank=2)
    >>> y = layer(torch.randn(2, 10, 64))

A file whose first line names a layer is found automatically (`registry.py`) and imported when it is asked for.
"""

from typing import Any

from mapformers.modules.layer import LAYERS


def classes(plugins: bool = True) -> dict[str, type]:
    """Every registered layer's class by its own name: the library's, and those of plug-ins."""
    own, others = {}, {}
    for name in LAYERS:
        if LAYERS.is_own(name) or plugins:
            layer = LAYERS[name].layer
            (own if LAYERS.is_own(name) else others)[layer.__name__] = layer
    return others | own


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    found = classes(plugins=False)
    if name not in found:  # plug-ins are imported only where none of ours is meant
        found = classes()
    if name not in found:
        raise AttributeError(f"There is no layer {name!r}; there are {', '.join(found)}.")
    return found[name]


def __dir__() -> list[str]:
    return [*classes(), "classes"]
