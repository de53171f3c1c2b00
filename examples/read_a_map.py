"""Read the map out of a model: how each token moves, and how well a walk it has never seen is traced.

python examples/read_a_map.py [RUN_DIR]
"""

import sys
import tempfile
from pathlib import Path

import torch

import mapformers as mf


def show(run: mf.Run) -> None:
    movements = mf.analysis.token_movements(run.model)  # (vocab, rank): Δ_in of every token
    print("how far each token moves on the map:")
    for name, movement in zip(run.task.token_names, movements.tolist()):
        print(f"  {name:>3}  " + "  ".join(f"{number:+.2f}" for number in movement))

    batch = run.task.sample("ood-dense", 1, torch.Generator().manual_seed(0))
    path = mf.analysis.walked_path(run.model, batch.tokens[0])[0::2]  # the coordinate at every action
    _, explained = mf.analysis.align(path, batch.info["displacement"][0])
    print(f"an unseen walk is explained to {explained:.1%} by a linear image of the map")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        show(mf.load(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            show(mf.train("navigation", "mapwm", scale="smoke", out=Path(folder) / "run", dims=2))
