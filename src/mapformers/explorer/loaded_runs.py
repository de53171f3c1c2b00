"""The runs that the page shows, described as plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mapformers.errors import require
from mapformers.evaluation import player_scores
from mapformers.explorer.worlds import describe
from mapformers.model import Decoder
from mapformers.modules.movement import PathIntegrator
from mapformers.runs import snapshots
from mapformers.runs.run import Run, load
from mapformers.tasks import Task

MAX_MODELS = 2
PLAYER_SEQUENCES = 32
WORDS = {
    **{"mapwm": "MapWM", "mapem": "MapEM", "mapwm-nc": "MapWM-NC", "mapem-nc": "MapEM-NC", "rope": "RoPE"},
    **{"nope": "NoPE", "cope": "CoPE", "tape": "TAPE", "path": "PaTH", "mamba": "Mamba", "mamba2": "Mamba-2"},
    **{"mampa": "MAmPa", "tem-t": "TEM-t", "lstm": "LSTM", "stack-rnn": "Stack-RNN"},
}


@dataclass(frozen=True)
class LoadedRuns:
    """One or two runs of the same task."""

    runs: tuple[Run, ...]

    @property
    def task(self) -> Task[Any]:
        return self.runs[0].task

    @property
    def models(self) -> list[Decoder]:
        return [run.model for run in self.runs if isinstance(run.model, Decoder)]

    def about(self) -> dict[str, Any]:
        """All that the page is told at the start."""
        labels = distinct([label_of(model) for model in self.models])
        return {
            "task": describe(self.task),
            "models": [
                {**about_model(run, model, label), "snapshots": self.snapshot_steps(index)}
                for index, (run, model, label) in enumerate(zip(self.runs, self.models, labels))
            ],
        }

    def snapshot_steps(self, index: int) -> list[int]:
        """The steps of training at which a run can be shown: those it kept a snapshot of, and before the first."""
        steps = [step for step, _ in snapshots.found_in(self.runs[index].folder)]
        return [0, *steps] if steps else []

    def at_snapshot(self, index: int, step: int) -> Decoder:
        """The model of a run as it was after a step."""
        run, kept = self.runs[index], self.snapshot_steps(index)
        told = ", ".join(map(str, kept)) or "none"
        require(step in kept, f"Snapshots were kept at steps {told}; choose one of them.")
        model = run.config.build_model()  # as it was before the first step
        if step:
            snapshots.fill(dict(snapshots.found_in(run.folder))[step], model)
        assert isinstance(model, Decoder)
        return model.eval()

    def players(self) -> dict[str, Any]:
        """What rule players score on each split, which takes a few seconds to find out."""
        task = self.task
        scores = player_scores(task, None, PLAYER_SEQUENCES) if task.reference_players else {}
        return figures_of(scores)


def open_runs(folders: Sequence[Path]) -> LoadedRuns:
    """The runs in some folders; all must have the same task, so that they can read the same tokens."""
    require(1 <= len(folders) <= MAX_MODELS, f"One or two runs can be explored at a time, not {len(folders)}.")
    runs = tuple(load(folder) for folder in folders)
    for run in runs:
        require(
            isinstance(run.model, Decoder),
            f"{run.folder} holds a model of your own; only models of `build_model` can be explored.",
        )
    first = runs[0].task
    for run in runs[1:]:
        same = run.task.name == first.name and list(run.task.token_names) == list(first.token_names)
        require(same, f"{runs[0].folder} and {run.folder} have different tokens; give two runs of the same task.")
    for run in runs:
        run.model.eval()
    return LoadedRuns(runs)


def about_model(run: Run, model: Decoder, label: str) -> dict[str, Any]:
    """A model's sizes, what can be seen of each of its layers, and how each token moves on its maps."""
    return {
        "label": label,
        "task": run.task.name,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "vocab": model.config.vocab_size,
        "step": run.step,
        "layers": about_layers(model),
        "scores": _figures(run.result.get("splits", {})),
    }


def about_layers(model: Decoder) -> list[dict[str, Any]]:
    """What can be seen of each layer, how every token moves on its map, and how fast its blocks turn."""
    size = min(model.config.vocab_size, 4096)
    notes = model.observe(torch.arange(size).unsqueeze(1))
    layers = []
    for layer, seen, module in zip(model.config.layers, notes, model.layers):
        about: dict[str, Any] = {"name": layer.name, "heads": model.config.n_heads, "observables": sorted(seen)}
        if "delta_in" in seen and seen["delta_in"][0, 0].numel() <= 64:
            about["movements"] = _rounded(seen["delta_in"][:, 0].flatten(1))
            about["rank"] = seen["delta_in"].shape[-1]
        speeds = speeds_of(module)
        if speeds is not None:
            about["speeds"] = [round(speed, 6) for speed in speeds]
        layers.append(about)
    return layers


def speeds_of(layer: nn.Module) -> list[float] | None:
    """How fast every rotation block of a layer turns per unit of movement, head after head: ω‖W_out‖."""
    for module in layer.modules():
        if isinstance(module, PathIntegrator):
            speeds: list[float] = (module.w_out * module.omega.unsqueeze(1)).norm(dim=1).flatten().tolist()
            return speeds
    return None


def label_of(model: Decoder) -> str:
    """MapWM-r2, RoPE (4 layers), MapEM + MapWM."""
    names = [layer.name for layer in model.config.layers]
    rank = getattr(model.config.layers[0].options, "rank", None)
    if len(set(names)) > 1:
        return " + ".join(dict.fromkeys(WORDS.get(name, name) for name in names))
    label = WORDS.get(names[0], names[0]) + (f"-r{rank}" if rank else "")
    return label if len(names) == 1 else f"{label} ({len(names)} layers)"


def distinct(labels: list[str]) -> list[str]:
    """Two models of one kind are told apart by a letter."""
    return labels if len(set(labels)) == len(labels) else [f"{label} {'AB'[i]}" for i, label in enumerate(labels)]


def figures_of(players: Mapping[str, Any]) -> dict[str, Any]:
    """The bare figures of what `player_scores` found."""
    return {name: _figures(found) for name, found in players.items()}


def _figures(splits: dict[str, Any]) -> dict[str, dict[str, float | None]]:
    return {split: {name: metric["value"] for name, metric in found.items()} for split, found in splits.items()}


def _rounded(values: torch.Tensor) -> list[list[float]]:
    rounded: list[list[float]] = values.double().mul(1e6).round().div(1e6).tolist()
    return rounded
