// The grid around the walker: what was seen, where the path went, and to which places the models attend.

import { drawn, fill } from "./dom.js";

/** @typedef {import("./app.js").App} App */

const REACH = 6; // cells that are seen on each side of the walker

/** Draw the world into an element. @param {HTMLElement} holder @param {App} app */
export function drawGridView(holder, app) {
  const { walk, task } = app;
  const world = walk.world;
  const here = app.placeAt(app.cursor);
  const flat = (/** @type {number[]} */ cell) => [cell[0], world.dims > 1 ? cell[1] : 0];
  const inPlane = (/** @type {number[]} */ cell) => cell.slice(2).every((value, axis) => value === here[axis + 2]);
  const [x0, y0] = flat(here);
  const tall = world.dims > 1 ? REACH : 2;
  let ground = "";
  for (let y = y0 - tall; y <= y0 + tall; y++) {
    for (let x = x0 - REACH; x <= x0 + REACH; x++) {
      const inside = world.edges === "torus" || (x >= 0 && x < world.grid && (world.dims > 1 ? y >= 0 && y < world.grid : y === 0));
      if (inside) ground += `M${x - 0.47} ${-y - 0.47}h0.94v0.94h-0.94z`;
    }
  }
  const upTo = app.stepAt(app.cursor);
  const tiles = [];
  const letters = [];
  const drawnKeys = new Set();
  for (let step = upTo; step >= 0; step--) {
    const { place, key, content } = walk.steps[step];
    if (drawnKeys.has(key) || !inPlane(place)) continue;
    const covered = step === upTo && app.isCovered() && !walk.isRevisit(step);
    drawnKeys.add(key);
    tiles.push(tileAt(flat(place), covered ? null : content, task, key));
    if (!covered) letters.push(letterAt(flat(place), content, task));
  }
  const frame = world.edges === "torus" ? null : wall(world);
  const group = drawn("g", { class: "camera" }, drawn("path", { class: "ground", d: ground }), frame, ...tiles, pathLine(app, flat, upTo), ...letters, ...attentionRings(app, flat, inPlane));
  group.append(...nextSteps(app, flat, here));
  group.append(drawn("circle", { class: "walker", cx: x0, cy: -y0, r: 0.2 }));
  if (app.isCovered()) group.append(drawn("text", { class: "question", x: x0 + 0.27, y: -y0 - 0.2 }, "?"));
  const size = `${-REACH - 0.6} ${-tall - 0.6} ${2 * REACH + 1.2} ${2 * tall + 1.2}`;
  const picture = drawn("svg", { viewBox: size, role: "img", "aria-label": worldSentence(app) }, group);
  const before = holder.querySelector("svg");
  const [oldX, oldY] = before ? (before.dataset.at ?? `${x0},${y0}`).split(",").map(Number) : [x0, y0];
  picture.dataset.at = `${x0},${y0}`;
  group.style.transform = `translate(${-oldX}px, ${oldY}px)`;
  fill(holder, picture);
  requestAnimationFrame(() => (group.style.transform = `translate(${-x0}px, ${y0}px)`));
  if (world.dims > 2) {
    const others = here.slice(2).map((/** @type {number} */ value, /** @type {number} */ i) => `${"zuv"[i]} = ${value}`);
    picture.append(drawn("text", { class: "slice", x: -REACH - 0.3, y: tall + 0.35 }, `the plane at ${others.join(", ")}`));
  }
}

/** @param {number[]} at @param {number | null} content @param {any} task @param {string} key */
function tileAt([x, y], content, task, key) {
  return drawn("rect", { class: `tile ${kindClass(content, task)}`, "data-key": key, x: x - 0.47, y: -y - 0.47, width: 0.94, height: 0.94, rx: 0.14 });
}

/** @param {number[]} at @param {number} content @param {any} task */
function letterAt([x, y], content, task) {
  return drawn("text", { class: `tile-letter ${kindClass(content, task)}`, x, y: -y + 0.02 }, task.tokens[content]);
}

/** The class that colours what a place holds. @param {number | null} content @param {any} task */
export function kindClass(content, task) {
  if (content === null) return "covered";
  if (content === task.empty || content === task.blank) return "empty";
  if (content === task.separator) return "act";
  if (task.kind === "brackets") return `kind-${(content % task.settings.types) * 5}`;
  const first = task.empty != null ? task.empty + 1 : task.actions.length;
  return task.actions.includes(content) ? "act" : `kind-${(((content - first) % 16) + 16) % 16}`;
}

/** @param {any} world */
function wall(world) {
  const tall = world.dims > 1 ? world.grid : 1;
  return drawn("rect", { class: "wall", x: -0.56, y: -tall + 0.44, width: world.grid + 0.12, height: tall + 0.12, rx: 0.2 });
}

/** @param {App} app @param {(cell: number[]) => number[]} flat @param {number} upTo */
function pathLine(app, flat, upTo) {
  const { walk } = app;
  const places = [walk.world.start, ...walk.steps.slice(0, upTo + 1).map((/** @type {any} */ step) => step.place)].slice(-80);
  let line = "";
  places.forEach((cell, index) => {
    const [x, y] = flat(cell);
    const [px, py] = index ? flat(places[index - 1]) : [x, y];
    const jump = Math.abs(x - px) + Math.abs(y - py) > 1; // over the edge of a torus
    line += `${index && !jump ? "L" : "M"}${x} ${-y}`;
  });
  return drawn("path", { class: "walked", d: line });
}

/** Circles on the places that each model attends to. @param {App} app @param {(cell: number[]) => number[]} flat @param {(cell: number[]) => boolean} inPlane */
function attentionRings(app, flat, inPlane) {
  const rings = [];
  for (let model = 0; model < app.about.models.length; model++) {
    const byPlace = app.attentionByPlace(model);
    for (const [key, { place, weight }] of byPlace) {
      if (weight < 0.03 || !inPlane(place)) continue;
      const [x, y] = flat(place);
      const size = 0.5 * Math.sqrt(weight) + (model ? 0.03 : 0);
      rings.push(drawn("circle", { class: `ring model-${model}`, cx: x, cy: -y, r: size, "data-key": key }));
    }
  }
  return rings;
}

/** Where one could go: a click or a tap goes there. @param {App} app @param {(cell: number[]) => number[]} flat @param {number[]} here */
function nextSteps(app, flat, here) {
  if (!app.isAtEnd()) return [];
  const { world } = app.walk;
  return world.possible(here).filter((/** @type {number} */ action) => action < 4).map((/** @type {number} */ action) => {
    const [x, y] = flat(here);
    const [dx, dy] = [[1, 0], [-1, 0], [0, 1], [0, -1]][action];
    return drawn("rect", {
      class: "doorstep", x: x + dx - 0.47, y: -(y + dy) - 0.47, width: 0.94, height: 0.94, rx: 0.14, click: () => app.go(action),
    });
  });
}

/** @param {App} app */
function worldSentence(app) {
  const { walk, task } = app;
  if (!walk.steps.length) return "A grid. You have not moved yet.";
  const last = walk.steps[app.stepAt(app.cursor)];
  return `A grid around you. You went ${task.tokens[last.action]}; ${app.isCovered() ? "what is here is still covered" : `here is ${nameOf(last.content, task)}`}.`;
}

/** @param {number} token @param {any} task */
export function nameOf(token, task) {
  return token === task.empty ? "nothing" : task.tokens[token];
}
