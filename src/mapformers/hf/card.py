"""The card of a saved model: what it is, how to load it, what it was trained on and scored, and what to fill in."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

SIZES = ("vocab_size", "hidden_size", "num_hidden_layers")  # by names that every model here answers to
FILL_IN = "*To be filled in by whoever publishes it.*"


def model_card(
    auto_class: str, model: Any, trained: Mapping[str, Any] | None = None, with_tokenizer: bool = False
) -> str:
    """Markdown for the README.md of a folder; ``trained`` is what `facts` says of a run."""
    told = ", ".join(f"{name} {getattr(model.config, name)}" for name in SIZES)
    parts = [
        "---\nlibrary_name: transformers\ntags:\n- mapformers\n- cognitive-map\n---\n",
        f"# A {type(model).__name__}\n",
        f"A model of [mapformers](#load-it): {told}, {model.num_parameters():,} parameters. Its layers are listed in "
        "`config.json`.\n",
        "## Load it\n",
        _loading({"model": auto_class, **({"tokenizer": "AutoTokenizer"} if with_tokenizer else {})}),
        "## What it was trained on\n",
        _training(trained) if trained else f"{FILL_IN}\n",
        "## What it scores\n",
        _scores(trained) if trained and trained["splits"] else f"{FILL_IN}\n",
        f"## What it is for, and where it fails\n\n{FILL_IN}\n",
    ]
    return "\n".join(parts)


def _loading(classes: Mapping[str, str]) -> str:
    imports = ", ".join(classes.values())
    lines = [f'{name} = {auto}.from_pretrained("this folder")' for name, auto in classes.items()]
    head = f"# pip install 'mapformers[hf]'\nimport mapformers.hf\nfrom transformers import {imports}\n"
    return "\n".join(["```python", head, *lines, "```\n"])


def facts(run: Any) -> dict[str, Any]:
    """Of a run: task, settings, budget, seed, commit and scores."""
    config = run.config.to_dict()
    return {
        "task": config["task"]["name"],
        "settings": config["task"]["settings"],
        "sequences": run.config.train.sequences,
        "steps": run.step,
        "seed": run.config.seed,
        "commit": run.result.get("commit"),
        "splits": run.result.get("splits", {}),
    }


def _training(trained: Mapping[str, Any]) -> str:
    plain = {name: value for name, value in trained["settings"].items() if isinstance(value, int | float | str)}
    folderless = {name: PurePath(v).name if isinstance(v, str) else v for name, v in plain.items()}
    settings = ", ".join(f"{name} {value}" for name, value in folderless.items())
    lines = [
        f"- task: `{trained['task']}` ({settings})",
        f"- {trained['sequences']:,} sequences, saved after {trained['steps']:,} steps, seed {trained['seed']}",
    ]
    if trained["commit"]:
        lines.append(f"- sources of mapformers: commit {trained['commit']}")
    return "\n".join(lines) + "\n"


def _scores(trained: Mapping[str, Any]) -> str:
    splits = trained["splits"]
    metrics = list(next(iter(splits.values())))
    lines = ["| split | " + " | ".join(metrics) + " |", "|---|" + "--:|" * len(metrics)]
    for split, scores in splits.items():
        values = [scores.get(metric, {}).get("value") for metric in metrics]
        lines.append(f"| {split} | " + " | ".join("–" if v is None else f"{v:.4f}" for v in values) + " |")
    return "\n".join(lines) + "\n"
