// What the models expect to find, as bars, before it is revealed; and how often each of them was right so far.

import { counted, element, fill, percent } from "./dom.js";
import { argmax, softmax } from "./engine.js";
import { kindClass, nameOf } from "./grid_view.js";
import { rulesOf, scoredSteps } from "./players.js";

/** @typedef {import("./app.js").App} App */

const CANDIDATES = 6;

/** @param {HTMLElement} caption @param {HTMLElement} holder @param {App} app */
export function drawGuess(caption, holder, app) {
  const step = app.stepAt(app.cursor);
  if (step < 0) {
    fill(caption, "Take a step. Before you see what is there, each model says what it expects.");
    return fill(holder);
  }
  const { walk, task } = app;
  const { content, first } = walk.steps[step];
  const again = walk.isRevisit(step);
  const covered = app.isCovered();
  const before = step - first;
  const place = task.kind === "family" ? "person" : "place";
  fill(
    caption,
    again
      ? element("span", {}, element("b", {}, `You have been here, ${counted(before, "step")} ago. `), covered ? "A model with a map can know what is here." : `Here is ${nameOf(content, task)}.`)
      : element("span", {}, element("b", {}, `A new ${place}. `), covered ? "Nobody can know what is here: this guess does not count." : `Here is ${nameOf(content, task)}.`),
  );
  const chances = app.seen.map((seen) => {
    const logits = seen.logits[2 * step];
    return logits ? softmax(logits) : null;
  });
  const shown = candidates(chances, covered ? null : content);
  const rows = shown.map((token) => candidateRow(token, chances, covered ? null : content, task));
  const verdicts = app.about.models.map((model, index) => verdict(model.label, index, chances[index], content, again, covered));
  const words = shown.some((token) => task.tokens[token].length > 2);
  fill(holder, element("div", { class: words ? "bars words" : "bars" }, ...rows), element("div", { class: "verdicts" }, ...verdicts));
}

/** The tokens that either model holds most likely, and the truth. @param {(number[] | null)[]} chances @param {number | null} truth */
function candidates(chances, truth) {
  const best = chances.filter((row) => row !== null).map((row) => (row ?? []).map((chance, token) => ({ chance, token })).sort((a, b) => b.chance - a.chance).slice(0, CANDIDATES));
  /** @type {number[]} */
  const tokens = [];
  for (let rank = 0; rank < CANDIDATES && tokens.length < CANDIDATES; rank++) {
    for (const row of best) if (row[rank] && !tokens.includes(row[rank].token) && tokens.length < CANDIDATES) tokens.push(row[rank].token);
  }
  if (truth !== null && !tokens.includes(truth)) tokens[tokens.length - 1] = truth;
  return tokens;
}

/** @param {number} token @param {(number[] | null)[]} chances @param {number | null} truth @param {any} task */
function candidateRow(token, chances, truth, task) {
  const bars = chances.map((row, model) => {
    const chance = row ? row[token] : 0;
    const filled = element("i", { class: `model-${model}` });
    filled.style.width = `${(100 * chance).toFixed(1)}%`;
    return element("span", { class: "bar" }, filled, element("span", { class: "figure" }, percent(chance)));
  });
  const right = truth === token;
  return element("div", { class: `candidate ${right ? "right" : ""}` },
    element("span", { class: `swatch ${kindClass(token, task)}`, title: nameOf(token, task) }, task.tokens[token]),
    element("span", { class: "pair" }, ...bars),
    element("span", { class: "mark-right", "aria-label": right ? "this is it" : "" }, right ? "◂" : ""));
}

/** @param {string} label @param {number} model @param {number[] | null} chances @param {number} content @param {boolean} again @param {boolean} covered */
function verdict(label, model, chances, content, again, covered) {
  const right = chances !== null && argmax(chances) === content;
  const sign = covered || !again || !chances ? "" : right ? "✓" : "✗";
  return element("span", { class: `verdict model-${model} ${sign === "✓" ? "yes" : sign ? "no" : ""}` }, element("i", { class: "dot" }), label, " ", element("b", {}, sign));
}

/** The running scores of the models and of rule players. @param {HTMLElement} holder @param {App} app */
export function drawScores(holder, app) {
  const { walk, task } = app;
  const steps = scoredSteps(walk, task);
  const rows = app.about.models.map((model, index) => {
    const right = steps.filter((step) => app.seen[index]?.logits[2 * step] && argmax(app.seen[index].logits[2 * step]) === walk.steps[step].content).length;
    return scoreRow(model.label, `model-${index}`, right, steps.length, "");
  });
  for (const rule of rulesOf(walk, task)) {
    const right = steps.filter((step) => rule.answer(step) === walk.steps[step].content).length;
    rows.push(scoreRow(rule.name, "rule", right, steps.length, rule.means));
  }
  fill(holder, element("h3", {}, "So far on this walk"),
    element("p", { class: "caption" }, steps.length ? `Right on ${counted(steps.length, "return")} to a place that was not empty.` : "Come back to a place that was not empty: that is what counts."),
    element("div", { class: "score-table" }, ...rows));
}

/** @param {string} label @param {string} kind @param {number} right @param {number} of @param {string} means */
function scoreRow(label, kind, right, of, means) {
  const filled = element("i", { class: kind });
  filled.style.width = of ? `${(100 * right) / of}%` : "0";
  return element("div", { class: "score", title: means }, element("span", { class: "who" }, label), element("span", { class: "bar" }, filled), element("span", { class: "figure" }, of ? `${right} / ${of}` : "–"));
}
