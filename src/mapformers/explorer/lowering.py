"""From ATen operators to the few operations that `page/step_graph.js` computes: a table, one line for most.

Operators that write into what they are given have no line: a graph of values could not tell before from after.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

DTYPES = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.int64: "int32",
    torch.int32: "int32",
    torch.bool: "bool",
}


class Name(str):
    """The name of a value that is known only when the graph is computed: a tensor, or a whole number."""


@dataclass
class Lowered:
    """An operation of the reader. Inputs are names or numbers; settings may hold names where a size is open."""

    op: str
    inputs: list[Any]
    settings: dict[str, Any] = field(default_factory=dict)
    name: Name = field(default_factory=Name)

    def reads(self) -> set[str]:
        """The names of all values that it needs."""
        return {leaf for leaf in _leaves([self.inputs, *self.settings.values()]) if isinstance(leaf, Name)}

    def to_json(self) -> dict[str, Any]:
        return {"op": self.op, "in": [_plain(item) for item in self.inputs], "out": str(self.name), **self.settings}


def _leaves(item: Any) -> list[Any]:
    return [leaf for part in item for leaf in _leaves(part)] if isinstance(item, list | tuple) else [item]


def _plain(item: Any) -> Any:
    """Infinities, which JSON lacks, are written as strings."""
    if isinstance(item, list | tuple):
        return [_plain(part) for part in item]
    if isinstance(item, float) and item in (float("inf"), float("-inf")):
        return "Infinity" if item > 0 else "-Infinity"
    return item


class Result:
    """The node that is being lowered: what it is to have as its dtype and shape, and where operations are added."""

    def __init__(self, writer: Any, node: fx.Node):
        self.writer, self.meta = writer, node.meta["val"]

    def emit(self, op: str, *inputs: Any, dtype: torch.dtype | None = None, **settings: Any) -> Name:
        made = dtype or getattr(self.meta if not isinstance(self.meta, list | tuple) else self.meta[0], "dtype", None)
        return self.writer.emit(Lowered(op, list(inputs), settings), made)


Lower = Callable[..., Any]
LOWERINGS: dict[str, Lower] = {}
# They hand on what they are given: within a graph that is computed once, copies and views are the same.
IDENTITIES = {
    "aten.detach.default", "aten.alias.default", "aten.clone.default", "aten.contiguous.default",
    "aten.lift_fresh_copy.default", "aten._assert_tensor_metadata.default", "aten._assert_scalar.default",
    "aten.positive.default", "aten.promote_types.default", "aten.sym_constrain_range_for_size.default",
}  # fmt: skip


def lowers(*names: str) -> Callable[[Lower], Lower]:
    def register(lower: Lower) -> Lower:
        LOWERINGS.update(dict.fromkeys((f"aten.{name}" for name in names), lower))
        return lower

    return register


def _same(op: str, *names: str) -> None:
    """Operators whose tensors and numbers are the inputs of one operation."""

    @lowers(*names)
    def lower(out: Result, *inputs: Any, **options: Any) -> Name:
        return out.emit(op, *inputs)


for _name in ("neg", "exp", "log", "log1p", "sin", "cos", "tanh", "sigmoid", "relu", "rsqrt", "sqrt", "abs", "floor",
              "ceil", "round", "silu", "sign", "reciprocal", "frac", "expm1"):  # fmt: skip
    _same(_name, f"{_name}.default")
for _op, _names in {
    "gelu": ["gelu.default"],
    "softplus": ["softplus.default"],
    "not": ["bitwise_not.default", "logical_not.default"],
    "mul": ["mul.Tensor", "mul.Scalar"],
    "div": ["div.Tensor", "div.Scalar"],
    "pow": ["pow.Tensor_Scalar", "pow.Scalar", "pow.Tensor_Tensor"],
    "le": ["le.Tensor", "le.Scalar"],
    "lt": ["lt.Tensor", "lt.Scalar"],
    "ge": ["ge.Tensor", "ge.Scalar"],
    "gt": ["gt.Tensor", "gt.Scalar"],
    "eq": ["eq.Tensor", "eq.Scalar"],
    "ne": ["ne.Tensor", "ne.Scalar"],
    "and": ["bitwise_and.Tensor", "logical_and.default", "__and__.Tensor"],
    "or": ["bitwise_or.Tensor", "logical_or.default", "__or__.Tensor"],
    "max": ["maximum.default"],
    "min": ["minimum.default"],
    "atan2": ["atan2.default"],
    "where": ["where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar"],
    "matmul": ["matmul.default", "mm.default", "bmm.default"],
}.items():
    _same(_op, *_names)


@lowers("add.Tensor", "add.Scalar")
def _add(out: Result, a: Any, b: Any, alpha: float = 1) -> Name:
    return out.emit("add", a, b if alpha == 1 else out.emit("mul", b, alpha))


@lowers("sub.Tensor", "sub.Scalar")
def _sub(out: Result, a: Any, b: Any, alpha: float = 1) -> Name:
    return out.emit("sub", a, b if alpha == 1 else out.emit("mul", b, alpha))


LOWERINGS["aten.rsub.Scalar"] = lambda out, a, b: out.emit("sub", b, a)


@lowers("addcmul.default")
def _addcmul(out: Result, a: Any, b: Any, c: Any, value: float = 1) -> Name:
    product = out.emit("mul", b, c)
    return out.emit("add", a, product if value == 1 else out.emit("mul", product, value))


@lowers("linear.default")
def _linear(out: Result, x: Any, weight: Any, bias: Any = None) -> Name:
    product = out.emit("linear", x, weight)
    return product if bias is None else out.emit("add", product, bias)


@lowers("addmm.default", "baddbmm.default")
def _addmm(out: Result, a: Any, b: Any, c: Any, beta: float = 1, alpha: float = 1) -> Name:
    product = out.emit("matmul", b, c)
    product = product if alpha == 1 else out.emit("mul", product, alpha)
    return out.emit("add", a if beta == 1 else out.emit("mul", a, beta), product)


@lowers("einsum.default")
def _einsum(out: Result, equation: str, tensors: Sequence[Any], path: Any = None) -> Name:
    return out.emit("einsum", *tensors, equation=str(equation).replace(" ", ""))


@lowers("scaled_dot_product_attention.default")
def _attention(
    out: Result, q: Any, k: Any, v: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Name:  # fmt: skip
    """Emits the same nodes as recording the attention weights does, so that `emit` merges the two."""
    assert attn_mask is not None and scale is not None and not is_causal
    logits = out.emit("mul", out.emit("matmul", q, _transpose(out, k, -2, -1)), scale)
    hidden = out.emit("not", attn_mask, dtype=torch.bool)
    return out.emit("matmul", out.emit("softmax", out.emit("where", hidden, float("-inf"), logits)), v)


@lowers("softmax.int", "_softmax.default")
def _softmax(out: Result, x: Any, dim: int, dtype: Any = None) -> Name:
    rank = len(out.meta.shape)
    assert dim % rank == rank - 1
    return out.emit("softmax", x)


@lowers("rms_norm.default")
def _rms_norm(out: Result, x: Any, shape: Sequence[int], weight: Any = None, eps: float | None = None) -> Name:
    return out.emit("mul", out.emit("rms_norm", x, eps=eps), weight)


@lowers("layer_norm.default")
def _layer_norm(
    out: Result, x: Any, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Name:  # fmt: skip
    assert weight is None and bias is None
    return out.emit("layer_norm", x, eps=eps)


@lowers("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(out: Result, x: Any, mask: Any, value: Any) -> Name:
    return out.emit("where", mask, value, x)


@lowers("clamp.default", "clamp_min.default")
def _clamp(out: Result, x: Any, min: Any = None, max: Any = None) -> Name:
    x = x if min is None else out.emit("max", x, min)
    return x if max is None else out.emit("min", x, max)


LOWERINGS["aten.clamp_max.default"] = lambda out, x, most: out.emit("min", x, most)


@lowers("to.device", "to.dtype", "to.dtype_layout", "_to_copy.default", "to.other", "type_as.default")
def _to(out: Result, x: Any, *others: Any, **options: Any) -> Name:
    return out.emit("cast", x)


def _dims(dim: Any) -> list[int]:
    return [dim] if isinstance(dim, int) else list(dim)


for _op in ("sum", "mean", "any"):
    LOWERINGS[f"aten.{_op}.{'dim_IntList' if _op == 'sum' else 'dim'}"] = (
        lambda out, x, dim, keepdim=False, dtype=None, op=_op: out.emit(op, x, dims=_dims(dim), keepdim=bool(keepdim))
    )


@lowers("cumsum.default")
def _cumsum(out: Result, x: Any, dim: int, dtype: Any = None) -> Name:
    return out.emit("cumsum", x, dim=dim)


@lowers("flip.default")
def _flip(out: Result, x: Any, dims: Sequence[int]) -> Name:
    return out.emit("flip", x, dims=list(dims))


@lowers("gather.default")
def _gather(out: Result, x: Any, dim: int, index: Any, sparse_grad: bool = False) -> Name:
    return out.emit("gather", x, index, dim=dim)


@lowers("embedding.default")
def _embedding(out: Result, weight: Any, index: Any, *others: Any) -> Name:
    return out.emit("take", weight, index)


@lowers("index.Tensor")
def _index(out: Result, x: Any, indices: Sequence[Any]) -> Name:
    assert len(indices) == 1
    return out.emit("take", x, indices[0])


@lowers("cat.default")
def _cat(out: Result, tensors: Sequence[Any], dim: int = 0) -> Name:
    return out.emit("cat", *tensors, dim=dim)


@lowers("stack.default")
def _stack(out: Result, tensors: Sequence[Any], dim: int = 0) -> Name:
    return out.emit("cat", *(out.emit("unsqueeze", tensor, dim=dim) for tensor in tensors), dim=dim)


def _sizes(shape: Sequence[Any]) -> list[Any]:
    return [size if isinstance(size, Name) else int(size) for size in shape]


@lowers("view.default", "reshape.default", "_unsafe_view.default")
def _reshape(out: Result, x: Any, shape: Sequence[Any]) -> Name:
    return out.emit("reshape", x, shape=_sizes(shape))


@lowers("unflatten.int")
def _unflatten(out: Result, x: Any, dim: int, sizes: Sequence[Any]) -> Name:
    return out.emit("unflatten", x, dim=dim, sizes=_sizes(sizes))


@lowers("flatten.using_ints")
def _flatten(out: Result, x: Any, start_dim: int = 0, end_dim: int = -1) -> Name:
    return out.emit("flatten", x, first=start_dim, last=end_dim)


@lowers("permute.default")
def _permute(out: Result, x: Any, dims: Sequence[int]) -> Name:
    return out.emit("permute", x, dims=[int(dim) % len(dims) for dim in dims])


@lowers("movedim.intlist", "movedim.int")
def _movedim(out: Result, x: Any, source: Any, target: Any) -> Name:
    rank = len(out.meta.shape)
    source, target = ([dim % rank for dim in _dims(dims)] for dims in (source, target))
    rest = iter(dim for dim in range(rank) if dim not in source)
    return out.emit("permute", x, dims=[source[target.index(d)] if d in target else next(rest) for d in range(rank)])


@lowers("transpose.int")
def _transpose(out: Result, x: Any, first: int, second: int) -> Name:
    rank = len(out.meta.shape)
    return out.emit("transpose", x, dims=sorted((first % rank, second % rank)))


for _name in ("mT", "t", "numpy_T"):
    LOWERINGS[f"aten.{_name}.default"] = lambda out, x: _transpose(out, x, -2, -1)


@lowers("expand.default")
def _expand(out: Result, x: Any, shape: Sequence[Any], implicit: bool = False) -> Name:
    return out.emit("expand", x, shape=_sizes(shape))


@lowers("expand_as.default")
def _expand_as(out: Result, x: Any, other: Any) -> Name:
    return out.emit("expand_as", x, other)


@lowers("unsqueeze.default")
def _unsqueeze(out: Result, x: Any, dim: int) -> Name:
    return out.emit("unsqueeze", x, dim=dim)


@lowers("squeeze.dim", "squeeze.dims")
def _squeeze(out: Result, x: Any, dim: Any) -> Name:
    return out.emit("squeeze", x, dims=_dims(dim))


@lowers("slice.Tensor")
def _slice(out: Result, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Name:
    end = None if isinstance(end, int) and end > 2**40 else end
    assert step == 1
    return out.emit("slice", x, dim=dim, start=start or 0, end=end)


@lowers("select.int")
def _select(out: Result, x: Any, dim: int, index: Any) -> Name:
    return out.emit("select", x, dim=dim, index=index)


@lowers("unbind.int")
def _unbind(out: Result, x: Any, dim: int = 0) -> list[Name]:
    return [out.emit("select", x, dim=dim, index=index) for index in range(len(out.meta))]


@lowers("chunk.default", "split.Tensor", "split_with_sizes.default", "split.sizes", "tensor_split.indices")
def _split(out: Result, x: Any, sizes: Any, dim: int = 0) -> list[Name]:
    """In pieces, whose sizes the trace knows."""
    pieces, start = [], 0
    for piece in out.meta:
        stop = start + int(piece.shape[dim])
        pieces.append(out.emit("slice", x, dim=dim, start=start, end=stop))
        start = stop
    return pieces


@lowers("constant_pad_nd.default", "pad.default")
def _pad(out: Result, x: Any, pad: Sequence[int], *options: Any, value: float | None = None) -> Name:
    numbers = [option for option in options if isinstance(option, int | float)]
    value = numbers[0] if numbers and value is None else value
    return out.emit("pad", x, pad=list(pad), value=value or 0)


@lowers("full.default")
def _full(out: Result, shape: Sequence[Any], value: Any, **options: Any) -> Name:
    return out.emit("full", shape=_sizes(shape), value=value)


def _filled(value: float, like: bool) -> Lower:
    def lower(out: Result, shape: Any, **options: Any) -> Name:
        return out.emit("full_like", shape, value=value) if like else out.emit("full", shape=_sizes(shape), value=value)

    return lower


for _word, _value in (("ones", 1), ("zeros", 0), ("empty", 0)):
    LOWERINGS[f"aten.{_word}.default"] = LOWERINGS[f"aten.{_word}.memory_format"] = _filled(_value, like=False)
    LOWERINGS[f"aten.{_word}_like.default"] = _filled(_value, like=True)
LOWERINGS |= {
    "aten.full_like.default": lambda out, x, value, **options: out.emit("full_like", x, value=value),
    "aten.new_zeros.default": lambda out, x, shape, **options: out.emit("full", shape=_sizes(shape), value=0),
    "aten.new_ones.default": lambda out, x, shape, **options: out.emit("full", shape=_sizes(shape), value=1),
    "aten.new_empty.default": lambda out, x, shape, **options: out.emit("full", shape=_sizes(shape), value=0),
    "aten.new_full.default": lambda out, x, shape, value, **options: out.emit("full", shape=_sizes(shape), value=value),
    "aten.scalar_tensor.default": lambda out, value, **options: out.emit("full", shape=[], value=value),
    "aten.sym_size.int": lambda out, x, dim: out.emit("size", x, dim=dim),
}


@lowers("arange.default", "arange.start", "arange.start_step")
def _arange(out: Result, *bounds: Any, **options: Any) -> Name:
    assert len(bounds) < 3 or bounds[2] == 1
    start, end = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
    return out.emit("arange", start=start, end=end)


@lowers("tril.default")
def _tril(out: Result, x: Any, diagonal: Any = 0) -> Name:
    return out.emit("tril", x, diagonal=diagonal)


@lowers("square.default")
def _square(out: Result, x: Any) -> Name:
    return out.emit("mul", x, x)


@lowers("repeat_interleave.self_int")
def _repeat_interleave(out: Result, x: Any, n: int, dim: int, output_size: Any = None) -> Name:
    shape = [-1] * (len(out.meta.shape) + 1)
    shape[dim + 1] = n
    repeated = out.emit("expand", out.emit("unsqueeze", x, dim=dim + 1), shape=shape)
    return out.emit("flatten", repeated, first=dim, last=dim + 1)
