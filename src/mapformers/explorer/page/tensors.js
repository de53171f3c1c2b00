// @ts-check
/**
 * Tensors as views of arrays, so that transposing or cutting one costs nothing, and products of them.
 */

/** @typedef {"float32" | "float64" | "int32" | "bool"} Kind */
/** @typedef {Float32Array | Float64Array | Int32Array | Uint8Array} Numbers */

export const ARRAYS = { float32: Float32Array, float64: Float64Array, int32: Int32Array, bool: Uint8Array };

export class Tensor {
  /**
   * @param {Numbers} data @param {number[]} shape @param {Kind} kind
   * @param {number[]} [strides] @param {number} [offset]
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
    walk(this.shape, [this.strides], [this.offset], ([place = 0]) => {
      out.data[at++] = Number(this.data[place]);
    });
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
export function at(list, index) {
  const found = list[index];
  if (found === undefined) throw new Error(`There is no dimension ${index} among ${list.length}.`);
  return found;
}

/** @param {readonly number[]} shape */
export function count(shape) {
  return shape.reduce((product, size) => product * size, 1);
}

/** @param {readonly number[]} a @param {readonly number[]} b */
export function same(a, b) {
  return a.length === b.length && a.every((size, dim) => size === b[dim]);
}

/** @param {readonly number[]} shape @returns {number[]} */
export function rowMajor(shape) {
  const strides = new Array(shape.length);
  let step = 1;
  for (let dim = shape.length - 1; dim >= 0; dim--) {
    strides[dim] = step;
    step *= at(shape, dim);
  }
  return strides;
}

/** Strides of a tensor that is repeated to fill a shape. @param {Tensor} x @param {readonly number[]} shape */
export function strideOver(x, shape) {
  const missing = shape.length - x.shape.length;
  return shape.map((size, dim) =>
    dim < missing || (at(x.shape, dim - missing) === 1 && size !== 1) ? 0 : at(x.strides, dim - missing),
  );
}

/** @param {readonly (readonly number[])[]} shapes @returns {number[]} */
export function broadcast(shapes) {
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
export function walk(shape, strides, offsets, visit) {
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

/**
 * Products of matrices (…, n, k) and (…, k, m), whichever way they lie.
 * @param {Tensor} a @param {Tensor} b @param {Kind} kind
 */
export function matmul(a, b, kind) {
  const [n, k, m] = [at(a.shape, a.dim(-2)), at(a.shape, a.dim(-1)), at(b.shape, b.dim(-1))];
  const batch = broadcast([a.shape.slice(0, -2), b.shape.slice(0, -2)]);
  const out = Tensor.full([...batch, n, m], kind);
  const [wideA, wideB] = [a.expand([...batch, n, k]), b.expand([...batch, k, m])];
  const [rowA, colA] = wideA.strides.slice(-2);
  const [rowB, colB] = wideB.strides.slice(-2);
  const [x, y, into] = [a.data, b.data, out.data];
  const [ra, ca, rb, cb] = [Number(rowA), Number(colA), Number(rowB), Number(colB)];
  let start = 0;
  const steps = [wideA.strides.slice(0, -2), wideB.strides.slice(0, -2)];
  walk(batch, steps, [a.offset, b.offset], ([fromA = 0, fromB = 0]) => {
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

/**
 * Sums over all labels that the result does not have.
 * @param {Tensor[]} tensors @param {string} equation @param {Kind} kind
 */
export function einsum(tensors, equation, kind) {
  const [left = "", right = ""] = equation.split("->");
  const labels = left.split(",").map((word) => [...word]);
  /** @type {Map<string, number>} */
  const sizes = new Map();
  labels.forEach((word, which) => word.forEach((label, dim) => sizes.set(label, at(one(tensors, which).shape, dim))));
  const order = [...right, ...[...sizes.keys()].filter((label) => !right.includes(label))];
  const shape = order.map((label) => sizes.get(label) ?? 1);
  const out = Tensor.full(shape.slice(0, right.length), kind);
  const strides = labels.map((word, which) =>
    order.map((label) => (word.includes(label) ? at(one(tensors, which).strides, word.indexOf(label)) : 0)),
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
export function cat(tensors, dim, kind) {
  const first = one(tensors, 0);
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
export function take(table, index, kind) {
  const { data } = table.whole();
  const rest = table.shape.slice(1);
  const [rows, row] = [index.whole(), count(rest)];
  const out = Tensor.full([...index.shape, ...rest], kind);
  rows.data.forEach((place, i) => out.data.set(data.subarray(place * row, (place + 1) * row), i * row));
  return out;
}

/** @param {Tensor} x @param {Tensor} index @param {number} dim @param {Kind} kind */
export function gather(x, index, dim, kind) {
  const along = x.dim(dim);
  const shape = broadcast([index.shape, x.shape.map((size, other) => (other === along ? 1 : size))]);
  const step = at(x.strides, along);
  const steps = x.expand(shape.map((size, other) => (other === along ? -1 : size))).strides;
  const across = steps.map((size, other) => (other === along ? 0 : size));
  const out = Tensor.full(shape, kind);
  let i = 0;
  walk(shape, [strideOver(index, shape), across], [index.offset, x.offset], ([from = 0, to = 0]) => {
    out.data[i++] = Number(x.data[to + Number(index.data[from]) * step]);
  });
  return out;
}

/** @param {readonly Tensor[]} tensors @param {number} index */
function one(tensors, index) {
  const found = tensors[index];
  if (!found) throw new Error(`There are ${tensors.length} tensors, and none at ${index}.`);
  return found;
}
