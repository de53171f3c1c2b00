// The map inside a model: the path that it integrates beside the true one, and how each token moves on it.

import { drawn, element, fill, isNew } from "./dom.js";
import { fitLinear, norm, times, twoDirections } from "./linear.js";

/** @typedef {import("./app.js").App} App */

/**
 * For a layer that moves on a map, the matrix (2 × r) from its coordinates to a plane: cells on a grid, otherwise the
 * coordinates themselves or, if there are more than two, the two directions in which its actions differ most.
 * @param {any} layer @param {any} task @param {number} head
 */
export function planeOf(layer, task, head) {
  const moves = headOf(layer, head);
  if (!moves) return null;
  const actions = /** @type {number[]} */ (task.actions);
  if (task.kind === "grid") {
    const unit = actions.map((action) => [0, 1].map((axis) => (action >> 1 === axis ? (action % 2 ? -1 : 1) : 0)));
    return fitLinear(actions.map((action) => moves[action]), unit);
  }
  return twoDirections(actions.length ? actions.map((action) => moves[action]) : moves);
}

/** The movement of every token under one head. @param {any} layer @param {number} head @returns {number[][] | null} */
export function headOf(layer, head) {
  if (!layer.movements) return null;
  const rank = layer.rank;
  return layer.movements.map((/** @type {number[]} */ row) => row.slice(head * rank, (head + 1) * rank));
}

/** The coordinate of a token under one head. @param {number[]} row @param {any} layer @param {number} head */
export function coordinateOf(row, layer, head) {
  return row.slice(head * layer.rank, (head + 1) * layer.rank);
}

/** @param {HTMLElement} holder @param {App} app */
export function drawMapView(holder, app) {
  const layer = app.layerAbout();
  const seen = app.seen[app.shown.model]?.layers[app.shown.layer];
  const plane = planeOf(layer, app.task, app.shown.head);
  if (!plane || (seen && !seen.coordinate)) return drawNoMap(holder, app, layer);
  const rows = seen?.coordinate ?? [];
  const points = [[0, 0], ...rows.slice(0, app.cursor + 1).map((row) => times(plane, coordinateOf(row, layer, app.shown.head)))];
  const truth = app.truePath();
  const all = truth ? [...points, ...truth] : points;
  const box = boxAround(all);
  const unit = box.size / 100; // a pixel or so
  const picture = drawn("svg", { viewBox: `${box.x} ${box.y} ${box.size} ${box.size}`, role: "img", "aria-label": mapSentence(app, points, truth) });
  picture.append(gridLines(box));
  if (truth) picture.append(drawn("path", { class: "truth", d: lineThrough(truth), "stroke-width": 2.6 * unit }));
  picture.append(drawn("path", { class: `track model-${app.shown.model}`, d: lineThrough(points), "stroke-width": 0.8 * unit }));
  points.forEach(([x, y], index) => {
    if (!index || points.length - index > 160) return;
    picture.append(drawn("circle", { class: `stop model-${app.shown.model}`, cx: x, cy: -y, r: 0.9 * unit, "data-token": index - 1, "data-key": app.keyAt(index - 1) ?? undefined }));
  });
  picture.append(drawn("circle", { class: "origin", cx: 0, cy: 0, r: 1.4 * unit, "stroke-width": 0.6 * unit }));
  const [hx, hy] = points[points.length - 1];
  picture.append(drawn("circle", { class: `here model-${app.shown.model}`, cx: hx, cy: -hy, r: 2.4 * unit, "stroke-width": 0.9 * unit }));
  for (const [, { token, weight }] of app.attentionByPlace(app.shown.model)) {
    if (weight < 0.05 || token + 1 >= points.length) continue;
    const [x, y] = points[token + 1];
    picture.append(drawn("line", { class: `look model-${app.shown.model}`, x1: hx, y1: -hy, x2: x, y2: -y, "stroke-width": 2.5 * unit * weight }));
  }
  fill(holder, picture);
}

/** A model that integrates no path: it only counts tokens, or it keeps something that is no place. @param {HTMLElement} holder @param {App} app @param {any} layer */
function drawNoMap(holder, app, layer) {
  const n = app.cursor + 1;
  const label = app.about.models[app.shown.model].label;
  const row = app.attentionRow(app.shown.model);
  const picture = drawn("svg", { viewBox: "0 0 100 60", role: "img", "aria-label": `${label} has no map.` });
  picture.append(drawn("text", { class: "no-map", x: 50, y: 16 }, `${label} has no map.`));
  const why = layer.name === "rope" ? "All it knows of where it was is how many tokens ago." : layer.observables.includes("attention") ? "It has no place, only tokens that came before." : "What it keeps is no place that could be drawn.";
  picture.append(drawn("text", { class: "no-map small", x: 50, y: 23 }, why));
  picture.append(drawn("line", { class: "ruler", x1: 6, y1: 44, x2: 94, y2: 44 }));
  const shown = Math.min(n, 60);
  for (let i = 0; i < shown; i++) {
    const token = n - shown + i;
    const x = 6 + (88 * (i + 0.5)) / Math.max(shown, 1);
    const weight = row ? (row[token] ?? 0) : 0;
    picture.append(drawn("line", { class: "ruler", x1: x, x2: x, y1: 44, y2: 45.5 }));
    if (weight > 0.005) picture.append(drawn("rect", { class: `pillar model-${app.shown.model}`, x: x - 0.5, width: 1, y: 44 - 16 * weight, height: 16 * weight, "data-token": token }));
  }
  picture.append(drawn("text", { class: "no-map small", x: 94, y: 51, "text-anchor": "end" }, n ? "now" : ""));
  picture.append(drawn("text", { class: "no-map small", x: 6, y: 51, "text-anchor": "start" }, n ? `${shown} tokens ago` : ""));
  fill(holder, picture);
}

/** How every token moves: arrows for actions, dots for what can be found. @param {HTMLElement} holder @param {App} app */
export function drawCompass(holder, app) {
  const layer = app.layerAbout();
  if (!isNew(holder, layer, app.shown.model, app.shown.head, [...app.options.still].join())) return;
  const moves = headOf(layer, app.shown.head);
  const plane = planeOf(layer, app.task, app.shown.head);
  if (!moves || !plane) return fill(holder);
  const ends = moves.map((move) => times(plane, move));
  const reach = Math.max(...ends.map(norm), 1e-9);
  const scale = 38 / reach;
  const text = app.task.kind === "text" || app.task.kind === "tokens";
  const names = text ? new Map() : compassNames(app.task, ends.map(([x, y]) => [x * scale, -y * scale]));
  const words = [...names.values()].some(({ anchor }) => anchor !== "middle");
  holder.classList.toggle("words", words);
  const wide = words ? 134 : 56;
  const picture = drawn("svg", { viewBox: `${-wide} -50 ${2 * wide} 100`, role: "img", "aria-label": "How each token moves the model on its map" });
  picture.append(drawn("circle", { class: "horizon", cx: 0, cy: 0, r: 38 }), drawn("circle", { class: "horizon", cx: 0, cy: 0, r: 19 }));
  ends.forEach(([x, y], token) => {
    const [px, py] = [x * scale, -y * scale];
    const stopped = app.options.still.has(token);
    if (!app.task.actions.includes(token)) picture.append(drawn("circle", { class: `rest ${stopped ? "stopped" : ""}`, cx: px, cy: py, r: 1.6, "data-kind": token }, drawn("title", {}, app.task.tokens[token])));
    else {
      const group = drawn("g", { class: `arrow model-${app.shown.model} ${stopped ? "stopped" : ""}`, "data-kind": token, click: () => app.toggleStill(token) });
      group.append(drawn("line", { class: "hit", x1: px * 0.3, y1: py * 0.3, x2: px * 1.3, y2: py * 1.3 }));
      group.append(drawn("line", { x1: 0, y1: 0, x2: px, y2: py }), drawn("path", { d: arrowHead(px, py) }));
      const name = names.get(token);
      if (name && name.anchor !== "middle") group.append(drawn("line", { class: "leader", x1: px, y1: py, x2: name.x + (name.anchor === "start" ? -2 : 2), y2: name.y }));
      if (name) group.append(drawn("text", { x: name.x, y: name.y, "text-anchor": name.anchor }, shortName(app.task.tokens[token])));
      group.append(drawn("title", {}, `${app.task.tokens[token]}: click to make it stand still`));
      picture.append(group);
    }
  });
  const acting = app.task.actions.length;
  const what = app.task.kind === "brackets" ? "On a good map a bracket and its partner cancel. Nobody told it which is which." : acting ? "On a good map opposite actions cancel, and what is found stays at zero. Nobody told it which is which." : "";
  fill(holder, picture, element("p", { class: "caption" }, element("b", {}, "How each token moves it. "), what));
}

/**
 * Where the names of actions stand: signs right behind their arrows, words in two columns beside them, so that none lies on
 * another.
 * @param {any} task @param {number[][]} ends @returns {Map<number, {x: number, y: number, anchor: string}>}
 */
function compassNames(task, ends) {
  const actions = /** @type {number[]} */ (task.actions);
  if (actions.every((token) => task.tokens[token].length <= 2)) {
    return new Map(actions.map((token) => {
      const [x, y] = ends[token];
      const far = 1 + 8 / Math.max(Math.hypot(x, y), 8);
      return [token, { x: x * far, y: y * far, anchor: "middle" }];
    }));
  }
  const names = new Map();
  const leftToRight = [...actions].sort((a, b) => ends[a][0] - ends[b][0]);
  const half = Math.ceil(actions.length / 2);
  for (const [column, anchor, x] of /** @type {[number[], string, number][]} */ ([[leftToRight.slice(0, half), "end", -50], [leftToRight.slice(half), "start", 50]])) {
    column.sort((a, b) => ends[a][1] - ends[b][1]);
    const gap = Math.min(16, 90 / column.length);
    column.forEach((token, row) => names.set(token, { x, y: (row - (column.length - 1) / 2) * gap, anchor }));
  }
  return names;
}

/** @param {string} name */
function shortName(name) {
  return name.length > 15 ? `${name.slice(0, 14)}…` : name;
}

/** @param {number} x @param {number} y */
function arrowHead(x, y) {
  const size = Math.hypot(x, y) || 1;
  const [ux, uy] = [(x / size) * 5, (y / size) * 5];
  return `M${x} ${y}L${x - ux - uy * 0.5} ${y - uy + ux * 0.5}L${x - ux + uy * 0.5} ${y - uy - ux * 0.5}Z`;
}

/** @param {number[][]} points */
function lineThrough(points) {
  return points.map(([x, y], index) => `${index ? "L" : "M"}${x.toFixed(4)} ${(-y).toFixed(4)}`).join("");
}

/** A square with some room around all points. @param {number[][]} points */
function boxAround(points) {
  const xs = points.map((point) => point[0]);
  const ys = points.map((point) => -point[1]);
  const [left, right] = [Math.min(...xs), Math.max(...xs)];
  const [top, bottom] = [Math.min(...ys), Math.max(...ys)];
  const size = Math.max(right - left, bottom - top, 4) * 1.2;
  return { x: (left + right - size) / 2, y: (top + bottom - size) / 2, size };
}

/** @param {{x: number, y: number, size: number}} box */
function gridLines(box) {
  const step = [1, 2, 5, 10, 20, 50, 100].find((s) => box.size / s <= 16) ?? 200;
  let lines = "";
  for (let at = Math.ceil(box.x / step) * step; at <= box.x + box.size; at += step) lines += `M${at} ${box.y}v${box.size}`;
  for (let at = Math.ceil(box.y / step) * step; at <= box.y + box.size; at += step) lines += `M${box.x} ${at}h${box.size}`;
  return drawn("path", { class: "lines", d: lines, "stroke-width": box.size / 400 });
}

/** @param {App} app @param {number[][]} points @param {number[][] | null} truth */
function mapSentence(app, points, truth) {
  const label = app.about.models[app.shown.model].label;
  if (!truth) return `The path of ${label} on its map.`;
  const [x, y] = points[points.length - 1];
  const [tx, ty] = truth[truth.length - 1];
  return `${label} takes itself to be ${Math.hypot(x - tx, y - ty).toFixed(1)} cells from where it is.`;
}
