// The tokens as the model reads them, with the attention that each of them gets from the one that is looked at.

import { element, fill, percent } from "./dom.js";
import { kindClass, nameOf } from "./grid_view.js";
import { norm } from "./linear.js";

/** @typedef {import("./app.js").App} App */

const SHOWN = 96; // tokens at most: enough to scroll in

/** @param {HTMLElement} holder @param {App} app */
export function drawStrip(holder, app) {
  const tokens = app.walk.tokens();
  const first = Math.max(0, Math.min(tokens.length - SHOWN, app.cursor - SHOWN + 8));
  const rows = app.about.models.map((_, model) => app.attentionRow(model));
  const chips = [];
  if (first > 0) chips.push(element("span", { class: "more" }, `… ${first} before`));
  for (let index = first; index < Math.min(tokens.length, first + SHOWN); index++) {
    const token = tokens[index];
    const acts = app.task.kind !== "brackets" && app.task.actions.includes(token);
    const name = `token ${index + 1}: ${app.task.tokens[token]}`;
    const chip = element("button", {
      type: "button",
      class: `chip ${acts ? "act" : kindClass(token, app.task)} ${index === app.cursor ? "now" : ""} ${index > app.cursor ? "later" : ""} ${app.options.hidden.has(index) ? "hidden-key" : ""} ${app.options.still.has(token) ? "stopped" : ""}`,
      "data-token": index, "data-key": app.keyAt(index) ?? undefined, "aria-label": name, "aria-pressed": index === app.cursor, title: name,
      click: () => app.lookFrom(index),
    }, element("span", { class: "face" }, app.task.tokens[token]));
    const column = element("span", { class: "column" }, bar(rows[0], index, 0, app), chip, rows.length > 1 ? bar(rows[1], index, 1, app) : null);
    chips.push(column);
  }
  if (!tokens.length) chips.push(element("span", { class: "more" }, "Nothing yet."));
  fill(holder, ...chips);
  requestAnimationFrame(() => bringIntoView(holder));
}

/** Scroll the row so far that the token which is looked at can be seen. @param {HTMLElement} holder */
function bringIntoView(holder) {
  const current = /** @type {HTMLElement | null} */ (holder.querySelector(".chip.now"));
  if (!current) return;
  const left = current.offsetLeft - holder.offsetLeft;
  if (left < holder.scrollLeft || left > holder.scrollLeft + holder.clientWidth - 60) holder.scrollLeft = left - holder.clientWidth + 90;
}

/** @param {number[] | null} row @param {number} index @param {number} model @param {App} app */
function bar(row, index, model, app) {
  const weight = row && index <= app.cursor ? (row[index] ?? 0) : 0;
  const filled = element("i", { class: `model-${model}` });
  filled.style.height = `${Math.round(weight * 100)}%`;
  return element("span", { class: `meter ${model ? "below" : "above"}`, title: weight ? `attention ${percent(weight)}` : "" }, filled);
}

/** What is known of the token that is looked at. @param {HTMLElement} holder @param {App} app */
export function drawToken(holder, app) {
  const tokens = app.walk.tokens();
  if (app.cursor < 0 || app.cursor >= tokens.length) return fill(holder);
  const token = tokens[app.cursor];
  const name = app.task.tokens[token];
  const facts = [element("b", {}, `Token ${app.cursor + 1}, ${name}. `)];
  app.about.models.forEach((model, index) => {
    const row = app.attentionRow(index);
    if (!row) return;
    const key = row.reduce((best, weight, at) => (weight > row[best] ? at : best), 0);
    facts.push(element("span", { class: `says-model model-${index}` }, `${model.label} looks most at token ${key + 1} (${app.task.tokens[tokens[key]]}, ${percent(row[key])}). `));
  });
  const seen = app.seen[app.shown.model]?.layers[app.shown.layer];
  const moved = seen?.delta_in?.[app.cursor];
  if (moved) facts.push(element("span", {}, `It moves by ${norm(moved).toFixed(2)} on the map of ${app.about.models[app.shown.model].label}. `));
  const hidden = app.options.hidden.has(app.cursor);
  const still = app.options.still.has(token);
  const buttons = [
    element("button", { type: "button", class: hidden ? "on" : "", click: () => app.toggleHidden(app.cursor) }, hidden ? "Let later tokens see it" : "Hide it from later tokens"),
  ];
  if (app.layerAbout().movements) buttons.push(element("button", { type: "button", class: still ? "on" : "", click: () => app.toggleStill(token) }, still ? `Let ${nameOf(token, app.task)} move` : `Let ${nameOf(token, app.task)} stand still`));
  if (!app.isAtEnd()) buttons.push(element("button", { type: "button", click: () => app.lookFrom(tokens.length - 1) }, "Back to now"));
  fill(holder, element("p", {}, ...facts), element("div", { class: "row" }, ...buttons));
}
