// Brackets as a mountain of depth: the stack, the arc to the last open bracket, and what may come next.

import { drawn, element, fill, percent } from "./dom.js";
import { continuationF1, depths, openBrackets, validNext } from "./brackets.js";
import { sigmoid, softmax } from "./engine.js";

/** @typedef {import("./app.js").App} App */

const MOST_BRACKETS = 34;

/** @param {HTMLElement} holder @param {App} app */
export function drawBrackets(holder, app) {
  const types = app.task.settings.types;
  const trained = app.task.settings.depth;
  const tokens = app.walk.tokens().slice(0, app.cursor + 1);
  const open = openBrackets(tokens, types);
  const heights = depths(tokens, types);
  const count = Math.min(MOST_BRACKETS, Math.max(16, tokens.length));
  const first = Math.max(0, tokens.length - count);
  const tallest = Math.max(trained + 1, ...heights.slice(first), 5);
  const rise = Math.min(9, 62 / tallest);
  const x = (/** @type {number} */ index) => 5 + ((index - first + 0.5) * 92) / count;
  const level = (/** @type {number} */ depth) => 88 - depth * rise;
  const at = (/** @type {number} */ index) => level(Math.max(heights[index], heights[index - 1] ?? 0));
  const picture = drawn("svg", { viewBox: "0 0 122 100", role: "img", "aria-label": stackSentence(app, tokens, open) });
  if (tallest > trained) {
    picture.append(drawn("rect", { class: "beyond", x: 3, y: level(tallest) - rise, width: 96, height: (tallest - trained) * rise + rise / 2 }));
    picture.append(drawn("text", { class: "note", x: 3, y: level(tallest) - rise - 1.6 }, `deeper than it ever saw (${trained})`));
  }
  let outline = `M${x(first) - 1.4} ${level(first ? heights[first - 1] : 0)}`;
  for (let i = first; i < tokens.length; i++) outline += `L${x(i) + 1.2} ${level(heights[i])}`;
  picture.append(drawn("path", { class: "mountain", d: outline }));
  const last = tokens.length - 1;
  const arc = (/** @type {number} */ from, /** @type {number} */ to, /** @type {string} */ kind, /** @type {number} */ width) => drawn("path", { class: kind, d: `M${x(from)} ${at(from) - 3}Q${(x(from) + x(to)) / 2} ${Math.min(at(from), at(to)) - 8 - Math.abs(x(from) - x(to)) * 0.28} ${x(to)} ${at(to) - 3}`, "stroke-width": width });
  app.about.models.forEach((_, model) => {
    const row = app.attentionRow(model) ?? [];
    row.forEach((weight, key) => {
      if (weight > 0.04 && key >= first && key < last) picture.append(arc(last, key, `arc model-${model}`, 0.3 + 2.2 * weight));
    });
  });
  if (open && open.length && open[open.length - 1] >= first && open[open.length - 1] !== last) picture.append(arc(last, open[open.length - 1], "arc-truth", 0.7));
  for (let i = first; i < tokens.length; i++) {
    const isOpen = open?.includes(i) ?? false;
    picture.append(drawn("text", { class: `bracket kind-${(tokens[i] % types) * 5} ${isOpen ? "open" : ""} ${i === last ? "now" : ""}`, x: x(i), y: at(i) + 2.4, "data-token": i }, app.task.tokens[tokens[i]]));
  }
  picture.append(drawn("text", { class: "note", x: 110, y: 96, "text-anchor": "middle" }, "stack"));
  (open ?? []).forEach((position, depth) => {
    picture.append(drawn("rect", { class: `plate kind-${(tokens[position] % types) * 5} ${depth >= trained ? "over" : ""}`, x: 104, y: level(depth + 1) + 0.4, width: 12, height: rise - 0.8, rx: 1.2, "data-token": position }));
    if (rise > 4) picture.append(drawn("text", { class: "plate-name", x: 110, y: level(depth + 0.5) + 1.6 }, app.task.tokens[tokens[position]]));
  });
  picture.append(drawn("line", { class: "ruler", x1: 3, x2: 118, y1: 88.6, y2: 88.6 }));
  fill(holder, picture);
}

/** @param {App} app @param {number[]} tokens @param {number[] | null} open */
function stackSentence(app, tokens, open) {
  if (!tokens.length) return "No brackets yet.";
  if (!open) return "A closing bracket did not fit.";
  return `${tokens.length} brackets, ${open.length} open: ${open.map((i) => app.task.tokens[tokens[i]]).join(" ")}`;
}

/** What may come next: the truth, and what each model says. @param {HTMLElement} caption @param {HTMLElement} holder @param {App} app */
export function drawValid(caption, holder, app) {
  const types = app.task.settings.types;
  const tokens = app.walk.tokens().slice(0, app.cursor + 1);
  const open = openBrackets(tokens, types);
  if (!tokens.length) {
    fill(caption, "Type a bracket. After each one, every model says what may come next.");
    return fill(holder);
  }
  fill(caption, !open ? element("b", {}, "That closing bracket did not fit: no such string was ever seen. Take it back.") : element("span", {}, element("b", {}, "What may come next? "), open.length ? `Any opener, and ${app.task.tokens[tokens[open[open.length - 1]] + types]} for the last open ${app.task.tokens[tokens[open[open.length - 1]]]}.` : "Any opener; nothing is open."));
  const valid = validNext(tokens, types);
  const set = app.task.settings.loss === "valid-set";
  const chances = app.seen.map((seen) => {
    const logits = seen.logits[app.cursor];
    return logits ? (set ? logits.map(sigmoid) : softmax(logits)) : null;
  });
  const rows = valid.map((may, token) => {
    const bars = chances.map((row, model) => {
      const chance = row?.[token] ?? 0;
      const filled = element("i", { class: `model-${model}` });
      filled.style.width = `${(100 * chance).toFixed(1)}%`;
      const right = chance > 0.5 === may;
      return element("span", { class: "bar" }, filled, element("span", { class: "figure" }, `${percent(chance)}${set && row ? (right ? " ✓" : " ✗") : ""}`));
    });
    return element("div", { class: `candidate ${may ? "right" : ""}` }, element("span", { class: `swatch kind-${(token % types) * 5}` }, app.task.tokens[token]), element("span", { class: "pair" }, ...bars), element("span", { class: "mark-right" }, may ? "may" : "no"));
  });
  fill(holder, element("div", { class: "bars valid" }, ...rows));
}

/** F1 of valid continuations and the right closer, so far on this string. @param {HTMLElement} holder @param {App} app */
export function drawBracketScores(holder, app) {
  const types = app.task.settings.types;
  const tokens = app.walk.tokens();
  const counting = { f1: 0, closers: 0 };
  let asked = 0;
  const sums = app.about.models.map(() => ({ f1: 0, closers: 0 }));
  for (let i = 0; i < tokens.length; i++) {
    const past = tokens.slice(0, i + 1);
    const open = openBrackets(past, types);
    if (!open) break;
    const valid = validNext(past, types);
    const needsStack = tokens[i] >= types && open.length > 0;
    asked += needsStack ? 1 : 0;
    const closer = needsStack ? past[open[open.length - 1]] : -1;
    app.seen.forEach((seen, model) => {
      const logits = seen.logits[i];
      if (!logits) return;
      sums[model].f1 += continuationF1(softmax(logits), valid);
      if (needsStack) sums[model].closers += mostLikelyCloser(logits, types) === closer ? 1 : 0;
    });
    if (needsStack && commonestOpen(past, open, types) === closer) counting.closers++;
  }
  const rows = app.about.models.map((model, index) => row(model.label, `model-${index}`, sums[index].closers, asked, tokens.length ? `F1 ${(sums[index].f1 / tokens.length).toFixed(2)}` : ""));
  rows.push(row("counts, but no stack", "rule", counting.closers, asked, ""));
  fill(holder, element("h3", {}, "So far on this string"), element("p", { class: "caption" }, "After a closing bracket: which one must close next? Only a stack can tell."), element("div", { class: "score-table" }, ...rows));
}

/** @param {ArrayLike<number>} logits @param {number} types */
function mostLikelyCloser(logits, types) {
  let best = 0;
  for (let type = 1; type < types; type++) if (logits[types + type] > logits[types + best]) best = type;
  return best;
}

/** The type that is open most often: all that counting without order can tell. @param {number[]} tokens @param {number[]} open @param {number} types */
function commonestOpen(tokens, open, types) {
  const counts = new Array(types).fill(0);
  open.forEach((position) => counts[tokens[position]]++);
  return counts.indexOf(Math.max(...counts));
}

/** @param {string} label @param {string} kind @param {number} right @param {number} of @param {string} more */
function row(label, kind, right, of, more) {
  const filled = element("i", { class: kind });
  filled.style.width = of ? `${(100 * right) / of}%` : "0";
  return element("div", { class: "score", title: more }, element("span", { class: "who" }, label), element("span", { class: "bar" }, filled), element("span", { class: "figure" }, of ? `${right} / ${of}` : "–"));
}
