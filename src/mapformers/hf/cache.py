"""What `generate` hands from step to step: a `transformers` cache around the decoder's streaming state."""

from typing import Any

import torch
from transformers.cache_utils import Cache

from mapformers.errors import UserError, require
from mapformers.modules.context import StreamState

OTHER_CACHES = (
    "A MapFormer keeps its own state: leave cache_implementation and past_key_values out, or hand back the "
    "MapFormerCache that an earlier call returned; static, quantised, offloaded and other caches do not fit."
)


class MapFormerCache(Cache):
    """Holds the `StreamState` after the tokens read so far; None before the first.

    A state cannot be taken back by some tokens, so `crop`, which assisted generation needs, is refused.
    """

    is_compileable = False
    is_croppable = False
    is_initialized = True
    is_sliding = [False]

    def __init__(self, state: StreamState | None = None):
        if issubclass(Cache, torch.nn.Module):  # up to transformers 4.48
            super().__init__()
        self.state = state

    def __repr__(self) -> str:
        return f"MapFormerCache({self.get_seq_length()} tokens)"

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def layers(self) -> list[Any]:  # type: ignore[override]
        """What each layer remembers: keys and values, or whatever else it has."""
        return [] if self.state is None else list(self.state.layers)

    def get_seq_length(self, layer_idx: int | None = 0) -> int:
        return 0 if self.state is None else self.state.past.length

    def get_max_cache_shape(self, layer_idx: int | None = 0) -> int | None:
        return None

    def get_max_length(self, layer_idx: int | None = None) -> int:
        return -1

    def get_mask_sizes(self, query_length: Any, layer_idx: int = 0) -> tuple[int, int]:
        new = query_length if isinstance(query_length, int) else len(query_length)
        return self.get_seq_length() + new, 0

    @property
    def batch_size(self) -> int:
        return -1 if self.state is None else self.state.batch_size

    def reset(self) -> None:
        self.state = None

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Every beam goes on from the one it came from."""
        if self.state is not None:
            self.state = self.state.rows(beam_idx)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.state is not None:
            self.reorder_cache(torch.arange(self.state.batch_size).repeat_interleave(repeats))

    def activate_past_recording(self) -> None:
        raise UserError("A MapFormer's state cannot be taken back, so generate without an assistant.")

    def crop(self, *_: Any) -> None:
        raise UserError("A MapFormer's state cannot be taken back by some tokens; read the shorter text anew.")

    def update(self, *_: Any, **__: Any) -> Any:
        raise UserError("A MapFormerCache is filled by the model it belongs to, not layer by layer.")


class NoPagedCache:
    """Mixed in before `GenerationMixin`: generation in pages has a cache of its own, which no layer of ours fills."""

    def init_continuous_batching(self, *_: Any, **__: Any) -> Any:
        raise UserError(
            "A model with maps keeps its own state, so it does not generate in pages: leave cache_implementation out, "
            "and call generate with a padded batch instead of generate_batch."
        )

    generate_batch = continuous_batching_context_manager = init_continuous_batching


def checked_cache(given: Any) -> MapFormerCache:
    """The cache that a call goes on from, if it is one of ours."""
    require(isinstance(given, MapFormerCache), OTHER_CACHES)
    return given
