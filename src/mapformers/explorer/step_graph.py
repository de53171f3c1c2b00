"""A model's streaming step as JSON: a list of small operations and the weights, which `page/step_graph.js` computes.

model → `export_step` → ATen nodes → what depends on no input is computed here → what nobody reads is left out →
operations by the names that the reader knows (`lowering.py`) → JSON.
"""

import base64
import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from mapformers.errors import UserError, require
from mapformers.explorer.lowering import DTYPES, IDENTITIES, LOWERINGS, Lowered, Name, Result
from mapformers.explorer.step import OBSERVABLES, StreamingStep, export_step
from mapformers.model import Decoder

MOST_PARAMETERS = 2_000_000
WHOLE_NUMBERS = {
    operator.add: "int_add",
    operator.sub: "int_sub",
    operator.mul: "int_mul",
    operator.floordiv: "int_div",
}


def step_graph(model: Decoder, observables: Sequence[str] = OBSERVABLES) -> dict[str, Any]:
    """One streaming step as plain data: ``nodes``, ``inputs``, ``outputs``, ``constants`` and ``weights``.

    Examples:
        >>> from mapformers import build_model
        >>> graph = step_graph(build_model("nope", vocab_size=5, d_model=8))
        >>> [entry["name"] for entry in graph["inputs"]]
        ['token', 'temperature', 'visible', 'layer0.keys', 'layer0.values']
    """
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    require(
        n_parameters <= MOST_PARAMETERS,
        f"The model has {n_parameters / 1e6:.1f} million parameters, and a page holds at most "
        f"{MOST_PARAMETERS / 1e6:g} million; choose a smaller model, or export it with `mapformers export --onnx`.",
    )
    dtypes = {parameter.dtype for parameter in model.parameters()}
    require(dtypes == {torch.float32}, "A page computes in float32; convert the model with model.float() first.")
    step = StreamingStep(model, observables)
    program = export_step(step)
    writer = GraphWriter(dict(program.state_dict) | dict(program.constants))
    signature = program.graph_signature
    weights = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    weights |= signature.inputs_to_lifted_tensor_constants
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    given = [node for node in placeholders if node.name not in weights]
    names = [*step.inputs, *(part.name for part in step.parts)]
    for node in placeholders:
        writer.values[node] = writer.weight(weights[node.name]) if node.name in weights else Name(node.name)
    writer.walk(program.graph_module)
    results = [writer.values.get(argument, argument) for argument in writer.results]
    return writer.finished(
        inputs=[_input(name, node.name, step, writer) for name, node in zip(names, given, strict=True)],
        outputs=[_output(name, value, step) for name, value in zip(step.outputs, results, strict=True)],
    )


def _input(name: str, value: str, step: StreamingStep, writer: "GraphWriter") -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name, "value": value, "role": "state" if name in step.state_names else "setting"}
    if name == "visible":
        return entry | {"shape": [1, 0], "dtype": "bool"}
    for part in step.parts:
        if part.name == name:
            entry |= {"shape": list(part.empty.shape), "dtype": DTYPES[part.empty.dtype]}
            if bool(part.empty.any()):
                entry["empty"] = writer.constant(part.empty)
    return entry


def _output(name: str, value: Any, step: StreamingStep) -> dict[str, Any]:
    role = "logits" if name == "logits" else "state" if name in step.state_names else "observed"
    return {"name": name.removeprefix("observed."), "value": value, "role": role}


@dataclasses.dataclass
class Constant:
    """A tensor that depends on no input, under the name that nodes read it by."""

    name: str
    tensor: Tensor


class GraphWriter:
    """Turns the nodes of an exported graph into operations of the reader, one after the other."""

    def __init__(self, weights: dict[str, Tensor]):
        self.weights = weights
        self.values: dict[fx.Node, Any] = {}  # name of a value, number, constant, or a list of them
        self.nodes: list[Lowered] = []
        self.constants: dict[str, Constant] = {}
        self.results: Sequence[Any] = ()
        self.known: dict[str, Name] = {}  # what was computed already, and its name

    def weight(self, name: str) -> Constant:
        return self._keep(self.weights[name].detach())

    def constant(self, tensor: Tensor) -> str:
        return self._keep(tensor).name

    def _keep(self, tensor: Tensor) -> Constant:
        constant = Constant(f"c{len(self.constants)}", tensor)
        self.constants[constant.name] = constant
        return constant

    def walk(self, module: fx.GraphModule) -> None:
        for node in module.graph.nodes:
            if node.op == "get_attr":
                found = operator.attrgetter(node.target)(module)
                self.values[node] = self._keep(found) if isinstance(found, Tensor) else found
            elif node.op == "output":
                self.results = node.args[0]
            elif node.op == "call_function":
                self.values[node] = self._call(node)

    def _call(self, node: fx.Node) -> Any:
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return self._inline(node)
        if node.target is operator.getitem:
            return self._read(node.args[0])[node.args[1]]
        arguments, options = self._read(node.args), self._read(node.kwargs)
        if _is_constant((arguments, options)) and isinstance(node.target, torch._ops.OpOverload):
            return self._compute(node.target, arguments, options)
        if node.target in WHOLE_NUMBERS:
            return self.emit(Lowered(WHOLE_NUMBERS[node.target], list(arguments)), None)
        name = str(node.target)
        if name in IDENTITIES:
            return arguments[0] if arguments else None
        if name not in LOWERINGS:
            raise UserError(f"The step uses {name}, which a page cannot compute; export it with `--onnx` instead.")
        return LOWERINGS[name](Result(self, node), *arguments, **options)

    def _inline(self, node: fx.Node) -> Any:
        """The body of a region in which autocast or gradients are switched off."""
        arguments = self._read(node.args)
        at = next(index for index, argument in enumerate(arguments) if isinstance(argument, fx.GraphModule))
        body, given = arguments[at], arguments[at + 1 :]
        inner = [inner_node for inner_node in body.graph.nodes if inner_node.op == "placeholder"]
        self.values.update(zip(inner, given, strict=True))
        self.walk(body)
        return self._read(self.results)

    def _compute(self, target: Any, arguments: Any, options: Any) -> Any:
        """What depends on no input is computed once and for all."""
        with torch.no_grad():
            found = target(*_tensors(arguments), **_tensors(options))
        if isinstance(found, Tensor):
            return self._keep(found)
        return [self._keep(tensor) for tensor in found] if isinstance(found, tuple | list) else found

    def _read(self, argument: Any) -> Any:
        return fx.node.map_aggregate(argument, lambda leaf: self.values[leaf] if isinstance(leaf, fx.Node) else leaf)

    def emit(self, lowered: Lowered, dtype: torch.dtype | None) -> Name:
        """Add an operation, unless it was there before, and return the name of its result."""
        lowered.inputs = [Name(item.name) if isinstance(item, Constant) else item for item in lowered.inputs]
        if dtype is not None and dtype != torch.float32:
            lowered.settings["dtype"] = DTYPES[dtype]
        key = repr((lowered.op, lowered.inputs, lowered.settings))
        if key not in self.known:
            self.known[key] = lowered.name = Name(f"v{len(self.nodes)}")
            self.nodes.append(lowered)
        return self.known[key]

    def finished(self, inputs: list[dict[str, Any]], outputs: list[dict[str, Any]]) -> dict[str, Any]:
        for output in outputs:
            if isinstance(output["value"], Constant):
                output["value"] = output["value"].name
        nodes = _read_by_someone(self.nodes, [output["value"] for output in outputs])
        used = {name for node in nodes for name in node.reads()} | {entry["value"] for entry in outputs}
        used |= {entry["empty"] for entry in inputs if "empty" in entry}
        constants, weights = _stored([self.constants[name] for name in sorted(used & set(self.constants))])
        return {
            "inputs": inputs,
            "outputs": outputs,
            "nodes": [node.to_json() for node in nodes],
            "constants": constants,
            "weights": weights,
        }


def _is_constant(arguments: Any) -> bool:
    """Whether no value is among them that is known only when the graph is computed."""
    leaves: list[Any] = []
    fx.node.map_aggregate(arguments, leaves.append)
    return not any(isinstance(leaf, Name) for leaf in leaves)


def _tensors(arguments: Any) -> Any:
    return fx.node.map_aggregate(arguments, lambda leaf: leaf.tensor if isinstance(leaf, Constant) else leaf)


def _read_by_someone(nodes: Sequence[Lowered], wanted: Sequence[str]) -> list[Lowered]:
    needed, kept = set(wanted), []
    for node in reversed(nodes):
        if node.name in needed:
            needed.update(node.reads())
            kept.append(node)
    return kept[::-1]


def _stored(constants: Sequence[Constant]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Constants as views of weights: a matrix that is used as it is and transposed is stored once."""
    views: dict[str, Any] = {}
    weights: dict[str, Any] = {}
    names: dict[tuple[int, torch.dtype], str] = {}
    for constant in constants:
        tensor = constant.tensor
        if tensor.untyped_storage().nbytes() > 2 * tensor.numel() * tensor.element_size() or tensor.dtype == torch.bool:
            tensor = tensor.clone(memory_format=torch.contiguous_format)  # a small part of something large
            constant.tensor = tensor  # kept alive, so that its address is nobody else's
        place = (tensor.untyped_storage().data_ptr(), tensor.dtype)
        if place not in names:
            names[place] = f"w{len(weights)}"
            whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
            weights[names[place]] = _encoded(whole)
        views[constant.name] = {
            "weight": names[place],
            "shape": list(tensor.shape),
            "strides": list(tensor.stride()),
            "offset": tensor.storage_offset(),
        }
    return views, weights


def _encoded(tensor: Tensor) -> dict[str, Any]:
    narrow: dict[torch.dtype, Callable[[Tensor], Tensor]] = {
        torch.int64: lambda t: t.to(torch.int32),
        torch.bool: lambda t: t.to(torch.uint8),
    }
    numbers = narrow.get(tensor.dtype, lambda t: t)(tensor).numpy()
    little = numbers.astype(numbers.dtype.newbyteorder("<"))
    data = base64.b64encode(little.tobytes()).decode("ascii")
    return {"shape": list(tensor.shape), "dtype": DTYPES[tensor.dtype], "data": data}
