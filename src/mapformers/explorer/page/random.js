// Random numbers that are the same for the same seed.

/**
 * Uniform numbers in [0, 1): a 32-bit counter with a mixing step.
 * @param {number} seed
 * @returns {() => number}
 */
export function randomStream(seed) {
  let state = (seed ^ 0x5bf03635) >>> 0;
  return () => {
    state = (state + 0x9e3779b9) >>> 0;
    let mixed = state;
    mixed = Math.imul(mixed ^ (mixed >>> 16), 0x21f0aaad);
    mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97);
    return ((mixed ^ (mixed >>> 15)) >>> 0) / 4294967296;
  };
}

/** A whole number from 0 to n - 1. @param {number} uniform @param {number} n */
export function chosen(uniform, n) {
  return Math.min(n - 1, Math.floor(uniform * n));
}
