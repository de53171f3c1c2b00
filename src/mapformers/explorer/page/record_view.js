// What was measured of these models on fresh sequences, beside what rule players score there.

import { element, fill } from "./dom.js";

/** @typedef {import("./app.js").App} App */

/** @param {HTMLElement} holder @param {App} app */
export function drawRecord(holder, app) {
  const metric = app.task.metric;
  const splits = Object.keys(app.task.splits);
  const players = Object.entries(app.about.players ?? {});
  const figure = (/** @type {any} */ scores, /** @type {string} */ split, /** @type {string} */ kind) => {
    const value = scores?.[split]?.[metric];
    return element("td", { class: kind }, value == null ? "–" : value.toFixed(2));
  };
  const head = element("tr", {}, element("th", {}, metric),
    ...app.about.models.map((model, index) => element("th", { class: `model-${index}` }, element("i", { class: "dot" }), model.label)),
    ...players.map(([name]) => element("th", { class: "rule" }, name)));
  const rows = splits.map((split) => element("tr", {}, element("th", {}, split),
    ...app.about.models.map((model) => figure(model.scores, split, "")),
    ...players.map(([, scores]) => figure(scores, split, "rule"))));
  const sizes = app.about.models.map((model) => `${model.label}: ${model.parameters.toLocaleString("en")} parameters, ${model.layers.length === 1 ? "one layer" : `${model.layers.length} layers`}, ${model.step.toLocaleString("en")} steps of training`);
  fill(holder,
    element("div", { class: "scroll" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows))),
    element("p", { class: "caption" }, `On fresh sequences after training. iid: as in training; the others are of kinds that it never saw. ${players.length ? "Grey: players by a rule, which learn nothing. " : ""}${sizes.join("; ")}.`));
}
