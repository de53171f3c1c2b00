"""A model in eval mode for as long as it is looked at, by however many threads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

_in_use: dict[nn.Module, tuple[int, bool]] = {}  # how many look at this module now, and its mode before the first
_lock = threading.Lock()


@contextmanager
def in_eval_mode(model: Any) -> Iterator[None]:
    """Every module of a model in eval mode; the last thread that looks at it puts it back as it was.

    Anything that is not a module is left alone.
    """
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    with _lock:
        for module in modules:
            count, training = _in_use.get(module, (0, module.training))
            _in_use[module] = count + 1, training
        if isinstance(model, nn.Module):
            model.eval()
    try:
        yield
    finally:
        with _lock:
            for module in modules:
                count, training = _in_use.pop(module)
                if count > 1:
                    _in_use[module] = count - 1, training
                else:
                    module.training = training
