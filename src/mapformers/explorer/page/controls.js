// Buttons and keys: where to go, what to type, which world, whose map.

import { element, fill, isNew, part } from "./dom.js";

/** @typedef {import("./app.js").App} App */

const ARROW_KEYS = { ArrowRight: 0, ArrowLeft: 1, ArrowUp: 2, ArrowDown: 3, PageUp: 4, PageDown: 5 };
const SPLIT_WORDS = {
  iid: "as in training", "ood-dense": "smaller and fuller", "ood-sparse": "larger and emptier", "ood-long": "longer", "ood-deep": "deeper",
};

/** The keys of the whole page. @param {App} app @param {() => void} tour */
export function listen(app, tour) {
  document.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, select, textarea")) return;
    const done = act(app, event.key, tour);
    if (done) event.preventDefault();
  });
  touch(app);
}

/** What a key does; false if nothing. @param {App} app @param {string} key @param {() => void} tour */
function act(app, key, tour) {
  if (key === "?") tour();
  else if (key === "Backspace") app.undo();
  else if (app.walks) {
    if (key === " ") app.reveal();
    else if (key in ARROW_KEYS && app.task.kind === "grid") app.go(ARROW_KEYS[/** @type {keyof typeof ARROW_KEYS} */ (key)]);
    else if (/^[1-9]$/.test(key) && app.task.kind !== "grid") {
      const action = app.walk.possible()[Number(key) - 1];
      if (action !== undefined) app.go(action);
    } else return false;
  } else if (app.task.kind !== "text") {
    const token = app.task.tokens.indexOf(key);
    if (token < 0) return false;
    app.type(token);
  } else return false;
  return true;
}

/** A swipe over the world is a step. @param {App} app */
function touch(app) {
  const world = part("world");
  /** @type {number[] | null} */
  let from = null;
  world.addEventListener("touchstart", (event) => (from = [event.touches[0].clientX, event.touches[0].clientY]), { passive: true });
  world.addEventListener("touchend", (event) => {
    if (!from || app.task.kind !== "grid") return;
    const [dx, dy] = [event.changedTouches[0].clientX - from[0], event.changedTouches[0].clientY - from[1]];
    from = null;
    if (Math.max(Math.abs(dx), Math.abs(dy)) < 24) return;
    app.go(Math.abs(dx) > Math.abs(dy) ? (dx > 0 ? 0 : 1) : dy > 0 ? 3 : 2);
  });
}

/** Which world, and a new one. @param {HTMLElement} holder @param {App} app */
export function drawWorldChoice(holder, app) {
  if (!isNew(holder, app.split, app.walks)) return;
  const splits = Object.keys(app.task.splits).filter((split) => app.engine.live || app.task.kind === "grid" || split === "iid");
  const choice = /** @type {HTMLSelectElement} */ (element("select", { "aria-label": "Kind of world", change: () => app.enter(choice.value, app.seed) }));
  choice.append(...splits.map((split) => element("option", { value: split, selected: split === app.split }, SPLIT_WORDS[/** @type {keyof typeof SPLIT_WORDS} */ (split)] ?? split)));
  const fresh = element("button", { type: "button", id: "new-world", click: () => app.enter(app.split, (app.seed * 31 + 7) % 100003) }, app.walks ? "New world" : "New sample");
  fill(holder, splits.length > 1 ? choice : null, fresh);
}

/** What can be done now. @param {HTMLElement} holder @param {App} app */
export function drawControls(holder, app) {
  if (!app.walks) return drawKeyboard(holder, app);
  const possible = app.isAtEnd() || !app.walk.revealed ? app.walk.possible() : [];
  if (!isNew(holder, possible.join(), app.walk.revealed, !app.walk.steps.length)) return;
  const back = element("button", { type: "button", disabled: !app.walk.steps.length, click: () => app.undo() }, "Undo");
  const reveal = element("button", { type: "button", class: "main", disabled: app.walk.revealed, click: () => app.reveal() }, "Reveal");
  const clear = element("button", { type: "button", click: () => app.clear() }, "Start over");
  if (app.task.kind === "grid") {
    const pad = app.task.actions.map((action) => element("button", { type: "button", class: `step step-${action}`, disabled: !possible.includes(action), "aria-label": `go ${app.task.tokens[action]}`, click: () => app.go(action) }, app.task.tokens[action]));
    return fill(holder, element("div", { class: `pad dims-${app.task.settings.dims}` }, ...pad), element("div", { class: "row" }, reveal, back, clear));
  }
  const ways = possible.map((/** @type {number} */ action, /** @type {number} */ index) => element("button", { type: "button", class: "way", click: () => app.go(action) }, element("kbd", {}, index + 1), " ", app.task.tokens[action]));
  fill(holder, element("div", { class: "row ways" }, ...ways), element("div", { class: "row" }, reveal, back, clear));
}

/** @param {HTMLElement} holder @param {App} app */
function drawKeyboard(holder, app) {
  if (!isNew(holder, !app.walk.tokens().length)) return;
  const back = element("button", { type: "button", disabled: !app.walk.tokens().length, click: () => app.undo() }, "⌫");
  const clear = element("button", { type: "button", click: () => app.clear() }, "Start over");
  if (app.task.kind === "text") return fill(holder, app.engine.live ? textField(app) : null, element("div", { class: "row" }, back, clear));
  const keys = app.task.tokens.slice(0, 24).map((name, token) => element("button", { type: "button", class: "way key", click: () => app.type(token) }, name));
  fill(holder, element("div", { class: "row ways" }, ...keys, back), element("div", { class: "row" }, app.task.kind === "brackets" ? bracketField(app) : null, clear));
}

/** @param {App} app */
function bracketField(app) {
  const field = /** @type {HTMLInputElement} */ (element("input", { type: "text", id: "typed", "aria-label": "Brackets", placeholder: "or type: ([()])", autocomplete: "off", spellcheck: "false" }));
  field.addEventListener("change", () => {
    const tokens = [...field.value].map((letter) => app.task.tokens.indexOf(letter)).filter((token) => token >= 0);
    app.begin(app.raw, tokens);
    app.update();
  });
  return field;
}

/** @param {App} app */
function textField(app) {
  const field = /** @type {HTMLTextAreaElement} */ (element("textarea", { rows: 3, "aria-label": "Text", placeholder: "Text of your own" }));
  field.addEventListener("change", async () => {
    const { tokens } = await app.engine.ask("tokens", { text: field.value });
    app.begin(app.raw, tokens.slice(0, 512));
    app.update();
  });
  return field;
}

/** Whose map is shown: model, layer and head. @param {HTMLElement} holder @param {App} app */
export function drawMapChoice(holder, app) {
  if (!isNew(holder, app.shown)) return;
  const models = app.about.models.map((model, index) => element("button", { type: "button", class: `tab model-${index} ${index === app.shown.model ? "on" : ""}`, "aria-pressed": index === app.shown.model, click: () => app.show({ model: index }) }, model.label));
  const about = app.about.models[app.shown.model];
  const pick = (/** @type {string} */ name, /** @type {number} */ count, /** @type {number} */ now, /** @type {(value: number) => void} */ choose) => {
    if (count < 2) return null;
    const list = /** @type {HTMLSelectElement} */ (element("select", { "aria-label": name, change: () => choose(Number(list.value)) }));
    for (let i = 0; i < count; i++) list.append(element("option", { value: i, selected: i === now }, `${name} ${i + 1}`));
    return list;
  };
  fill(holder, ...(models.length > 1 ? models : []), pick("Layer", about.layers.length, app.shown.layer, (layer) => app.show({ layer, head: 0 })), pick("Head", app.layerAbout().heads, app.shown.head, (head) => app.show({ head })));
}
