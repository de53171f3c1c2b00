"""In which settings two runs differ, in the words of the command line."""

from collections.abc import Iterator, Mapping
from typing import Any

from mapformers.runs.config import RunConfig

LONGEST = 80  # a world written out in full is no help in a sentence


def differences(started: RunConfig, asked: RunConfig) -> str:
    """``--batch-size 8 (not 16) and --lr 0.001 (not 0.003)``; empty where the two are the same run."""
    before, now = _flat(started.to_dict()), _flat(asked.to_dict())
    if before.get("n_layers") != now.get("n_layers"):
        before, now = ({"n_layers": each.get("n_layers")} for each in (before, now))
    differ = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return " and ".join(dict.fromkeys(_in_words(_option(name), before.get(name), now.get(name)) for name in differ))


def _in_words(option: str, before: Any, now: Any) -> str:
    whole = f"{option} {before} (not {now})"
    return whole if len(whole) <= LONGEST and "\n" not in whole else f"another {option}"


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting of a run's config, under the path that leads to it."""
    return {**dict(_leaves(config)), "n_layers": len(config["model"].get("layers", ()))}


def _leaves(plain: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(plain, Mapping):
        for name, value in plain.items():
            yield from _leaves(value, f"{path}.{name}")
    elif path == ".model.layers":
        for number, layer in enumerate(plain):
            yield from _leaves(layer, f"{path}.{number}")
    else:
        yield path, plain


def _option(path: str) -> str:
    name = path.rsplit(".", 1)[-1]
    return "--layers" if path.startswith(".model.layers") and name == "name" else f"--{name.replace('_', '-')}"
