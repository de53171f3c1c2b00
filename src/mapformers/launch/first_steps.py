"""The first steps of runs, computed by whichever mapformers is on the path: run as a script, configs in, figures out.

`mapformers confirm` starts it twice, with the sources runs were measured with and with those of now. So it uses only
what has been there since runs have recorded their sources. Each line of its input asks for one run, and each line of
its output answers it, with figures or with a fault, which ends the process.
"""

import hashlib
import json
import os
import sys
import tempfile
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

STEPS = 12


def shortened(train: Any) -> Any:
    """A whole run in few steps: warm-up, zero-mean movement, decay and measurements are all passed through."""
    return replace(
        train,
        sequences=STEPS * train.batch_size,
        warmup_steps=min(train.warmup_steps, STEPS // 6),
        zero_mean_steps=min(train.zero_mean_steps, STEPS // 3),
        log_every=STEPS // 6,
        eval_every=STEPS // 2,
        eval_sequences=8,
        final_sequences=8,
        checkpoint_every=STEPS,
    )


def first_steps(asked: dict[str, Any]) -> dict[str, Any]:
    """The figures of a shortened run, given its config and the number of threads."""
    import torch
    from rich.console import Console

    from mapformers.runs.config import RunConfig
    from mapformers.runs.folder import RunFolder
    from mapformers.runs.provenance import sources_hash
    from mapformers.training.loop import Trainer

    torch.set_num_threads(asked["threads"])
    recorded = RunConfig.from_dict(asked["config"])
    config = replace(recorded, train=shortened(recorded.train))
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(config, RunFolder.create(Path(folder), config), Console(quiet=True))
        splits = trainer.run()["splits"]
        losses = [line["loss"] for line in trainer.folder.metrics() if "split" not in line]
    weights = hashlib.sha256()
    for name, tensor in sorted(trainer.model.state_dict().items()):
        weights.update(name.encode() + tensor.contiguous().cpu().numpy().tobytes())
    return {"sources": sources_hash(recorded), "losses": losses, "splits": splits, "weights": weights.hexdigest()}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed, by whomever, is no answer
    try:
        from mapformers.plugins import import_inherited_plugins

        import_inherited_plugins()
        for line in sys.stdin:
            print(json.dumps(first_steps(json.loads(line))), file=answers, flush=True)
    except Exception as error:
        reason = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
        print(json.dumps({"fault": reason}), file=answers, flush=True)


if __name__ == "__main__":
    main()
