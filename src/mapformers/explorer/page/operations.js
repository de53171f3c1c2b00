// @ts-check
/**
 * The operations that a step graph is made of, by name. What `mapformers.explorer.lowering` writes, this computes.
 */

import { Tensor, at, broadcast, cat, count, einsum, gather, matmul } from "./tensors.js";
import { rowMajor, same, strideOver, take, walk } from "./tensors.js";

/** @typedef {import("./tensors.js").Kind} Kind */
/** @typedef {import("./tensors.js").Numbers} Numbers */
/** @typedef {string | number} Item a value's name, or a number */
/**
 * @typedef {{op: string, in: Item[], out: string, dtype?: Kind, dim?: number, dims?: number[], keepdim?: boolean,
 *   shape?: Item[], sizes?: Item[], start?: Item, end?: Item | null, index?: Item, value?: Item, eps?: number,
 *   equation?: string, first?: number, last?: number, pad?: number[], diagonal?: Item}} Node
 */
/** @typedef {Tensor | number} Value */
/** @typedef {(inputs: Value[], node: Node, size: (item: Item) => number) => Value} Operation */

/** @param {Value | undefined} value @returns {Tensor} */
export function tensor(value) {
  if (value instanceof Tensor) return value;
  if (value === undefined) throw new Error("An operation of the graph lacks an input.");
  return new Tensor(Float64Array.of(value), [], "float64");
}

/** An operation on each element by itself. @param {(...numbers: number[]) => number} f @returns {Operation} */
function elementwise(f) {
  return (inputs, node) => {
    const all = inputs.map(tensor);
    const shape = broadcast(all.map((x) => x.shape));
    const out = Tensor.full(shape, node.dtype ?? "float32");
    const { data } = out;
    const arrays = all.map((x) => x.data);
    const plain = all.map((x) => (x.isWhole && same(x.shape, shape) ? 1 : x.data.length === 1 ? 0 : -1));
    const [a, b, c] = arrays;
    if (a && plain.every((step) => step >= 0)) {
      const [stepA = 0, stepB = 0, stepC = 0] = plain;
      for (let i = 0; i < data.length; i++)
        data[i] = f(Number(a[i * stepA]), b ? Number(b[i * stepB]) : 0, c ? Number(c[i * stepC]) : 0);
      return out;
    }
    let i = 0;
    walk(shape, all.map((x) => strideOver(x, shape)), all.map((x) => x.offset), (places) => {
      data[i++] = f(...places.map((place, which) => Number(arrays[which]?.[place])));
    });
    return out;
  };
}

/**
 * The rows along the last dimensions that are named, reduced to a number each.
 * @param {(row: Numbers) => number} f @returns {Operation}
 */
function reduction(f) {
  return ([input], node) => {
    const x = tensor(input);
    const dims = (node.dims ?? []).map((dim) => x.dim(dim));
    const kept = x.shape.map((_, dim) => dim).filter((dim) => !dims.includes(dim));
    const rows = x.permute([...kept, ...dims]).whole();
    const length = count(dims.map((dim) => at(x.shape, dim)));
    const left = kept.map((dim) => at(x.shape, dim));
    const shape = node.keepdim ? x.shape.map((size, dim) => (dims.includes(dim) ? 1 : size)) : left;
    const out = Tensor.full(shape, node.dtype ?? "float32");
    for (let i = 0; i < out.data.length; i++) out.data[i] = f(rows.data.subarray(i * length, (i + 1) * length));
    return out;
  };
}

/**
 * What becomes of every row along the last dimension.
 * @param {(row: Numbers, into: Numbers, node: Node) => void} f @returns {Operation}
 */
function rowwise(f) {
  return ([input], node) => {
    const x = tensor(input).whole();
    const out = Tensor.full(x.shape, node.dtype ?? "float32");
    const length = x.shape[x.shape.length - 1] ?? 1;
    for (let start = 0; start < x.data.length; start += length)
      f(x.data.subarray(start, start + length), out.data.subarray(start, start + length), node);
    return out;
  };
}

/** @param {Numbers} row */
function sum(row) {
  let total = 0;
  for (let i = 0; i < row.length; i++) total += Number(row[i]);
  return total;
}

/** By the index of every element. @param {Tensor} x @param {(index: number[]) => number} f @param {Kind} kind */
function byIndex(x, f, kind) {
  const out = Tensor.full(x.shape, kind);
  const steps = rowMajor(x.shape);
  for (let i = 0; i < out.data.length; i++)
    out.data[i] = f(steps.map((step, dim) => Math.floor(i / step) % at(x.shape, dim)));
  return out;
}

/** The error function: its series near 0, and a continued fraction beyond. @param {number} x */
function erf(x) {
  const size = Math.abs(x);
  if (size > 6) return Math.sign(x);
  if (size < 2.5) {
    let [term, total] = [x, x];
    for (let n = 1; n < 60 && Math.abs(term) > 1e-17 * Math.abs(total); n++) {
      term *= (-x * x) / n;
      total += term / (2 * n + 1);
    }
    return (2 / Math.sqrt(Math.PI)) * total;
  }
  let fraction = size;
  for (let n = 60; n > 0; n--) fraction = size + n / 2 / fraction;
  return Math.sign(x) * (1 - Math.exp(-size * size) / (fraction * Math.sqrt(Math.PI)));
}

/** Half to even, as PyTorch rounds. @param {number} x */
function round(x) {
  const below = Math.floor(x);
  return x - below === 0.5 ? 2 * Math.round(below / 2) : Math.round(x);
}

/** @param {number} x */
const sigmoid = (x) => 1 / (1 + Math.exp(-x));

/** @type {Record<string, (...numbers: number[]) => number>} */
const EACH = {
  neg: (x = 0) => -x, exp: Math.exp, log: Math.log, log1p: Math.log1p, expm1: Math.expm1, sin: Math.sin, cos: Math.cos,
  tanh: Math.tanh, sigmoid: (x = 0) => sigmoid(x), relu: (x = 0) => Math.max(0, x), sqrt: Math.sqrt, abs: Math.abs,
  rsqrt: (x = 0) => 1 / Math.sqrt(x), reciprocal: (x = 0) => 1 / x, floor: Math.floor, ceil: Math.ceil,
  round: (x = 0) => round(x), sign: Math.sign, frac: (x = 0) => x - Math.trunc(x), silu: (x = 0) => x * sigmoid(x),
  gelu: (x = 0) => (x / 2) * (1 + erf(x / Math.SQRT2)), softplus: (x = 0) => (x > 20 ? x : Math.log1p(Math.exp(x))),
  not: (x = 0) => Number(!x), cast: (x = 0) => x, add: (a = 0, b = 0) => a + b, sub: (a = 0, b = 0) => a - b,
  mul: (a = 0, b = 0) => a * b, div: (a = 0, b = 0) => a / b,
  pow: (a = 0, b = 0) => a ** b, max: (a = 0, b = 0) => Math.max(a, b), min: (a = 0, b = 0) => Math.min(a, b),
  atan2: (a = 0, b = 0) => Math.atan2(a, b), le: (a = 0, b = 0) => Number(a <= b), lt: (a = 0, b = 0) => Number(a < b),
  ge: (a = 0, b = 0) => Number(a >= b), gt: (a = 0, b = 0) => Number(a > b), eq: (a = 0, b = 0) => Number(a === b),
  ne: (a = 0, b = 0) => Number(a !== b), and: (a = 0, b = 0) => Number(a && b), or: (a = 0, b = 0) => Number(a || b),
  where: (condition = 0, a = 0, b = 0) => (condition ? a : b),
};

/** @param {Node} node @returns {Kind} */
const kindOf = (node) => node.dtype ?? "float32";

/** @type {Record<string, Operation>} */
export const OPERATIONS = {
  ...Object.fromEntries(Object.entries(EACH).map(([name, f]) => [name, elementwise(f)])),
  int_add: ([a, b]) => Number(a) + Number(b),
  int_sub: ([a, b]) => Number(a) - Number(b),
  int_mul: ([a, b]) => Number(a) * Number(b),
  int_div: ([a, b]) => Math.floor(Number(a) / Number(b)),
  size: ([x], node) => at(tensor(x).shape, tensor(x).dim(node.dim ?? 0)),
  sum: reduction(sum),
  mean: reduction((row) => sum(row) / row.length),
  any: reduction((row) => Number(row.some(Boolean))),
  softmax: rowwise((row, into) => {
    let [most, total] = [-Infinity, 0];
    for (const x of row) most = Math.max(most, x);
    for (let i = 0; i < row.length; i++) total += into[i] = Math.exp(Number(row[i]) - most);
    for (let i = 0; i < row.length; i++) into[i] = Number(into[i]) / total;
  }),
  rms_norm: rowwise((row, into, node) => {
    let squares = 0;
    for (const x of row) squares += x * x;
    const scale = 1 / Math.sqrt(squares / row.length + (node.eps ?? 0));
    for (let i = 0; i < row.length; i++) into[i] = Number(row[i]) * scale;
  }),
  layer_norm: rowwise((row, into, node) => {
    const mean = sum(row) / row.length;
    let squares = 0;
    for (const x of row) squares += (x - mean) ** 2;
    const scale = 1 / Math.sqrt(squares / row.length + (node.eps ?? 0));
    for (let i = 0; i < row.length; i++) into[i] = (Number(row[i]) - mean) * scale;
  }),
  cumsum: ([x], node) => {
    const last = tensor(x).shape.length - 1;
    const moved = tensor(x).transpose(node.dim ?? 0, last);
    const run = rowwise((row, into) => {
      let total = 0;
      for (let i = 0; i < row.length; i++) into[i] = total += Number(row[i]);
    });
    return tensor(run([moved], node, Number)).transpose(node.dim ?? 0, last);
  },
  matmul: ([a, b], node) => matmul(tensor(a), tensor(b), kindOf(node)),
  linear: ([x, weight], node) => {
    const [input, shape] = [tensor(x), tensor(x).shape];
    const rows = input.reshape([-1, at(shape, shape.length - 1)]);
    const product = matmul(rows, tensor(weight).transpose(0, 1), kindOf(node));
    return product.reshape([...shape.slice(0, -1), at(product.shape, 1)]);
  },
  einsum: (inputs, node) => einsum(inputs.map(tensor), node.equation ?? "", kindOf(node)),
  cat: (inputs, node) => cat(inputs.map(tensor), node.dim ?? 0, kindOf(node)),
  take: ([table, index], node) => take(tensor(table), tensor(index), kindOf(node)),
  gather: ([x, index], node) => gather(tensor(x), tensor(index), node.dim ?? 0, kindOf(node)),
  flip: ([input], node) => {
    const x = tensor(input);
    const dims = (node.dims ?? []).map((dim) => x.dim(dim));
    const turned = x.strides.map((step, dim) => (dims.includes(dim) ? -step : step));
    const start = dims.reduce((total, dim) => total + at(x.strides, dim) * (at(x.shape, dim) - 1), x.offset);
    return x.view(x.shape, turned, start);
  },
  reshape: ([x], node, size) => tensor(x).reshape((node.shape ?? []).map(size)),
  flatten: ([x], node) => {
    const [shape, first, last] = [tensor(x).shape, tensor(x).dim(node.first ?? 0), tensor(x).dim(node.last ?? -1)];
    return tensor(x).reshape([...shape.slice(0, first), count(shape.slice(first, last + 1)), ...shape.slice(last + 1)]);
  },
  unflatten: ([x], node, size) => {
    const [shape, dim] = [tensor(x).shape, tensor(x).dim(node.dim ?? 0)];
    return tensor(x).reshape([...shape.slice(0, dim), ...(node.sizes ?? []).map(size), ...shape.slice(dim + 1)]);
  },
  permute: ([x], node) => tensor(x).permute(node.dims ?? []),
  transpose: ([x], node) => tensor(x).transpose(at(node.dims ?? [], 0), at(node.dims ?? [], 1)),
  expand: ([x], node, size) => tensor(x).expand((node.shape ?? []).map(size)),
  expand_as: ([x, other]) => tensor(x).expand(tensor(other).shape),
  unsqueeze: ([x], node) => {
    const [shape, strides] = [[...tensor(x).shape], [...tensor(x).strides]];
    const dim = (node.dim ?? 0) < 0 ? (node.dim ?? 0) + shape.length + 1 : (node.dim ?? 0);
    shape.splice(dim, 0, 1);
    strides.splice(dim, 0, 0);
    return tensor(x).view(shape, strides);
  },
  squeeze: ([x], node) => {
    const gone = (node.dims ?? []).map((dim) => tensor(x).dim(dim)).filter((dim) => tensor(x).shape[dim] === 1);
    const without = (/** @type {number[]} */ list) => list.filter((_, dim) => !gone.includes(dim));
    return tensor(x).view(without(tensor(x).shape), without(tensor(x).strides));
  },
  slice: ([x], node, size) => {
    const end = node.end === undefined || node.end === null ? Infinity : size(node.end);
    return tensor(x).slice(tensor(x).dim(node.dim ?? 0), size(node.start ?? 0), end);
  },
  select: ([x], node, size) => tensor(x).select(tensor(x).dim(node.dim ?? 0), size(node.index ?? 0)),
  pad: ([input], node, size) => {
    const [x, { shape }] = [tensor(input), tensor(input)];
    const before = shape.map((_, dim) => node.pad?.[2 * (shape.length - 1 - dim)] ?? 0);
    const after = shape.map((_, dim) => node.pad?.[2 * (shape.length - 1 - dim) + 1] ?? 0);
    const padded = shape.map((length, dim) => length + at(before, dim) + at(after, dim));
    const out = Tensor.full(padded, kindOf(node), size(node.value ?? 0));
    const start = before.reduce((total, length, dim) => total + length * at(out.strides, dim), 0);
    walk(shape, [x.strides, out.strides], [x.offset, start], ([from = 0, to = 0]) => {
      out.data[to] = Number(x.data[from]);
    });
    return out;
  },
  full: (_, node, size) => Tensor.full((node.shape ?? []).map(size), kindOf(node), size(node.value ?? 0)),
  full_like: ([x], node, size) => Tensor.full(tensor(x).shape, kindOf(node), size(node.value ?? 0)),
  arange: (_, node, size) => {
    const [start, end] = [size(node.start ?? 0), size(node.end ?? 0)];
    return byIndex(Tensor.full([Math.max(0, end - start)], kindOf(node)), ([i = 0]) => start + i, kindOf(node));
  },
  tril: ([x], node, size) => {
    const whole = tensor(x).whole();
    const [diagonal, rank] = [size(node.diagonal ?? 0), whole.shape.length];
    const mask = byIndex(whole, (index) => Number(at(index, rank - 1) <= at(index, rank - 2) + diagonal), "bool");
    return tensor(OPERATIONS["where"]?.([mask, whole, 0], node, size));
  },
};

