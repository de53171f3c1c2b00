// Interventions, and the long walk and back: how far from home does the model believe to be when it is at home?

import { counted, element, fill, isNew, part, percent } from "./dom.js";
import { argmax } from "./engine.js";
import { coordinateOf, planeOf } from "./map_view.js";
import { times } from "./linear.js";
import { randomStream } from "./random.js";
import { Walk } from "./walk.js";

/** @typedef {import("./app.js").App} App */

/** Sliders stay where they are while one drags them; only what is said beside them changes. @param {HTMLElement} holder @param {App} app */
export function drawLab(holder, app) {
  const { still, hidden } = app.options;
  if (isNew(holder, [...still].join(), [...hidden].join(), app.revealsByItself, app.busy, app.journey, app.task)) fillLab(holder, app);
  fill(part("heat-says"), `Attention temperature ${app.options.temperature}`);
  const steps = app.moments();
  const says = document.getElementById("moment-says");
  if (says) fill(says, `How it learned: after step ${steps[app.moment < 0 ? steps.length - 1 : app.moment].toLocaleString("en")} of training`);
}

/** @param {HTMLElement} holder @param {App} app */
function fillLab(holder, app) {
  const heat = /** @type {HTMLInputElement} */ (element("input", { type: "range", min: -1, max: 1, step: 0.05, value: Math.log10(app.options.temperature), "aria-label": "Temperature of attention", change: () => app.setTemperature(Number((10 ** Number(heat.value)).toFixed(3))) }));
  const stopped = [...app.options.still].map((token) => chipFor(app.task.tokens[token], "stands still", () => app.toggleStill(token)));
  const hidden = [...app.options.hidden].map((index) => chipFor(`token ${index + 1}`, "is hidden", () => app.toggleHidden(index)));
  const waits = element("input", { type: "checkbox", checked: !app.revealsByItself, change: () => (app.revealsByItself = !app.revealsByItself) });
  fill(
    holder,
    element("p", { class: "caption" }, "Click an arrow of the compass: that action stands still on the map, and the model gets lost. Click a token to hide it from later ones."),
    stopped.length || hidden.length ? element("div", { class: "row" }, ...stopped, ...hidden) : null,
    element("label", { class: "slide" }, element("span", { id: "heat-says" }), heat),
    trainingSlider(app),
    app.walks ? element("label", { class: "check" }, waits, " I reveal places myself (Space)") : null,
    app.task.kind === "grid" ? longWalk(app) : null,
  );
}

/** From before the first step of training to its end, where snapshots were kept. @param {App} app */
function trainingSlider(app) {
  const steps = app.moments();
  if (steps.length < 2 || !app.engine.live) return null;
  const at = app.moment < 0 ? steps.length - 1 : app.moment;
  const slider = /** @type {HTMLInputElement} */ (element("input", { type: "range", id: "moment", min: 0, max: steps.length - 1, step: 1, value: at, "aria-label": "Step of training", input: () => app.goTo(Number(slider.value)) }));
  return element("label", { class: "slide" }, element("span", { id: "moment-says" }), slider);
}

/** @param {string} name @param {string} what @param {() => void} undo */
function chipFor(name, what, undo) {
  return element("button", { type: "button", class: "on", title: "Undo", click: undo }, `${name} ${what} ×`);
}

/** @param {App} app */
function longWalk(app) {
  const steps = 1000;
  const start = element("button", { type: "button", id: "long-walk", class: "main", disabled: app.busy, click: () => walkAndBack(app, steps) }, app.busy ? `Walking … ${app.progress}` : `Walk ${steps} steps and back`);
  const found = app.journey;
  const results = !found ? [] : found.results.map((/** @type {any} */ result, /** @type {number} */ model) => element("li", { class: `model-${model}` }, element("i", { class: "dot" }), result));
  return element("div", { class: "long" }, start, found ? element("p", { class: "caption", id: "closing" }, `${counted(found.tokens / 2, "step")} and ${counted(found.tokens, "token")} later you stand where you began.`) : element("p", { class: "caption" }, "Does the path close? Every small error adds up."), element("ul", { class: "results" }, ...results));
}

/** Walk away at random and come back the same way; then ask each model where it believes to be. @param {App} app @param {number} steps */
export async function walkAndBack(app, steps) {
  app.busy = true;
  app.redraw();
  const { world } = app.walk;
  const away = world.wander(world.start, steps, randomStream(app.seed + steps));
  const walk = new Walk(world);
  for (const action of away) walk.go(action);
  for (const action of [...away].reverse()) walk.go(world.inverse(action));
  walk.reveal();
  const tokens = walk.tokens();
  const scored = walk.steps.map((_, step) => step).filter((step) => walk.isRevisit(step) && walk.steps[step].content !== app.task.empty);
  try {
    const results = [];
    for (let model = 0; model < app.about.models.length; model++) {
      const progress = (/** @type {number} */ share) => {
        app.progress = percent((model + share) / app.about.models.length);
        fill(part("long-walk"), `Walking … ${app.progress}`);
      };
      const seen = await app.engine.read(model, tokens, { ...app.plainOptions(), hidden: [], attention: false, progress });
      const right = scored.filter((step) => argmax(seen.logits[2 * step]) === walk.steps[step].content).length;
      results.push(`${app.about.models[model].label}: ${closing(app, model, seen)} Right on ${Math.round((100 * right) / Math.max(1, scored.length))}% of ${counted(scored.length, "return")}.`);
    }
    app.journey = { tokens: tokens.length, results };
    app.say(results.join(" "));
  } catch (error) {
    app.trouble(error instanceof Error ? error.message : String(error));
  }
  app.busy = false;
  app.redraw();
}

/** @param {App} app @param {number} model @param {any} seen */
function closing(app, model, seen) {
  const about = app.about.models[model].layers[0];
  const plane = planeOf(about, app.task, 0);
  const rows = seen.layers[0].coordinate;
  if (!plane || !rows) return "has no map, so no path to close.";
  const end = times(plane, coordinateOf(rows[rows.length - 1], about, 0));
  return `believes to be ${Math.hypot(...end).toFixed(2)} cells from the start: that is its closing error.`;
}
