// Rule players on the walk that is being walked: what anybody could score by a rule, beside what the models score.

/** @typedef {{name: string, means: string, answer: (step: number) => number | null}} Rule */
/** @typedef {import("./walk.js").Walk} Walk */

/**
 * @param {Walk} walk @param {{empty?: number | null, lag?: number}} task
 * @returns {Rule[]}
 */
export function rulesOf(walk, task) {
  const seen = (/** @type {number} */ step) => (step >= 0 ? walk.steps[step].content : null);
  const lag = task.lag ?? 1;
  return [
    {
      name: "notebook",
      means: "writes down every place and what was there: the best anybody can do",
      answer: (step) => (walk.isRevisit(step) ? seen(walk.steps[step].first) : (task.empty ?? null)),
    },
    {
      name: lag === 1 ? "the last one again" : `the one ${lag} steps ago`,
      means: "has no map: repeats what it saw a fixed number of steps ago, the number that works best",
      answer: (step) => seen(step - lag),
    },
  ];
}

/**
 * Which steps count: returns to places that are not empty, whose content is known by now.
 * @param {Walk} walk @param {{empty?: number | null}} task
 */
export function scoredSteps(walk, task) {
  const known = walk.steps.length - (walk.revealed ? 0 : 1);
  const steps = [];
  for (let step = 0; step < known; step++) {
    if (walk.isRevisit(step) && walk.steps[step].content !== (task.empty ?? null)) steps.push(step);
  }
  return steps;
}
