// Copying and text: for each token how far it moves on the map, and how much attention it gets.

import { drawn, element, fill, percent } from "./dom.js";
import { argmax, softmax } from "./engine.js";
import { kindClass } from "./grid_view.js";
import { norm } from "./linear.js";

/** @typedef {import("./app.js").App} App */

const SHOWN_TOKENS = 96;

/** Bars of ‖Δ‖ above the line, attention below it. @param {HTMLElement} holder @param {App} app */
export function drawNorms(holder, app) {
  const tokens = app.walk.tokens();
  const first = Math.max(0, app.cursor + 1 - SHOWN_TOKENS);
  const shown = tokens.slice(first, first + SHOWN_TOKENS);
  const seen = app.seen[app.shown.model]?.layers[app.shown.layer];
  const moved = (seen?.delta_in ?? seen?.delta)?.slice(first, first + SHOWN_TOKENS).map(norm) ?? [];
  const most = Math.max(...moved, 1e-9);
  const rows = app.about.models.map((_, model) => app.attentionRow(model));
  const wide = 118 / Math.max(shown.length, 24);
  const picture = drawn("svg", { viewBox: "0 0 122 70", role: "img", "aria-label": "How far each token moves on the map, and the attention it gets" });
  picture.append(drawn("text", { class: "note", x: 2, y: 5 }, moved.length ? "how far it moves, ‖Δ‖" : "this model moves on no map"));
  picture.append(drawn("text", { class: "note", x: 2, y: 68 }, "attention that it gets"));
  shown.forEach((/** @type {number} */ token, /** @type {number} */ i) => {
    const x = 2 + i * wide;
    const index = first + i;
    if (moved[i]) picture.append(drawn("rect", { class: `pillar model-${app.shown.model}`, x, width: wide * 0.8, y: 34 - (26 * moved[i]) / most, height: (26 * moved[i]) / most, "data-token": index }));
    rows.forEach((row, model) => {
      const weight = row && index <= app.cursor ? (row[index] ?? 0) : 0;
      if (weight > 0.002) picture.append(drawn("rect", { class: `pillar model-${model}`, x: x + (model * wide * 0.8) / rows.length, width: (wide * 0.8) / rows.length, y: 41, height: 22 * weight, "data-token": index }));
    });
    if (wide > 2) picture.append(drawn("text", { class: `letter ${kindClass(token, app.task)} ${index === app.cursor ? "now" : ""}`, x: x + wide * 0.4, y: 39, "font-size": Math.min(4, wide) }, app.task.tokens[token].slice(0, 3)));
  });
  fill(holder, picture);
}

/** The most likely next tokens. @param {HTMLElement} caption @param {HTMLElement} holder @param {App} app */
export function drawNext(caption, holder, app) {
  const tokens = app.walk.tokens();
  if (app.cursor < 0) {
    fill(caption, "Type or choose tokens: after each one, every model says what it expects.");
    return fill(holder);
  }
  const actual = app.cursor + 1 < tokens.length ? tokens[app.cursor + 1] : null;
  fill(caption, element("b", {}, "What comes next? "), actual === null ? "" : `It was ${app.task.tokens[actual]}.`);
  const chances = app.seen.map((seen) => (seen.logits[app.cursor] ? softmax(seen.logits[app.cursor]) : null));
  const best = [...new Set(chances.flatMap((row) => (row ?? []).map((chance, token) => ({ chance, token })).sort((a, b) => b.chance - a.chance).slice(0, 4).map(({ token }) => token)))].slice(0, 7);
  if (actual !== null && !best.includes(actual)) best.push(actual);
  fill(holder, element("div", { class: "bars" }, ...best.map((token) => {
    const bars = chances.map((row, model) => {
      const filled = element("i", { class: `model-${model}` });
      filled.style.width = `${(100 * (row?.[token] ?? 0)).toFixed(1)}%`;
      return element("span", { class: "bar" }, filled, element("span", { class: "figure" }, percent(row?.[token] ?? 0)));
    });
    return element("div", { class: `candidate ${token === actual ? "right" : ""}` }, element("span", { class: `swatch ${kindClass(token, app.task)}` }, app.task.tokens[token]), element("span", { class: "pair" }, ...bars), element("span", { class: "mark-right" }, token === actual ? "◂" : ""));
  })));
}

/** How often each model was right where it counts. @param {HTMLElement} holder @param {App} app */
export function drawNextScores(holder, app) {
  const tokens = app.walk.tokens();
  const copy = app.task.kind === "copy";
  const separator = copy ? tokens.indexOf(app.task.separator ?? -1) : -1;
  const from = copy ? (separator < 0 ? tokens.length : separator) : 0;
  const rows = app.about.models.map((model, index) => {
    let right = 0;
    let of = 0;
    for (let i = from; i + 1 < tokens.length; i++) {
      if (!app.seen[index]?.logits[i]) continue;
      of++;
      if (argmax(app.seen[index].logits[i]) === tokens[i + 1]) right++;
    }
    const filled = element("i", { class: `model-${index}` });
    filled.style.width = of ? `${(100 * right) / of}%` : "0";
    return element("div", { class: "score" }, element("span", { class: "who" }, model.label), element("span", { class: "bar" }, filled), element("span", { class: "figure" }, of ? `${right} / ${of}` : "–"));
  });
  fill(holder, element("h3", {}, "So far"), element("p", { class: "caption" }, copy ? "Right on the copy, after the separator." : "Right on the next token."), element("div", { class: "score-table" }, ...rows));
}
