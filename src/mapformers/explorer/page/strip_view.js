// The tokens as the model reads them, with the attention that each of them gets from the one that is looked at.

import { element, fill, isNew, percent } from "./dom.js";
import { kindClass, nameOf } from "./grid_view.js";
import { norm } from "./linear.js";

/** @typedef {import("./app.js").App} App */

const SHOWN = 96; // tokens at most: enough to scroll in

/** @typedef {{whole: HTMLElement, chip: HTMLElement, face: HTMLElement, bars: HTMLElement[]}} Column */
/** @typedef {{first: number, columns: Column[], more: HTMLElement}} Row the tokens from the first one on, a column each */
/** @type {WeakMap<HTMLElement, Row>} columns stay where they are as long as they can: to lay them all out takes long */
const made = new WeakMap();

/** @param {HTMLElement} holder @param {App} app */
export function drawStrip(holder, app) {
  const tokens = app.walk.tokens();
  const first = Math.max(0, Math.min(tokens.length - SHOWN, app.cursor - SHOWN + 8));
  const count = Math.min(tokens.length - first, SHOWN);
  const row = made.get(holder) ?? { first: 0, columns: [], more: element("span", { class: "more" }) };
  made.set(holder, row);
  if (row.more.parentElement !== holder) fill(holder, row.more);
  slide(row, holder, first, count, app);
  const rows = app.about.models.map((_, model) => app.attentionRow(model));
  row.columns.forEach((column, at) => dressColumn(column, first + at, tokens[first + at], rows, app));
  const before = first > 0 ? `… ${first} before` : tokens.length ? "" : "Nothing yet.";
  if (isNew(row.more, before)) fill(row.more, before);
  row.more.hidden = !before;
  requestAnimationFrame(() => bringIntoView(holder));
}

/** Let a row begin at another token: columns that are left behind come again at its end. @param {Row} row @param {HTMLElement} holder @param {number} first @param {number} count @param {App} app */
function slide(row, holder, first, count, app) {
  const { columns } = row;
  const free = [...columns.splice(0, Math.max(0, first - row.first)), ...columns.splice(count)];
  while (columns.length < count) {
    const column = free.shift() ?? newColumn(app);
    columns.push(column);
    holder.append(column.whole);
  }
  free.forEach((column) => column.whole.remove());
  row.first = first;
}

/** @param {App} app @returns {Column} */
function newColumn(app) {
  const face = element("span", { class: "face" });
  const chip = element("button", { type: "button", click: () => app.lookFrom(Number(chip.dataset.token)) }, face);
  const bars = app.about.models.map((_, model) => element("i", { class: `model-${model}` }));
  const [above, below] = bars.map((bar, model) => element("span", { class: `meter ${model ? "below" : "above"}` }, bar));
  return { whole: element("span", { class: "column" }, above, chip, below), chip, face, bars };
}

/** @param {Column} column @param {number} index @param {number} token @param {(number[] | null)[]} rows @param {App} app */
function dressColumn({ chip, face, bars }, index, token, rows, app) {
  const weights = rows.map((row) => (row && index <= app.cursor ? (row[index] ?? 0) : 0));
  bars.forEach((bar, model) => {
    const height = `scaleY(${Math.round(weights[model] * 100) / 100})`; // a transformation lays nothing out again
    if (bar.style.transform === height) return;
    bar.style.transform = height;
    set(/** @type {Element} */ (bar.parentElement), "title", weights[model] ? `attention ${percent(weights[model])}` : "");
  });
  const acts = app.task.kind !== "brackets" && app.task.actions.includes(token);
  const states = { now: index === app.cursor, later: index > app.cursor, "hidden-key": app.options.hidden.has(index), stopped: app.options.still.has(token) };
  set(chip, "class", ["chip", acts ? "act" : kindClass(token, app.task), ...Object.entries(states).filter(([, is]) => is).map(([name]) => name)].join(" "));
  const said = `token ${index + 1}: ${app.task.tokens[token]}`;
  set(chip, "data-token", String(index));
  set(chip, "data-key", app.keyAt(index));
  set(chip, "aria-pressed", String(states.now));
  if (!set(chip, "title", said)) return;
  set(chip, "aria-label", said);
  fill(face, app.task.tokens[token]);
}

/** Set an attribute if it is another one; whether it was. @param {Element} dressed @param {string} name @param {string | null} value */
function set(dressed, name, value) {
  if (dressed.getAttribute(name) === value) return false;
  if (value === null) dressed.removeAttribute(name);
  else dressed.setAttribute(name, value);
  return true;
}

/** Scroll the row so far that the token which is looked at can be seen. @param {HTMLElement} holder */
function bringIntoView(holder) {
  const current = /** @type {HTMLElement | null | undefined} */ (holder.querySelector(".chip.now")?.closest(".column"));
  if (!current) return;
  const left = current.offsetLeft - holder.offsetLeft;
  if (left < holder.scrollLeft || left > holder.scrollLeft + holder.clientWidth - 60) holder.scrollLeft = left - holder.clientWidth + 90;
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
