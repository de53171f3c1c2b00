"""Analysis: reads movements Δ_in and coordinates out of a trained model. It draws nothing (see `reports/`)."""

from mapformers.analysis.maps import align, token_movements, walked_path

__all__ = ["align", "token_movements", "walked_path"]
