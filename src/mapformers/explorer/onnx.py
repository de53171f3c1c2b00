"""A model as an ONNX file, for any runtime: one streaming step, or whole sequences of any length.

step      (token, state) → (logits, state, observables), for every model: `step.py` has the inputs.
sequence  tokens (batch, length) → logits, for models whose work does not depend on the length in ways that a graph
          cannot say: those that cut a sequence into chunks, or step along it, are exported as a step only.
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from mapformers.errors import UserError, require
from mapformers.explorer.step import StreamingStep, export_step, require_open, traced_plainly
from mapformers.files import write_atomically
from mapformers.model import Decoder
from mapformers.modes import in_eval_mode

Form = Literal["step", "sequence"]
TOLERANCE = 1e-4  # between onnxruntime and PyTorch, over the largest logit
CHECKED_BATCH, CHECKED_TOKENS, LONGER = 2, 12, 150  # longer than any piece into which layers cut a sequence
Run = Callable[[dict[str, Tensor]], dict[str, Tensor]]


class Exported(NamedTuple):
    """What was written; ``difference``: the largest between onnxruntime and PyTorch, None without onnxruntime."""

    path: Path
    size: int
    inputs: list[str]
    outputs: list[str]
    difference: float | None


def export_onnx(model: Decoder, path: Path, form: Form = "step") -> Exported:
    """Write a model as ONNX, once onnxruntime has answered as PyTorch does; where it is not installed, unchecked."""
    require_folder(path)
    require_packages()
    with torch.no_grad(), in_eval_mode(model):
        if form == "step":
            step = StreamingStep(model)
            inputs, outputs = _step_names(step)
            content = _translate(export_step(step, batch_size=None), inputs, outputs)
            check: Callable[[Run], float] = lambda run: _step_difference(model, step, run)  # noqa: E731
        else:
            inputs, outputs = ["tokens"], ["logits"]
            content = _translate(export_sequence(model), inputs, outputs)
            check = lambda run: _sequence_difference(model, run)  # noqa: E731
        difference = None if find_spec("onnxruntime") is None else _checked(check, content, form)
    if difference is not None:
        far = f"onnxruntime differs from PyTorch by {difference:.1e} of the largest logit, so nothing was written"
        require(
            difference <= TOLERANCE, f"{far}; export the other --form, or train with weights that are not so large."
        )
    write_atomically(path, content)
    return Exported(path, len(content), inputs, outputs, difference)


def _checked(check: Callable[[Run], float], content: bytes, form: Form) -> float:
    try:
        return check(_runner(content))
    except Exception as error:  # onnxruntime has kinds of its own
        said = " ".join(str(error).split())[:200]
        raise UserError(f"onnxruntime cannot compute the {form} form, so nothing was written: {said}") from error


def require_folder(path: Path) -> None:
    require(path.parent.is_dir(), f"There is no folder {path.parent} to write {path.name} to; make it first.")
    require(not path.is_dir(), f"{path} is a folder; name the file that is to be written.")


def require_packages() -> None:
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    require(not missing, f"ONNX needs {' and '.join(missing)}: pip install 'mapformers[onnx]'.")


class WholeSequence(nn.Module):
    """tokens (B, L) -> logits (B, L, vocab)."""

    def __init__(self, model: Decoder):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.model(tokens)
        return logits


def export_sequence(model: Decoder) -> ExportedProgram:
    """The whole sequence as a graph with an open batch size and length; refused where the length cannot be open."""
    tokens = torch.zeros(3, 11, dtype=torch.long)
    sizes = ({0: Dim.AUTO, 1: Dim.AUTO},)
    try:
        with traced_plainly():
            program = torch.export.export(WholeSequence(model), (tokens,), dynamic_shapes=sizes, strict=False)
        require_open(program, sizes)
        _require_same_at_length(program, model)
        return program
    except Exception as error:  # of many kinds: whatever in a model fixes the length
        names = ", ".join(dict.fromkeys(layer.name for layer in model.config.layers))
        raise UserError(
            f"Whole sequences of {names} cannot be exported, because their work depends on the length; "
            "give --form step, which every model has."
        ) from error


def _require_same_at_length(program: ExportedProgram, model: Decoder) -> None:
    """Run the graph itself on a sequence longer than any that was traced: it may hold only up to some length."""
    tokens = _tokens(model, LONGER)
    difference = _difference(program.module()(tokens), model(tokens))
    require(difference <= TOLERANCE, f"At another length the graph differs by {difference:.1e}.")


def _step_names(step: StreamingStep) -> tuple[list[str], list[str]]:
    """Inputs by their names; the state that comes out is called after the one that goes in."""
    inputs = [*step.inputs, *(part.name for part in step.parts)]
    return inputs, [f"next.{name}" if name in step.state_names else name for name in step.outputs]


def _translate(program: ExportedProgram, inputs: list[str], outputs: list[str]) -> bytes:
    """The file's content. What PyTorch says on the way is for those who write translators."""
    for name in ("torch.onnx", "onnxscript", "onnx_ir"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        made = torch.onnx.export(
            program, (), dynamo=True, input_names=inputs, output_names=outputs, external_data=False, verbose=False
        )
    assert made is not None
    return _without_notes(made.model_proto)


def _without_notes(model: Any) -> bytes:
    """The serialised model without the metadata that names source files."""
    graph = model.graph
    for noted in (model, graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        del noted.metadata_props[:]
    content: bytes = model.SerializeToString()
    return content


def _runner(content: bytes) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    asked = {entry.name for entry in session.get_inputs()}
    names = [entry.name for entry in session.get_outputs()]

    def run(given: dict[str, Tensor]) -> dict[str, Tensor]:
        found = session.run(None, {name: tensor.numpy() for name, tensor in given.items() if name in asked})
        return dict(zip(names, map(torch.from_numpy, found)))

    return run


def _tokens(model: Decoder, length: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(model.config.vocab_size, (CHECKED_BATCH, length), generator=generator)


def _step_difference(model: Decoder, step: StreamingStep, run: Run) -> float:
    """Over a stream from the empty state on."""
    names = [*step.inputs, *(part.name for part in step.parts)]
    given: dict[str, Any] = dict(zip(names[1:], step.start(CHECKED_BATCH)))
    state, worst = None, 0.0
    for token in _tokens(model, CHECKED_TOKENS).split(1, dim=1):
        expected, state = model(token, state=state, return_state=True)
        found = run({"token": token, **given})
        worst = max(worst, _difference(found["logits"], expected))
        given |= {name: found[f"next.{name}"] for name in step.state_names}
    return worst


def _sequence_difference(model: Decoder, run: Run) -> float:
    """Over two lengths, neither of which was traced."""
    tokens = [_tokens(model, length) for length in (CHECKED_TOKENS, LONGER)]
    return max(_difference(run({"tokens": each})["logits"], model(each)) for each in tokens)


def _difference(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())
