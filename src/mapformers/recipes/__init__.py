"""Recipes: one file per table or figure. A recipe is cells to run, what is measured of each, and views of the record.

A file whose first line names a recipe is found by itself (`registry.py`) and imported when it is asked for.
"""

from mapformers.recipes.claims import At, Claim
from mapformers.recipes.collect import Collected, collect
from mapformers.recipes.measures import Curve, GridMeasure, Measure, Splits
from mapformers.recipes.recipe import RECIPES, Cell, Recipe, Row, register_recipe
from mapformers.recipes.views import AlongWorlds, BarView, CurveView, GridView, LineView, SliceView, TableView, View

__all__ = [
    "RECIPES",
    "AlongWorlds",
    "At",
    "BarView",
    "Cell",
    "Claim",
    "Collected",
    "Curve",
    "CurveView",
    "GridMeasure",
    "GridView",
    "LineView",
    "Measure",
    "Recipe",
    "Row",
    "SliceView",
    "Splits",
    "TableView",
    "View",
    "collect",
    "register_recipe",
]
