"""How the record of a recipe is shown: as tables, learning curves, heat maps, slices through them, bars and sweeps."""

from mapformers.recipes.views.bars import AlongWorlds, BarView, LineView
from mapformers.recipes.views.curves import CurveView
from mapformers.recipes.views.differences import DifferenceView
from mapformers.recipes.views.grids import GridView, SliceView
from mapformers.recipes.views.named_figures import AlongFigures, FiguresView
from mapformers.recipes.views.stretch import StretchView
from mapformers.recipes.views.table import TableView
from mapformers.recipes.views.view import Draw, View, spread

__all__ = [
    "AlongFigures",
    "AlongWorlds",
    "BarView",
    "CurveView",
    "DifferenceView",
    "Draw",
    "FiguresView",
    "GridView",
    "LineView",
    "SliceView",
    "StretchView",
    "TableView",
    "View",
    "spread",
]
