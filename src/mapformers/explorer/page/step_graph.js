// @ts-check
/**
 * A model's streaming step, computed in the page: token and state in, logits, state and what can be seen out.
 *
 * The graph is what `mapformers.explorer.step_graph` writes: a list of small operations on tensors. A tensor is a view
 * of an array, so transposing or cutting one costs nothing. States are values: a step returns a new one, and leaves the
 * one it was given as it was.
 */

/** @typedef {"float32" | "float64" | "int32" | "bool"} Kind */
/** @typedef {Float32Array | Float64Array | Int32Array | Uint8Array} Numbers */
/** @typedef {string | number} Item a value's name, or a number */
/**
 * @typedef {{op: string, in: Item[], out: string, dtype?: Kind, dim?: number, dims?: number[], keepdim?: boolean,
 *   shape?: Item[], sizes?: Item[], start?: Item, end?: Item | null, index?: Item, value?: Item, eps?: number,
 *   equation?: string, first?: number, last?: number, pad?: number[], diagonal?: Item, n?: number}} Node
 */
/** @typedef {{name: string, value: string, role: string, shape?: number[], dtype?: Kind, empty?: string}} Input */
/** @typedef {{name: string, value: string, role: string}} Output */
/** @typedef {{weight: string, shape: number[], strides: number[], offset: number}} View */
/** @typedef {{shape: number[], dtype: Kind, data: string}} Weight */
/**
 * @typedef {{inputs: Input[], outputs: Output[], nodes: Node[], constants: Record<string, View>,
 *   weights: Record<string, Weight>}} Graph
 */
/** @typedef {Readonly<Record<string, Tensor>>} State */
/** @typedef {{movementScale?: number, temperature?: number, hidden?: readonly number[]}} Settings */
/** @typedef {{shape: number[], data: Numbers}} Seen */
/** @typedef {{logits: Float32Array, state: State, observed: Record<string, Seen>}} Step */
/** @typedef {Tensor | number} Value */
/** @typedef {(inputs: Value[], node: Node, size: (item: Item) => number) => Value} Operation */

const ARRAYS = { float32: Float32Array, float64: Float64Array, int32: Int32Array, bool: Uint8Array };
/** @type {Record<string, number>} */
const WORDS = { Infinity: Infinity, "-Infinity": -Infinity };

export class Tensor {
  /**
   * @param {Numbers} data @param {number[]} shape @param {Kind} kind @param {number[]} [strides] @param {number} [offset]
   */
  constructor(data, shape, kind, strides = rowMajor(shape), offset = 0) {
    this.data = data;
    this.shape = shape;
    this.kind = kind;
    this.strides = strides;
    this.offset = offset;
  }

  /** @param {readonly number[]} shape @param {Kind} kind @param {number} [value] */
  static full(shape, kind, value = 0) {
    const data = new ARRAYS[kind](count(shape));
    return new Tensor(value ? data.fill(value) : data, [...shape], kind);
  }

  get isWhole() {
    return this.offset === 0 && this.data.length === count(this.shape) && same(this.strides, rowMajor(this.shape));
  }

  /** Row after row in an array of its own, or as it is where it is that already. */
  whole() {
    if (this.isWhole) return this;
    const out = Tensor.full(this.shape, this.kind);
    let at = 0;
    walk(this.shape, [this.strides], [this.offset], ([place]) => (out.data[at++] = this.data[/** @type {number} */ (place)] ?? 0));
    return out;
  }

  /** @param {number[]} shape @param {number[]} strides @param {number} [offset] */
  view(shape, strides, offset = this.offset) {
    return new Tensor(this.data, shape, this.kind, strides, offset);
  }

  /** @param {readonly number[]} shape one of which may be -1 */
  reshape(shape) {
    const known = shape.reduce((product, size) => (size < 0 ? product : product * size), 1);
    const sizes = shape.map((size) => (size < 0 ? count(this.shape) / known : size));
    const whole = this.whole();
    return new Tensor(whole.data, sizes, this.kind);
  }

  /** @param {readonly number[]} dims */
  permute(dims) {
    return this.view(dims.map((dim) => at(this.shape, dim)), dims.map((dim) => at(this.strides, dim)));
  }

  /** @param {number} first @param {number} second */
  transpose(first, second) {
    const dims = this.shape.map((_, dim) => dim);
    const [a, b] = [this.dim(first), this.dim(second)];
    [dims[a], dims[b]] = [b, a];
    return this.permute(dims);
  }

  /** @param {readonly number[]} shape in which -1 leaves a size as it is */
  expand(shape) {
    const missing = shape.length - this.shape.length;
    const sizes = shape.map((size, dim) => (size < 0 ? at(this.shape, dim - missing) : size));
    return this.view(sizes, strideOver(this, sizes));
  }

  /** @param {number} dim @param {number} start @param {number} end */
  slice(dim, start, end) {
    const size = at(this.shape, dim);
    const [from, to] = [start, end].map((place) => Math.min(size, Math.max(0, place < 0 ? place + size : place)));
    const shape = [...this.shape];
    shape[dim] = Math.max(0, Number(to) - Number(from));
    return this.view(shape, this.strides, this.offset + Number(from) * at(this.strides, dim));
  }

  /** @param {number} dim @param {number} index */
  select(dim, index) {
    const place = index < 0 ? index + at(this.shape, dim) : index;
    const without = (/** @type {number[]} */ list) => list.filter((_, other) => other !== dim);
    return this.view(without(this.shape), without(this.strides), this.offset + place * at(this.strides, dim));
  }

  /** @param {number} dim counted from the end where it is negative */
  dim(dim) {
    return dim < 0 ? dim + this.shape.length : dim;
  }
}

/** @param {readonly number[]} list @param {number} index */
function at(list, index) {
  const found = list[index];
  if (found === undefined) throw new Error(`There is no dimension ${index} among ${list.length}.`);
  return found;
}

/** @param {readonly number[]} shape */
function count(shape) {
  return shape.reduce((product, size) => product * size, 1);
}

/** @param {readonly number[]} a @param {readonly number[]} b */
function same(a, b) {
  return a.length === b.length && a.every((size, dim) => size === b[dim]);
}

/** @param {readonly number[]} shape @returns {number[]} */
function rowMajor(shape) {
  const strides = new Array(shape.length);
  let step = 1;
  for (let dim = shape.length - 1; dim >= 0; dim--) {
    strides[dim] = step;
    step *= at(shape, dim);
  }
  return strides;
}

/** Strides of a tensor that is repeated to fill a shape. @param {Tensor} x @param {readonly number[]} shape */
function strideOver(x, shape) {
  const missing = shape.length - x.shape.length;
  return shape.map((size, dim) =>
    dim < missing || (at(x.shape, dim - missing) === 1 && size !== 1) ? 0 : at(x.strides, dim - missing),
  );
}

/** @param {readonly (readonly number[])[]} shapes @returns {number[]} */
function broadcast(shapes) {
  const rank = Math.max(0, ...shapes.map((shape) => shape.length));
  return Array.from({ length: rank }, (_, dim) => {
    const sizes = shapes.map((shape) => shape[dim - rank + shape.length] ?? 1);
    return sizes.find((size) => size !== 1) ?? 1;
  });
}

/**
 * Visit every element of a shape in order, with its place in several arrays.
 * @param {readonly number[]} shape @param {readonly (readonly number[])[]} strides @param {readonly number[]} offsets
 * @param {(places: readonly number[]) => void} visit
 */
function walk(shape, strides, offsets, visit) {
  if (count(shape) === 0) return;
  const places = [...offsets];
  const index = new Array(shape.length).fill(0);
  for (;;) {
    visit(places);
    let dim = shape.length - 1;
    for (; dim >= 0; dim--) {
      index[dim]++;
      if (index[dim] < at(shape, dim)) {
        strides.forEach((steps, which) => (places[which] = at(places, which) + at(steps, dim)));
        break;
      }
      const back = index[dim] - 1;
      index[dim] = 0;
      strides.forEach((steps, which) => (places[which] = at(places, which) - back * at(steps, dim)));
    }
    if (dim < 0) return;
  }
}

/** @param {Value | undefined} value @returns {Tensor} */
function tensor(value) {
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
    const shape = node.keepdim ? x.shape.map((size, dim) => (dims.includes(dim) ? 1 : size)) : kept.map((dim) => at(x.shape, dim));
    const out = Tensor.full(shape, node.dtype ?? "float32");
    for (let i = 0; i < out.data.length; i++) out.data[i] = f(rows.data.subarray(i * length, (i + 1) * length));
    return out;
  };
}

/** What becomes of every row along the last dimension. @param {(row: Numbers, into: Numbers, node: Node) => void} f @returns {Operation} */
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

/**
 * Products of matrices (…, n, k) and (…, k, m), whichever way they lie.
 * @param {Tensor} a @param {Tensor} b @param {Kind} kind
 */
function matmul(a, b, kind) {
  const [n, k, m] = [at(a.shape, a.dim(-2)), at(a.shape, a.dim(-1)), at(b.shape, b.dim(-1))];
  const batch = broadcast([a.shape.slice(0, -2), b.shape.slice(0, -2)]);
  const out = Tensor.full([...batch, n, m], kind);
  const [wideA, wideB] = [a.expand([...batch, n, k]), b.expand([...batch, k, m])];
  const [rowA, colA] = wideA.strides.slice(-2);
  const [rowB, colB] = wideB.strides.slice(-2);
  const [x, y, into] = [a.data, b.data, out.data];
  const [ra, ca, rb, cb] = [Number(rowA), Number(colA), Number(rowB), Number(colB)];
  let start = 0;
  walk(batch, [wideA.strides.slice(0, -2), wideB.strides.slice(0, -2)], [a.offset, b.offset], ([fromA = 0, fromB = 0]) => {
    for (let i = 0; i < n; i++)
      for (let j = 0; j < m; j++) {
        let total = 0;
        for (let s = 0, pa = fromA + i * ra, pb = fromB + j * cb; s < k; s++, pa += ca, pb += rb)
          total += /** @type {number} */ (x[pa]) * /** @type {number} */ (y[pb]);
        into[start + i * m + j] = total;
      }
    start += n * m;
  });
  return out;
}

/** Sums over all labels that the result does not have. @param {Tensor[]} tensors @param {string} equation @param {Kind} kind */
function einsum(tensors, equation, kind) {
  const [left = "", right = ""] = equation.split("->");
  const labels = left.split(",").map((word) => [...word]);
  /** @type {Map<string, number>} */
  const sizes = new Map();
  labels.forEach((word, which) => word.forEach((label, dim) => sizes.set(label, at(tensor(tensors[which]).shape, dim))));
  const order = [...right, ...[...sizes.keys()].filter((label) => !right.includes(label))];
  const shape = order.map((label) => sizes.get(label) ?? 1);
  const out = Tensor.full(shape.slice(0, right.length), kind);
  const strides = labels.map((word, which) =>
    order.map((label) => (word.includes(label) ? at(tensor(tensors[which]).strides, word.indexOf(label)) : 0)),
  );
  const inner = count(shape.slice(right.length));
  let [i, total] = [0, 0];
  walk(shape, strides, tensors.map((x) => x.offset), (places) => {
    let product = 1;
    for (let which = 0; which < places.length; which++) product *= Number(tensors[which]?.data[at(places, which)]);
    total += product;
    if (++i % inner === 0) {
      out.data[i / inner - 1] = total;
      total = 0;
    }
  });
  return out;
}

/** @param {Tensor[]} tensors @param {number} dim @param {Kind} kind */
function cat(tensors, dim, kind) {
  const first = tensor(tensors[0]);
  const along = first.dim(dim);
  const shape = [...first.shape];
  shape[along] = tensors.reduce((total, x) => total + at(x.shape, along), 0);
  const out = Tensor.full(shape, kind);
  const inner = count(shape.slice(along + 1));
  const [outer, row] = [count(shape.slice(0, along)), at(shape, along) * inner];
  let start = 0;
  for (const x of tensors) {
    const length = at(x.shape, along) * inner;
    const { data } = x.whole();
    for (let i = 0; i < outer; i++) out.data.set(data.subarray(i * length, (i + 1) * length), i * row + start);
    start += length;
  }
  return out;
}

/** Rows of a table. @param {Tensor} table @param {Tensor} index @param {Kind} kind */
function take(table, index, kind) {
  const { data } = table.whole();
  const rest = table.shape.slice(1);
  const [rows, row] = [index.whole(), count(rest)];
  const out = Tensor.full([...index.shape, ...rest], kind);
  rows.data.forEach((place, i) => out.data.set(data.subarray(place * row, (place + 1) * row), i * row));
  return out;
}

/** @param {Tensor} x @param {Tensor} index @param {number} dim @param {Kind} kind */
function gather(x, index, dim, kind) {
  const along = x.dim(dim);
  const shape = broadcast([index.shape, x.shape.map((size, other) => (other === along ? 1 : size))]);
  const [step, steps] = [at(x.strides, along), x.expand(shape.map((size, other) => (other === along ? -1 : size))).strides];
  const out = Tensor.full(shape, kind);
  let i = 0;
  walk(shape, [strideOver(index, shape), steps.map((s, other) => (other === along ? 0 : s))], [index.offset, x.offset], ([from = 0, to = 0]) => {
    out.data[i++] = Number(x.data[to + Number(index.data[from]) * step]);
  });
  return out;
}

/** @param {Tensor} x @param {(index: number[]) => number} f what becomes of an element at an index @param {Kind} kind */
function byIndex(x, f, kind) {
  const out = Tensor.full(x.shape, kind);
  const steps = rowMajor(x.shape);
  for (let i = 0; i < out.data.length; i++)
    out.data[i] = f(steps.map((step, dim) => Math.floor(i / step) % at(x.shape, dim)));
  return out;
}

/** Abramowitz and Stegun 7.1.26 is too coarse; this is the series near 0 and a continued fraction beyond. @param {number} x */
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
  not: (x = 0) => Number(!x), cast: (x = 0) => x,
  add: (a = 0, b = 0) => a + b, sub: (a = 0, b = 0) => a - b, mul: (a = 0, b = 0) => a * b, div: (a = 0, b = 0) => a / b,
  pow: (a = 0, b = 0) => a ** b, max: (a = 0, b = 0) => Math.max(a, b), min: (a = 0, b = 0) => Math.min(a, b),
  atan2: (a = 0, b = 0) => Math.atan2(a, b), le: (a = 0, b = 0) => Number(a <= b), lt: (a = 0, b = 0) => Number(a < b),
  ge: (a = 0, b = 0) => Number(a >= b), gt: (a = 0, b = 0) => Number(a > b), eq: (a = 0, b = 0) => Number(a === b),
  ne: (a = 0, b = 0) => Number(a !== b), and: (a = 0, b = 0) => Number(a && b), or: (a = 0, b = 0) => Number(a || b),
  where: (condition = 0, a = 0, b = 0) => (condition ? a : b),
};

/** @param {Node} node @returns {Kind} */
const kindOf = (node) => node.dtype ?? "float32";

/** @type {Record<string, Operation>} */
const OPERATIONS = {
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
  flip: ([x], node) => {
    const dims = (node.dims ?? []).map((dim) => tensor(x).dim(dim));
    const turned = tensor(x).strides.map((step, dim) => (dims.includes(dim) ? -step : step));
    const start = dims.reduce((total, dim) => total + at(tensor(x).strides, dim) * (at(tensor(x).shape, dim) - 1), tensor(x).offset);
    return tensor(x).view(tensor(x).shape, turned, start);
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
  pad: ([x], node, size) => {
    const { shape } = tensor(x);
    const before = shape.map((_, dim) => node.pad?.[2 * (shape.length - 1 - dim)] ?? 0);
    const after = shape.map((_, dim) => node.pad?.[2 * (shape.length - 1 - dim) + 1] ?? 0);
    const out = Tensor.full(shape.map((length, dim) => length + at(before, dim) + at(after, dim)), kindOf(node), size(node.value ?? 0));
    const start = before.reduce((total, length, dim) => total + length * at(out.strides, dim), 0);
    walk(shape, [tensor(x).strides, out.strides], [tensor(x).offset, start], ([from = 0, to = 0]) => (out.data[to] = Number(tensor(x).data[from])));
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
  one_hot: ([x], node) => {
    const index = tensor(x).whole();
    const out = Tensor.full([...index.shape, node.n ?? 0], kindOf(node));
    index.data.forEach((place, i) => (out.data[i * (node.n ?? 0) + place] = 1));
    return out;
  },
};

/** @param {Weight} weight @returns {Numbers} */
function decoded(weight) {
  const bytes = Uint8Array.from(atob(weight.data), (letter) => letter.charCodeAt(0));
  return weight.dtype === "bool" ? bytes : new ARRAYS[weight.dtype](bytes.buffer);
}

export class StepGraph {
  /** @param {Graph} graph */
  constructor(graph) {
    this.graph = graph;
    const weights = new Map(Object.entries(graph.weights).map(([name, weight]) => [name, decoded(weight)]));
    /** @type {Map<string, Value>} what no token changes */
    this.constants = new Map();
    for (const [name, view] of Object.entries(graph.constants)) {
      const [data, weight] = [weights.get(view.weight), graph.weights[view.weight]];
      if (!data || !weight) throw new Error(`The graph has no weight ${view.weight}.`);
      this.constants.set(name, new Tensor(data, view.shape, weight.dtype, view.strides, view.offset));
    }
    for (const node of graph.nodes)
      if (!OPERATIONS[node.op]) throw new Error(`The graph asks for ${node.op}, which this reader does not know.`);
  }

  /** The state before the first token. @returns {State} */
  emptyState() {
    /** @type {Record<string, Tensor>} */
    const state = {};
    for (const input of this.graph.inputs) {
      if (input.role !== "state") continue;
      const start = input.empty === undefined ? undefined : this.constants.get(input.empty);
      state[input.name] = start instanceof Tensor ? start : Tensor.full(input.shape ?? [], input.dtype ?? "float32");
    }
    return Object.freeze(state);
  }

  /**
   * @param {number} token @param {State} state
   * @param {Settings} [settings] `hidden`: past tokens, counted from 0, that are not to be seen from here on
   * @returns {Step}
   */
  step(token, state, { movementScale = 1, temperature = 1, hidden = [] } = {}) {
    /** @type {Record<string, Tensor>} */
    const given = {
      token: new Tensor(Int32Array.of(token), [1, 1], "int32"),
      movement_scale: new Tensor(Float32Array.of(movementScale), [], "float32"),
      temperature: new Tensor(Float32Array.of(temperature), [], "float32"),
      ...state,
    };
    if (hidden.length > 0 && given["visible"]) {
      const { data, shape } = given["visible"].whole();
      given["visible"] = new Tensor(data.map((seen, i) => (hidden.includes(i) ? 0 : seen)), shape, "bool");
    }
    const values = new Map(this.constants);
    for (const input of this.graph.inputs) values.set(input.value, tensor(given[input.name]));
    /** @param {Item} item @returns {Value} */
    const read = (item) => (typeof item === "number" ? item : (values.get(item) ?? WORDS[item] ?? missing(item)));
    for (const node of this.graph.nodes) {
      const operation = OPERATIONS[node.op];
      if (operation) values.set(node.out, operation(node.in.map(read), node, (item) => Number(read(item))));
    }
    return this.#collected((name) => tensor(read(name)).whole());
  }

  /** @param {(name: string) => Tensor} find @returns {Step} */
  #collected(find) {
    /** @type {Record<string, Tensor>} */
    const state = {};
    /** @type {Record<string, Seen>} */
    const observed = {};
    let logits = new Float32Array();
    for (const { name, value, role } of this.graph.outputs) {
      const found = find(value);
      if (role === "logits") logits = Float32Array.from(found.data);
      else if (role === "state") state[name] = found;
      else observed[name] = { shape: found.shape, data: found.data };
    }
    return { logits, state: Object.freeze(state), observed };
  }
}

/** @param {string} name @returns {never} */
function missing(name) {
  throw new Error(`The graph has no value ${name}.`);
}
