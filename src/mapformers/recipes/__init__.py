"""Recipes: one file per table or figure of the paper. Importing a file registers it; this is the list."""

from mapformers.recipes import held_still, mapem, mixers, non_commuting, table2, table_ssm
from mapformers.recipes.recipe import RECIPES, Recipe, Row, register_recipe

__all__ = [
    "RECIPES",
    "Recipe",
    "Row",
    "held_still",
    "mapem",
    "mixers",
    "non_commuting",
    "register_recipe",
    "table2",
    "table_ssm",
]
