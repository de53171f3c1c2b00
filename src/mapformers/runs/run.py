"""A run as Python has it: its model, task, config and metrics."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from mapformers.errors import require
from mapformers.files import clear_file_errors, read_json, write_json
from mapformers.runs import checkpoint
from mapformers.runs.config import RunConfig
from mapformers.runs.folder import RunFolder
from mapformers.runs.metrics import read_metrics
from mapformers.tasks import Task


@dataclass(frozen=True)
class Run:
    """What `mf.train` returns and `mf.load` brings back.

    ``model``   at its newest checkpoint; a module of the user's own, where the run trained one.
    ``result``  the content of result.json, empty until the run has come to its end.
    ``step``    after how many steps the model was saved.
    ``faults``  a sentence for each newer checkpoint that was damaged and passed over, and one on broken lines of
                metrics.jsonl.
    """

    folder: Path
    config: RunConfig
    model: nn.Module
    result: dict[str, Any]
    step: int
    faults: tuple[str, ...] = ()

    @property
    def task(self) -> Task[Any]:
        return self.config.build_task()

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """What was logged while it trained: the lines of metrics.jsonl."""
        return RunFolder(self.folder).metrics()

    def save(self, folder: str | Path) -> Path:
        """Keep the model as it is now, with its config and metrics, in a new folder that `mf.load` reads.

        It holds no optimiser, so it can be measured and analysed but not trained on.
        """
        target = RunFolder.create(Path(folder), self.config)
        target.keep(RunFolder(self.folder).kept())
        with clear_file_errors("write to", target.path):
            checkpoint.save(target.checkpoints, self.step, self.model, None, {"seconds": 0.0})
            if self.result:
                write_json(target.result_file, self.result)
        return target.path


def load(run_dir: str | Path, model: nn.Module | None = None) -> Run:
    """The run in a folder that `mapformers train`, `mf.train` or `Run.save` wrote.

    ``model``: where the run trained a module of one's own, that module, to be filled with the weights.

    Examples:
        >>> run = load("runs/navigation-mapwm-seed0")  # doctest: +SKIP
    """
    require(isinstance(run_dir, str | Path), f"A run is loaded from the path of its folder, not from {run_dir!r}.")
    folder, config = RunFolder.open(Path(run_dir))
    filled, step, faults = folder.load_model(config, model)
    result = read_json(folder.result_file) if folder.result_file.exists() else {}
    faults += read_metrics(folder.metrics_file)[1]
    return Run(folder.path, config, filled, result, step, tuple(faults))
