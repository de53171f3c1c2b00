"""Analysis: reads a trained model and hands over numbers and arrays. It draws nothing (see `reports/`)."""

from mapformers.analysis.finding import Finding, Missing, Subject
from mapformers.analysis.maps import align, token_movements, walked_path
from mapformers.analysis.whole import analyse, as_json

__all__ = ["Finding", "Missing", "Subject", "align", "analyse", "as_json", "token_movements", "walked_path"]
