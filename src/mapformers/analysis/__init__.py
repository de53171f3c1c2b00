"""Analysis: reads a trained model (movements Δ_in, coordinates); draws nothing."""

from mapformers.analysis.maps import align, token_movements, walked_path

__all__ = ["align", "token_movements", "walked_path"]
