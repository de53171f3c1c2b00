// The rules of the task `dyck`: what is open, and what may come next. Openers are tokens 0 to types - 1, closers follow.

/**
 * The positions of the openers that are still open after all tokens, the outermost first; null if a closer did not fit.
 * @param {number[]} tokens @param {number} types @returns {number[] | null}
 */
export function openBrackets(tokens, types) {
  const open = [];
  for (let index = 0; index < tokens.length; index++) {
    if (tokens[index] < types) open.push(index);
    else {
      const last = open.pop();
      if (last === undefined || tokens[last] !== tokens[index] - types) return null;
    }
  }
  return open;
}

/** Which tokens may follow: every opener, and the closer of the innermost open bracket. @param {number[]} tokens @param {number} types */
export function validNext(tokens, types) {
  const open = openBrackets(tokens, types) ?? [];
  const top = open.length ? tokens[open[open.length - 1]] : -1;
  return Array.from({ length: 2 * types }, (_, token) => token < types || token - types === top);
}

/** The depth after each token. @param {number[]} tokens @param {number} types */
export function depths(tokens, types) {
  let depth = 0;
  return tokens.map((token) => (depth += token < types ? 1 : -1));
}

/**
 * F1 of the valid continuations, as tasks/dyck.py has it: precision is the probability of the valid tokens, recall the
 * share of valid tokens that are each more likely than all invalid ones together.
 * @param {ArrayLike<number>} chances @param {boolean[]} valid
 */
export function continuationF1(chances, valid) {
  const invalid = valid.reduce((sum, may, token) => sum + (may ? 0 : chances[token]), 0);
  const recalled = valid.filter((may, token) => may && chances[token] > invalid).length / valid.filter(Boolean).length;
  const both = 1 - invalid + recalled;
  return both === 0 ? 0 : (2 * (1 - invalid) * recalled) / both;
}
