"""The settings of one training run."""

from dataclasses import dataclass
from typing import Literal

from mapformers.errors import require, require_finite

Schedule = Literal["linear", "cosine", "constant"]


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained. The budget is counted in sequences, so batch sizes can be compared."""

    sequences: int = 64_000
    """Training sequences in all."""
    batch_size: int = 128
    """Sequences in one step."""
    lr: float = 3e-3
    """Peak learning rate of AdamW."""
    schedule: Schedule = "linear"
    """How the learning rate falls after the warm-up."""
    final_lr: float = 0.0
    """Where it ends, as a share of the peak."""
    warmup_steps: int = 50
    """Steps over which the learning rate rises to its peak."""
    driftless_steps: int = 0
    """First steps in which the average movement on the map is held at zero, so that no clock is learned first."""
    weight_decay: float = 0.05
    """On matrices only."""
    beta1: float = 0.9
    """AdamW's decay of the mean gradient."""
    beta2: float = 0.95
    """AdamW's decay of the squared gradient."""
    clip: float = 1.0
    """Largest gradient norm."""
    log_every: int = 10
    """Steps between lines of metrics.jsonl."""
    eval_every: int = 100
    """Steps between measurements on fresh iid sequences."""
    eval_sequences: int = 256
    """Sequences of each of those measurements."""
    final_sequences: int = 512
    """Sequences of every split for the figures in result.json."""
    checkpoint_every: int = 200
    """Steps between checkpoints; there is always one at the end."""

    def __post_init__(self) -> None:
        require_finite(self)
        counts = "sequences batch_size log_every eval_every eval_sequences final_sequences checkpoint_every"
        for name in counts.split():
            require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}.")
        for name in ("lr", "clip"):
            require(getattr(self, name) > 0, f"{name} must be above 0, not {getattr(self, name)}.")
        for name in ("warmup_steps", "driftless_steps", "weight_decay"):
            require(getattr(self, name) >= 0, f"{name} must not be negative, but is {getattr(self, name)}.")
        for name in ("beta1", "beta2"):
            require(0 <= getattr(self, name) < 1, f"{name} must lie in [0, 1), not {getattr(self, name)}.")
        require(0 <= self.final_lr <= 1, f"final_lr is a share of lr between 0 and 1, not {self.final_lr}.")

    @property
    def steps(self) -> int:
        """Optimiser steps: the budget in whole batches, at least one."""
        return max(1, self.sequences // self.batch_size)
