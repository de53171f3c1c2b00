"""The figures of a recipe as plain data, for programs: one entry for each line, world and split."""

from collections.abc import Mapping
from typing import Any

from mapformers.recipes.recipe import Recipe
from mapformers.recipes.record import summaries


def plain_figures(recipe: Recipe, record: Mapping[str, Any]) -> dict[str, Any]:
    """``figures``: what `mapformers report` shows, as numbers; ``players``: world -> player -> split -> figure.

    ``players_in`` says on how many sequences and cases players were measured, where that was recorded.
    """
    figures = []
    for (line, world, split), found in summaries(recipe, record).items():
        mean, spread = recipe.paper.get((line, world, split), (None, None))
        figures.append(
            {
                "row": line,
                "world": world,
                "split": split,
                "mean": found.mean,
                "std": found.std if found.n > 1 else None,
                "low": found.low,
                "high": found.high,
                "seeds": found.n,
                "paper": mean,
                "paper_std": spread,
            }
        )
    return {
        "metric": recipe.metric,
        "figures": figures,
        "players": record.get("players", {}),
        "players_in": record.get("players_in", {}),
    }
