// A model learns its map up to a change of basis. The linear map that sends its movements to true ones is fitted here.

/**
 * The matrix M (n × r) for which M·from is nearest to the wanted vectors, by least squares with a little ridge.
 * @param {number[][]} from vectors of r numbers @param {number[][]} to wanted vectors of n numbers
 */
export function fitLinear(from, to) {
  const r = from[0].length;
  const gram = Array.from({ length: r }, (_, i) => Array.from({ length: r }, (_, j) => from.reduce((sum, v) => sum + v[i] * v[j], 0)));
  const size = gram.reduce((sum, row, i) => sum + row[i], 0) / r;
  gram.forEach((row, i) => (row[i] += 1e-9 * size + 1e-12));
  return to[0].map((_, n) => solve(gram, Array.from({ length: r }, (_, i) => from.reduce((sum, v, k) => sum + v[i] * to[k][n], 0))));
}

/** Gauss elimination with pivots. @param {number[][]} matrix @param {number[]} right */
export function solve(matrix, right) {
  const n = right.length;
  const rows = matrix.map((row, i) => [...row, right[i]]);
  for (let column = 0; column < n; column++) {
    let pivot = column;
    for (let i = column + 1; i < n; i++) if (Math.abs(rows[i][column]) > Math.abs(rows[pivot][column])) pivot = i;
    [rows[column], rows[pivot]] = [rows[pivot], rows[column]];
    for (let i = 0; i < n; i++) {
      if (i === column || rows[column][column] === 0) continue;
      const factor = rows[i][column] / rows[column][column];
      for (let j = column; j <= n; j++) rows[i][j] -= factor * rows[column][j];
    }
  }
  return rows.map((row, i) => (row[i] === 0 ? 0 : row[n] / row[i]));
}

/** @param {number[][]} matrix @param {number[]} vector */
export function times(matrix, vector) {
  return matrix.map((row) => row.reduce((sum, value, i) => sum + value * vector[i], 0));
}

/** @param {number[]} vector */
export function norm(vector) {
  return Math.hypot(...vector);
}

/**
 * The two directions in which vectors differ most, as a matrix (2 × r): how more than two dimensions are drawn.
 * @param {number[][]} vectors
 */
export function twoDirections(vectors) {
  const r = vectors[0].length;
  if (r <= 2) return [0, 1].map((i) => Array.from({ length: r }, (_, j) => (i === j ? 1 : 0)));
  const found = [];
  let left = vectors.map((vector) => vector.slice());
  for (let k = 0; k < 2; k++) {
    /** @type {number[]} */
    let direction = Array.from({ length: r }, (_, i) => (i === k ? 1 : 0.1));
    for (let turn = 0; turn < 60; turn++) {
      const next = new Array(r).fill(0);
      for (const vector of left) {
        const along = vector.reduce((sum, value, i) => sum + value * direction[i], 0);
        vector.forEach((value, i) => (next[i] += along * value));
      }
      const size = norm(next) || 1;
      direction = next.map((value) => value / size);
    }
    found.push(direction);
    left = left.map((vector) => {
      const along = vector.reduce((sum, value, i) => sum + value * direction[i], 0);
      return vector.map((value, i) => value - along * direction[i]);
    });
  }
  return found;
}
