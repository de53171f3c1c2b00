"""A model that is not ours, named on the command line: MODULE:FUNCTION, its arguments and its weights."""

import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import nn

from mapformers.cli.rows import parse_words
from mapformers.cli.train import plain_value
from mapformers.errors import UserError, require
from mapformers.evaluation import evaluate
from mapformers.seeding import generator
from mapformers.tasks import Task


def build_foreign(name: str, arguments: str, task: Task[Any]) -> Callable[..., Any]:
    """What ``name`` (MODULE:FUNCTION) builds.

    ``arguments``  NAME=VALUE,NAME=VALUE for the function, which is also given ``vocab_size`` if it takes one.

    Importing a module runs its code. The current folder comes first on the path, as with ``python -m``.
    """
    function = _find(name)
    given = parse_words([word for word in arguments.split(",") if word], "--model-args")
    settings = {key: plain_value(value) for key, value in given.items()}
    if "vocab_size" in _parameters(function):
        settings.setdefault("vocab_size", task.vocab_size)
    try:
        model = function(**settings)
    except Exception as error:  # whatever a user's function may do
        raise UserError(
            f"{name} could not build a model: {_words(error)}; check the function and --model-args."
        ) from error
    require(callable(model), f"{name} must return a module from tokens to logits, not {type(model).__name__}.")
    return model


def _find(name: str) -> Callable[..., Any]:
    module_name, colon, function_name = name.partition(":")
    named = bool(colon and module_name and function_name) and not module_name.endswith(".py")
    require(named, f"--model takes MODULE:FUNCTION, such as my_module:build, not {name!r}.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        absent = f"There is no module {error.name!r}; run the command in the folder of its file, or install it."
        raise UserError(absent) from None
    except Exception as error:  # whatever a user's file may do
        raise UserError(f"{module_name} cannot be imported: {_words(error)}.") from error
    function = getattr(module, function_name, None)
    require(
        function is not None,
        f"{module_name} has no function {function_name!r}; name the function that builds the model.",
    )
    require(
        callable(function),
        f"{name} is not a function but {type(function).__name__}; name the function that builds the model.",
    )
    assert function is not None
    return function


def _parameters(function: Callable[..., Any]) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a function of C
        return set()


def require_answers(model: Callable[..., Any], task: Task[Any], splits: Sequence[str], name: str) -> None:
    """Refuse a model that does not answer one sequence of each split (all unless named) with logits."""
    for split in splits or task.splits:
        try:
            evaluate(model, task, split, n_sequences=1)
        except UserError:
            raise
        except Exception as error:  # whatever a user's module may do
            shape = tuple(task.sample(split, 1, generator(0, "check")).tokens.shape)
            ids = f"tokens {shape} of {split}, with ids 0 to {task.vocab_size - 1}"
            raise UserError(f"The model of {name} cannot read {ids}: {_words(error)}.") from error


def load_safetensors(file: Path, model: Callable[..., Any]) -> None:
    """Fill a module with the weights in a safetensors file: no other kind is read, since a pickle can run code."""
    require(isinstance(model, nn.Module), "--weights needs a model that is a torch.nn.Module; leave it out.")
    assert isinstance(model, nn.Module)
    require(file.is_file(), f"There is no file {file}; give the weights as safetensors.")
    try:
        weights = safetensors.torch.load_file(file)
    except (OSError, SafetensorError):
        remedy = "write it with safetensors.torch.save_model(model, FILE)"
        raise UserError(f"{file} is not a whole safetensors file; {remedy}.") from None
    own = model.state_dict()
    for what, names in (("lacks", own.keys() - weights.keys()), ("has no place for", weights.keys() - own.keys())):
        subject = file.name if what == "lacks" else "The model"
        require(not names, f"{subject} {what} {', '.join(sorted(names))}; give the weights of this model.")
    for key, tensor in weights.items():
        shapes = f"{tuple(tensor.shape)} in {file.name} and {tuple(own[key].shape)} in the model"
        require(tensor.shape == own[key].shape, f"{key} is {shapes}; give the weights of this model.")
    model.load_state_dict(weights)


def _words(error: Exception) -> str:
    """An error in one line, without a full stop."""
    text = " ".join(str(error).split()).rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
