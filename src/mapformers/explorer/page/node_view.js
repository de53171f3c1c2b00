// Graphs and families: places joined by lines, you on one of them, and what is known of the others.

import { drawn, element, fill } from "./dom.js";
import { kindClass } from "./grid_view.js";
import { randomStream } from "./random.js";

/** @typedef {import("./app.js").App} App */
/** @typedef {{x: number, y: number}[]} Layout */

/** @type {{raw: any, layout: Layout} | null} */
let laidOut = null;

/** @param {HTMLElement} holder @param {App} app */
export function drawNodes(holder, app) {
  const { walk, task } = app;
  const world = walk.world;
  const here = app.placeAt(app.cursor);
  const upTo = app.stepAt(app.cursor);
  /** @type {Map<number, number | null>} */
  const known = new Map();
  for (let step = 0; step <= upTo; step++) known.set(walk.steps[step].place, walk.steps[step].content);
  if (app.isCovered() && !walk.isRevisit(upTo)) known.set(here, null);
  const visible = visiblePlaces(app, here);
  const layout = layoutOf(app, visible);
  const box = boxOf(visible.map((place) => layout[place]));
  const picture = drawn("svg", { viewBox: `${box.x} ${box.y} ${box.w} ${box.h}`, role: "img", "aria-label": `You are at ${world.names[here]}.` });
  const shown = new Set(visible);
  const unit = Math.max(box.w, box.h) / 100;
  const size = task.kind === "family" ? 3.7 : Math.min(3.2, 20 / Math.sqrt(visible.length)) * unit;
  picture.append(...(task.kind === "family" ? kinshipLines(app, layout, shown, unit) : edgeLines(world, layout, shown, unit)));
  const ways = app.isAtEnd() ? world.possible(here) : [];
  for (const action of ways) {
    const to = world.follow(here, action);
    if (!shown.has(to)) continue;
    picture.append(drawn("line", { class: "way-line", x1: layout[here].x, y1: layout[here].y, x2: layout[to].x, y2: layout[to].y, "stroke-width": 0.8 * unit }));
  }
  for (const place of visible) picture.append(nodeAt(app, layout[place], place, known, here, size, ways));
  if (task.kind === "graph" && size > 1.4 * unit) {
    const near = ways.map((/** @type {number} */ action) => world.follow(here, action));
    picture.append(...placeNames(world, layout, [...new Set([here, ...near, ...known.keys(), ...visible])], size));
  }
  for (let model = 0; model < app.about.models.length; model++) {
    for (const [key, { place, weight }] of app.attentionByPlace(model)) {
      if (weight < 0.03 || !shown.has(place)) continue;
      picture.append(drawn("circle", { class: `ring model-${model}`, cx: layout[place].x, cy: layout[place].y, r: size * (1 + 1.3 * Math.sqrt(weight)) + model * 0.4 * unit, "stroke-width": 0.7 * unit, "data-key": key }));
    }
  }
  const certain = task.kind === "family" && app.certain ? element("p", { class: "caption", id: "certain" }, certainSentence(app)) : null;
  fill(holder, picture, certain);
}

/** @param {App} app */
function certainSentence(app) {
  const name = app.task.tokens[app.certain.answer];
  return app.certain.certain ? `Certain by kinship? Yes: it must be ${name}.` : "Certain by kinship? No: a logician could only guess who this is.";
}

/** @param {App} app @param {{x: number, y: number}} at @param {number} place @param {Map<number, number | null>} known @param {number} here @param {number} size @param {number[]} ways */
function nodeAt(app, at, place, known, here, size, ways) {
  const { walk, task } = app;
  const content = known.has(place) ? known.get(place) : undefined;
  const female = app.raw.female?.[place];
  const action = ways.find((way) => walk.world.follow(here, way) === place);
  const kind = content === undefined ? "unknown" : kindClass(content, task);
  const group = drawn("g", { class: `node ${kind} ${place === here ? "me" : ""} ${action !== undefined ? "near" : ""}`, "data-key": String(place), click: () => action !== undefined && app.go(action) });
  group.append(task.kind === "family" && !female
    ? drawn("rect", { x: at.x - size, y: at.y - size, width: 2 * size, height: 2 * size, rx: size * 0.25, "stroke-width": size * 0.16 })
    : drawn("circle", { cx: at.x, cy: at.y, r: size, "stroke-width": size * 0.16 }));
  const name = content === null ? "?" : content !== undefined ? task.tokens[content] : "";
  group.append(drawn("text", { x: at.x, y: at.y + size * 0.08, "font-size": size * (name.length > 2 ? 2 / Math.max(name.length, 3) : 1) * 1.15 }, name));
  const title = task.kind === "family" ? `person ${place}` : walk.world.names[place];
  group.append(drawn("title", {}, title));
  return group;
}

/** Names under places, the first ones first; a name that would lie on another one is left to its tooltip. @param {any} world @param {Layout} layout @param {number[]} places @param {number} size */
function placeNames(world, layout, places, size) {
  const font = size * 0.78;
  /** @type {{x: number, y: number, wide: number}[]} */
  const written = [];
  const names = [];
  for (const place of places) {
    const name = { x: layout[place].x, y: layout[place].y + size * 1.75, wide: 0.56 * font * world.names[place].length };
    if (written.some((other) => Math.abs(other.x - name.x) < (other.wide + name.wide) / 2 && Math.abs(other.y - name.y) < 1.1 * font)) continue;
    written.push(name);
    names.push(drawn("text", { class: "place-name", x: name.x, y: name.y, "font-size": font }, world.names[place]));
  }
  return names;
}

/** @param {any} world @param {Layout} layout @param {Set<number>} shown @param {number} unit */
function edgeLines(world, layout, shown, unit) {
  const lines = [];
  for (const place of shown) {
    for (const to of Object.values(world.exits[place])) {
      if (!shown.has(/** @type {number} */ (to))) continue;
      lines.push(drawn("line", { class: "edge", x1: layout[place].x, y1: layout[place].y, x2: layout[/** @type {number} */ (to)].x, y2: layout[/** @type {number} */ (to)].y, "stroke-width": 0.4 * unit }));
    }
  }
  return lines;
}

/** @param {App} app @param {Layout} layout @param {Set<number>} shown @param {number} unit */
function kinshipLines(app, layout, shown, unit) {
  const [MOTHER, FATHER, SPOUSE] = [0, 1, 2];
  const lines = [];
  for (const person of shown) {
    const of = app.raw.relatives[person];
    if (of[SPOUSE] > person && shown.has(of[SPOUSE])) lines.push(drawn("line", { class: "couple", x1: layout[person].x, y1: layout[person].y, x2: layout[of[SPOUSE]].x, y2: layout[of[SPOUSE]].y, "stroke-width": 0.5 * unit }));
    if (of[MOTHER] >= 0 && shown.has(of[MOTHER]) && shown.has(of[FATHER])) {
      const [mother, father, child] = [layout[of[MOTHER]], layout[of[FATHER]], layout[person]];
      const x = (mother.x + father.x) / 2;
      const y = (mother.y + child.y) / 2;
      lines.push(drawn("path", { class: "descent", d: `M${x} ${mother.y}V${y}H${child.x}V${child.y}`, "stroke-width": 0.3 * unit }));
    }
  }
  return lines;
}

/** All places of a small world; those within a few steps of a large one. @param {App} app @param {number} here @returns {number[]} */
function visiblePlaces(app, here) {
  const world = app.walk.world;
  const most = app.task.kind === "family" ? 36 : 70;
  if (world.exits.length <= most) return world.exits.map((/** @type {any} */ _, /** @type {number} */ place) => place);
  const found = [here];
  const near = new Set(found);
  for (const place of found) {
    if (found.length > most) break;
    for (const action of world.possible(place)) {
      const to = world.follow(place, action);
      if (!near.has(to)) {
        near.add(to);
        found.push(to);
      }
    }
  }
  return found;
}

/** A family is laid out for those who are seen; a graph once. @param {App} app @param {number[]} visible @returns {Layout} */
function layoutOf(app, visible) {
  if (app.task.kind === "family") return familyLayout(app.raw, visible);
  if (laidOut?.raw !== app.raw) laidOut = { raw: app.raw, layout: springLayout(app.walk.world) };
  return /** @type {{layout: Layout}} */ (laidOut).layout;
}

/** Generations in rows; couples side by side, children below their parents. @param {any} family @param {number[]} visible @returns {Layout} */
export function familyLayout(family, visible) {
  const [MOTHER, FATHER, SPOUSE] = [0, 1, 2];
  const count = family.relatives.length;
  const seen = new Set(visible);
  /** @type {Layout} */
  const layout = Array.from({ length: count }, () => ({ x: 0, y: 0 }));
  const generations = Math.max(...family.generation) + 1;
  for (let generation = 0; generation < generations; generation++) {
    const people = visible.filter((person) => family.generation[person] === generation).sort((a, b) => a - b);
    const wish = (/** @type {number} */ person) => {
      const [mother, father] = [family.relatives[person][MOTHER], family.relatives[person][FATHER]];
      return seen.has(mother) && seen.has(father) ? (layout[mother].x + layout[father].x) / 2 : null;
    };
    const placed = new Set();
    const order = people.map((person) => ({ person, at: wish(person) ?? wish(family.relatives[person][SPOUSE] >= 0 ? family.relatives[person][SPOUSE] : person) ?? person })).sort((a, b) => a.at - b.at || a.person - b.person);
    let x = 0;
    for (const { person } of order) {
      if (placed.has(person)) continue;
      const spouse = family.relatives[person][SPOUSE];
      for (const one of seen.has(spouse) && !placed.has(spouse) ? [person, spouse] : [person]) {
        layout[one] = { x: x * 10, y: generation * 22 };
        placed.add(one);
        x++;
      }
      x += 0.5;
    }
    const middle = ((x - 1.5) * 10) / 2;
    people.forEach((person) => (layout[person].x -= middle));
  }
  return layout;
}

/** Places that are joined pull each other, all others push: the same picture every time. @param {any} world @returns {Layout} */
export function springLayout(world) {
  const count = world.exits.length;
  const random = randomStream(7);
  const layout = Array.from({ length: count }, (_, i) => ({ x: 40 * Math.cos((2 * Math.PI * i) / count) + random(), y: 40 * Math.sin((2 * Math.PI * i) / count) + random() }));
  const rounds = count > 300 ? 20 : 240;
  for (let round = 0; round < rounds; round++) {
    const cool = 6 * (1 - round / rounds) + 0.1;
    const push = layout.map(() => ({ x: 0, y: 0 }));
    for (let i = 0; i < count; i++) {
      for (let j = 0; j < i; j++) {
        const [dx, dy] = [layout[i].x - layout[j].x, layout[i].y - layout[j].y];
        const far = Math.max(dx * dx + dy * dy, 0.01);
        push[i].x += (160 * dx) / far;
        push[i].y += (160 * dy) / far;
        push[j].x -= (160 * dx) / far;
        push[j].y -= (160 * dy) / far;
      }
      for (const to of Object.values(world.exits[i])) {
        const other = /** @type {number} */ (to);
        const [dx, dy] = [layout[other].x - layout[i].x, layout[other].y - layout[i].y];
        const pull = Math.hypot(dx, dy) / 24;
        push[i].x += dx * pull;
        push[i].y += dy * pull;
        push[other].x -= dx * pull;
        push[other].y -= dy * pull;
      }
    }
    layout.forEach((at, i) => {
      const force = Math.hypot(push[i].x, push[i].y) || 1;
      at.x += (push[i].x / force) * Math.min(force, cool);
      at.y += (push[i].y / force) * Math.min(force, cool);
    });
  }
  const { w, h } = boxOf(layout);
  return count > 300 ? layout : movedApart(layout, 0.075 * Math.max(w, h)); // places are drawn that wide
}

/** Push places apart until no two of them are nearer than a distance, or nearly so. @param {Layout} layout @param {number} least */
function movedApart(layout, least) {
  for (let round = 0; round < 60; round++) {
    for (const [i, one] of layout.entries()) {
      for (const other of layout.slice(0, i)) {
        const [dx, dy] = [one.x - other.x, one.y - other.y];
        const far = Math.hypot(dx, dy) || 1e-6;
        if (far >= least) continue;
        const [x, y] = [(dx / far) * (least - far) * 0.5, (dy / far) * (least - far) * 0.5];
        one.x += x;
        one.y += y;
        other.x -= x;
        other.y -= y;
      }
    }
  }
  return layout;
}

/** @param {{x: number, y: number}[]} points */
function boxOf(points) {
  const xs = points.map((point) => point.x);
  const ys = points.map((point) => point.y);
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const room = Math.max(right - left, bottom - top, 20) * 0.08 + 3;
  const w = Math.max(right - left, 30) + 2 * room;
  const h = Math.max(bottom - top, 30, w * 0.5) + 2 * room;
  return { x: (left + right - w) / 2, y: (top + bottom - h) / 2, w, h };
}
