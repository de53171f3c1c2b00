// What was measured of these models on fresh sequences, beside what rule players score there.

import { element, fill } from "./dom.js";

/** @typedef {import("./app.js").App} App */

/** @param {HTMLElement} holder @param {App} app */
export function drawRecord(holder, app) {
  const metric = app.task.metric;
  const splits = Object.keys(app.task.splits);
  const figure = (/** @type {any} */ scores, /** @type {string} */ split) => {
    const value = scores?.[split]?.[metric];
    return element("td", {}, value == null ? "–" : value.toFixed(2));
  };
  const head = element("tr", {}, element("th", {}, metric), ...splits.map((split) => element("th", {}, split)));
  const rows = app.about.models.map((model, index) => element("tr", {}, element("th", { class: `model-${index}` }, element("i", { class: "dot" }), model.label), ...splits.map((split) => figure(model.scores, split))));
  const rules = Object.entries(app.about.players ?? {}).map(([name, scores]) => element("tr", { class: "rule" }, element("th", {}, name), ...splits.map((split) => figure(scores, split))));
  const sizes = app.about.models.map((model) => `${model.label}: ${model.parameters.toLocaleString("en")} parameters, ${model.layers.length === 1 ? "one layer" : `${model.layers.length} layers`}, ${model.step} steps of training`);
  fill(holder,
    element("div", { class: "scroll" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows, ...rules))),
    element("p", { class: "caption" }, `On fresh sequences after training. iid: as in training; the others are worlds of kinds that it never saw. ${Object.keys(app.about.players ?? {}).length ? "Below the line: rule players, which learn nothing. " : ""}${sizes.join("; ")}.`));
}
