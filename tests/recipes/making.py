"""What several tests of recipes share: running one, and records made by hand."""

import io

from rich.console import Console

import mapformers as mf

TINY = {
    "sequences": 16, "batch_size": 4, "log_every": 1, "eval_every": 2, "eval_sequences": 4, "final_sequences": 4,
    "zero_mean_steps": 2,
}  # fmt: skip


def quiet():
    return Console(file=io.StringIO(), width=200)


def run_recipe(recipe, folder, console=None, **asked):
    """Its record goes to FOLDER/RECIPE.json, its runs to FOLDER/runs."""
    return mf.reproduce(recipe, runs=folder / "runs", results=folder, console=console or quiet(), **asked)


def keys(record):
    return [(run["row"], run["world"], run["seed"]) for run in record["runs"]]


def a_record(*runs):
    def scores(value):
        return {"accuracy": {"value": value, "count": 10}}

    return {
        "recipe": "mini",
        "scale": "cpu",
        "runs": [
            {
                "row": row,
                "world": "1D",
                "seed": seed,
                "splits": {"iid": scores(iid), "ood-dense": scores(dense)},
                "config": {"train": {"batch_size": 4, "lr": 0.003}, "task": {"settings": {}}, "model": {"d_model": 16}},
                "sequences": 16,
                "parameters": 1000,
                "wall_seconds": 60.0,
                "versions": {"torch": "2"},
                "hardware": {"threads": 1},
                "command": "mapformers reproduce mini",
                "curve": [{"sequences": at, "accuracy": iid * share} for at, share in ((8, 0.5), (800, 1), (1600, 1))],
            }
            for row, seed, iid, dense in runs
        ],
    }


RECORD = a_record(("MapWM", 0, 0.5, 0.25), ("MapWM", 1, 0.75, 0.25), ("RoPE (tiny)", 0, 0.125, 0.0625))
