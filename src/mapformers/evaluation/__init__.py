"""Evaluation: any model on any task and split."""

from mapformers.evaluation.evaluate import check_logits, evaluate, evaluate_splits
from mapformers.evaluation.grid import Grid, evaluate_grid
from mapformers.evaluation.rule_baselines import player_scores, player_sequences

__all__ = ["Grid", "check_logits", "evaluate", "evaluate_grid", "evaluate_splits", "player_scores", "player_sequences"]
