// What both engines share: the shape of what was seen, and a cache of it by what was read.

/**
 * @typedef {{delta_in?: number[][], coordinate?: number[][], theta?: number[][], delta?: number[][],
 *   attention?: (number[] | null)[][]}} SeenLayer
 *   one row per token; attention: head, then token, then key; null where it was not asked for
 * @typedef {{logits: number[][], layers: SeenLayer[]}} Seen
 * @typedef {{hidden?: number[], still?: number[], temperature?: number, attention?: boolean, snapshot?: number,
 *   progress?: (share: number) => void}} Options
 * @typedef {{name: string, heads: number, observables: string[], movements?: number[][], rank?: number, speeds?: number[]}} LayerAbout
 * @typedef {{label: string, task: string, parameters: number, vocab: number, step: number, layers: LayerAbout[], snapshots?: number[],
 *   scores: Record<string, Record<string, number | null>>}} ModelAbout
 * @typedef {{name: string, kind: string, tokens: string[], actions: number[], metric: string, settings: any,
 *   splits: Record<string, any>, empty?: number | null, lag?: number, blank?: number, separator?: number}} TaskAbout
 * @typedef {{task: TaskAbout, models: ModelAbout[], players?: Record<string, Record<string, Record<string, number | null>>>}} About
 * @typedef {{about: About, live: boolean,
 *   read: (model: number, tokens: number[], options?: Options) => Promise<Seen>,
 *   world: (split: string, seed: number) => Promise<any>,
 *   ask: (question: string, asked: any) => Promise<any>}} Engine
 */

/** @param {ArrayLike<number>} logits @returns {number[]} */
export function softmax(logits) {
  let top = -Infinity;
  for (let i = 0; i < logits.length; i++) top = Math.max(top, logits[i]);
  const raised = Array.from(logits, (logit) => Math.exp(logit - top));
  const total = raised.reduce((sum, value) => sum + value, 0);
  return raised.map((value) => value / total);
}

/** @param {number} logit */
export function sigmoid(logit) {
  return 1 / (1 + Math.exp(-logit));
}

/** @param {ArrayLike<number>} values */
export function argmax(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}

/** What each token does to a model, as one word per token: readings that begin alike share what was seen. @param {number[]} tokens @param {Options} options */
export function signature(tokens, options) {
  const hidden = new Set(options.hidden ?? []);
  const still = new Set(options.still ?? []);
  const state = `@${options.temperature ?? 1}#${options.snapshot ?? ""}`;
  return tokens.map((token, index) => `${token}${hidden.has(index) ? "h" : ""}${still.has(token) ? "s" : ""}${state}`);
}

/** How many words two lists have in common at their beginnings. @param {string[]} one @param {string[]} other */
export function commonLength(one, other) {
  let length = 0;
  while (length < one.length && length < other.length && one[length] === other[length]) length++;
  return length;
}

/** The first tokens of what was seen. @param {Seen} seen @param {number} length @returns {Seen} */
export function firstOf(seen, length) {
  const layers = seen.layers.map((layer) => {
    /** @type {any} */
    const cut = {};
    for (const [name, rows] of Object.entries(layer)) {
      cut[name] = name === "attention" ? rows.map((/** @type {any[]} */ head) => head.slice(0, length)) : rows.slice(0, length);
    }
    return cut;
  });
  return { logits: seen.logits.slice(0, length), layers };
}

/** What was seen, and what was seen after it. @param {Seen} seen @param {Seen} more @returns {Seen} */
export function followedBy(seen, more) {
  if (!seen.layers.length) return more;
  const layers = more.layers.map((layer, index) => {
    /** @type {any} */
    const both = {};
    for (const [name, rows] of Object.entries(layer)) {
      const before = /** @type {any} */ (seen.layers[index])[name];
      both[name] =
        name === "attention"
          ? rows.map((/** @type {any[]} */ head, /** @type {number} */ h) => [...before[h], ...head])
          : [...before, ...rows];
    }
    return both;
  });
  return { logits: [...seen.logits, ...more.logits], layers };
}
