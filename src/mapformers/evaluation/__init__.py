"""Evaluation: any model on any task and split."""

from mapformers.evaluation.beside import scores_beside
from mapformers.evaluation.evaluate import evaluate
from mapformers.evaluation.grid import Grid, evaluate_grid

__all__ = ["Grid", "evaluate", "evaluate_grid", "scores_beside"]
