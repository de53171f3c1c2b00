"""Figures: one function each; they read results, never models."""

from mapformers.plots.map_figure import MapPicture, draw_map

__all__ = ["MapPicture", "draw_map"]
