"""Training: `mf.train`, and what a loop of one's own needs to get the models of the tables.

`zero_mean_movement` in the first steps, `build_optimizer` (AdamW, decay on matrices only),
`set_learning_rate` and `torch.nn.utils.clip_grad_norm_` are all that `mf.train` does to a model besides stepping; see
docs/training.md.
"""

from mapformers.runs.config import TrainConfig
from mapformers.training.optimizer import build_optimizer, learning_rate, set_learning_rate
from mapformers.training.train import resume, train
from mapformers.training.zero_mean import zero_mean_movement

__all__ = [
    "TrainConfig",
    "build_optimizer",
    "learning_rate",
    "resume",
    "set_learning_rate",
    "train",
    "zero_mean_movement",
]
