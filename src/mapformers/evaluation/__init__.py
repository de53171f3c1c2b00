"""Evaluation: any model on any task and split."""

from mapformers.evaluation.evaluate import evaluate

__all__ = ["evaluate"]
