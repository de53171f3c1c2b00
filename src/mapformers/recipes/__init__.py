"""Recipes: one file per table or figure. A recipe is cells to run, what is measured of each, and views of the record.

A file whose first line names a recipe is found by itself (`registry.py`) and imported when it is asked for.
"""

from mapformers.recipes.claims import At, Claim
from mapformers.recipes.collect import Collected, collect
from mapformers.recipes.measures import Curve, Figures, GridMeasure, Measure, Splits
from mapformers.recipes.recipe import RECIPES, Cell, Recipe, Row, register_recipe
from mapformers.recipes.views import (
    AlongFigures,
    AlongWorlds,
    BarView,
    CurveView,
    DifferenceView,
    FiguresView,
    GridView,
    LineView,
    SliceView,
    StretchView,
    TableView,
    View,
)

__all__ = [
    "RECIPES",
    "AlongFigures",
    "AlongWorlds",
    "At",
    "BarView",
    "Cell",
    "Claim",
    "Collected",
    "Curve",
    "CurveView",
    "DifferenceView",
    "Figures",
    "FiguresView",
    "GridMeasure",
    "GridView",
    "LineView",
    "Measure",
    "Recipe",
    "Row",
    "SliceView",
    "Splits",
    "StretchView",
    "TableView",
    "View",
    "collect",
    "register_recipe",
]
