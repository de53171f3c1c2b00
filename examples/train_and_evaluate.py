"""Train a model on a task, load it again, measure it where it has never been.

python examples/train_and_evaluate.py [--scale cpu]
"""

import argparse
import tempfile
from pathlib import Path

import mapformers as mf


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", default="smoke", help="smoke: seconds; cpu: minutes, and it learns")
    scale = parser.parse_args().scale
    with tempfile.TemporaryDirectory() as folder:
        trained = mf.train("navigation", "mapwm", scale=scale, out=Path(folder) / "mine", dims=2, rank=2)
        print(f"{trained.step} steps, {trained.result['parameters']} parameters")

        run = mf.load(Path(folder) / "mine")  # later, elsewhere
        for split in run.task.splits:
            scores = mf.evaluate(run.model, run.task, split, n_sequences=32)
            print(f"{split:<15} accuracy {scores['accuracy']:.3f} over {scores['accuracy'].count} revisits")
        larger = mf.evaluate(run.model, run.task, {"grid": 100, "steps": 50}, n_sequences=32)  # a world of your own
        print(f"a grid of 100   accuracy {larger['accuracy']:.3f}")


if __name__ == "__main__":
    main()
