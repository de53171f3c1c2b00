"""What a layer remembers of every token, appended to without copying the past.

A state is immutable: it can be continued twice, kept, or returned to. So that a step need not copy all earlier tokens,
a state's tensor is a view of the first tokens of a larger buffer (`GrowingBuffer`), and the next token is written after
them. Only the state that ends where the buffer is filled may write there. A state that ends earlier, some of its rows,
or a state on another device gets a buffer of its own. A new buffer is twice as long as its content, so that copying
costs O(n) in all for a stream of n tokens.

Under autograd tensors are concatenated, as a tensor that a gradient flows through must never be written to.
"""

import threading
from typing import Any

import torch
from torch import Tensor

from mapformers.ops.operator import in_forward_mode

SMALLEST = 32  # tokens that a buffer holds at the least
NAME = "mapformers_buffer"  # of a tensor's attribute


def append(past: Tensor, here: Tensor, dim: int) -> Tensor:
    """``past`` followed by ``here`` along a dimension; without autograd, ``here`` is written behind it if it can be."""
    if not _may_write():
        return torch.cat((past, here), dim=dim)
    start = past.shape[dim]
    stop = start + here.shape[dim]
    growing: GrowingBuffer | None = past.__dict__.get(NAME)
    dtype = past.dtype if past.dtype == here.dtype else torch.promote_types(past.dtype, here.dtype)
    if growing is None or not growing.claim(start, stop, dtype):
        growing = GrowingBuffer.holding(past, here, dim)
    return growing.write(here, start, stop)


def _may_write() -> bool:
    """Whether nothing follows what is computed: no autograd, no compiler, no transformation of functions."""
    followed = torch.is_grad_enabled() or torch.compiler.is_compiling() or in_forward_mode()
    return not followed and not torch._C._are_functorch_transforms_active()


class GrowingBuffer:
    """A buffer whose first ``filled`` tokens along a dimension are taken: by the states that have views of them."""

    def __init__(self, buffer: Tensor, dim: int, filled: int):
        self.buffer, self.dim, self.filled = buffer, dim, filled
        self._lock = threading.Lock()  # two threads may go on from the same state

    @classmethod
    def holding(cls, past: Tensor, here: Tensor, dim: int) -> "GrowingBuffer":
        """A new buffer with a copy of the past, the tokens of ``here`` taken but not written yet."""
        start = past.shape[dim]
        stop = start + here.shape[dim]
        shape = list(past.shape)
        shape[dim] = max(SMALLEST, 2 * stop)
        buffer = past.new_empty(shape, dtype=torch.promote_types(past.dtype, here.dtype))
        buffer.narrow(dim, 0, start).copy_(past)
        return cls(buffer, dim, stop)

    def claim(self, start: int, stop: int, dtype: torch.dtype) -> bool:
        """Take the tokens from ``start`` to ``stop``, if they are free and this buffer can hold them."""
        fits = stop <= self.buffer.shape[self.dim] and dtype == self.buffer.dtype
        if not fits or (self.buffer.is_inference() and not torch.is_inference_mode_enabled()):
            return False
        with self._lock:
            if self.filled != start:
                return False
            self.filled = stop
            return True

    def write(self, here: Tensor, start: int, stop: int) -> Tensor:
        """Fill what was taken, and return the tokens up to there."""
        # `.data` has a version counter of its own: views that autograd keeps elsewhere do not cover what is written.
        free = self.buffer.data
        free.narrow(self.dim, start, stop - start).copy_(here)
        filled = free.narrow(self.dim, 0, stop)
        filled.__dict__[NAME] = self
        return filled

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of a state, or one from a file, begins a buffer of its own."""
        return _no_buffer, ()


def _no_buffer() -> GrowingBuffer:
    return GrowingBuffer(torch.empty(0), 0, -1)
