// The angles in which a model turns its queries and keys: one clock per rotation block, fast ones first.

import { drawn, fill } from "./dom.js";

/** @typedef {import("./app.js").App} App */

/** @param {HTMLElement} holder @param {App} app @returns {boolean} whether this layer has clocks */
export function drawClocks(holder, app) {
  const layer = app.layerAbout();
  const rows = app.seen[app.shown.model]?.layers[app.shown.layer]?.theta;
  if (!layer.observables.includes("theta")) {
    fill(holder);
    return false;
  }
  const blocks = layer.speeds ? layer.speeds.length / layer.heads : (rows?.[0]?.length ?? 0) / layer.heads;
  const from = app.shown.head * blocks;
  const angles = rows && app.cursor >= 0 ? rows[app.cursor].slice(from, from + blocks) : new Array(blocks).fill(0);
  const target = attendedToken(app);
  const then = rows && target !== null ? rows[target].slice(from, from + blocks) : null;
  const order = angles.map((_, index) => index);
  const speeds = layer.speeds?.slice(from, from + blocks);
  if (speeds) order.sort((a, b) => speeds[b] - speeds[a]);
  const columns = blocks > 40 ? 16 : 8;
  const picture = drawn("svg", { viewBox: `-12 -12 ${24 * columns} ${24 * Math.ceil(blocks / columns)}`, role: "img", "aria-label": "The angle of every rotation block" });
  order.forEach((block, rank) => {
    const face = clock(angles[block], then?.[block], rank, blocks, app.shown.model, speeds?.[block]);
    face.setAttribute("transform", `translate(${24 * (rank % columns)} ${24 * Math.floor(rank / columns)})`);
    picture.append(face);
  });
  fill(holder, picture);
  return true;
}

/** @param {number} angle @param {number | undefined} then @param {number} rank @param {number} blocks @param {number} model @param {number | undefined} speed */
function clock(angle, then, rank, blocks, model, speed) {
  const hand = (/** @type {number} */ theta, /** @type {string} */ name) => drawn("line", { class: name, x1: 0, y1: 0, x2: 8.4 * Math.sin(theta), y2: -8.4 * Math.cos(theta) });
  const turn = speed ? `one turn every ${((2 * Math.PI) / speed).toFixed(1)} units of movement` : `number ${rank + 1} of ${blocks}`;
  const face = drawn("g", { class: `clock model-${model}` }, drawn("title", {}, turn), drawn("circle", { cx: 0, cy: 0, r: 10 }));
  if (then !== undefined) face.append(hand(then, "then"));
  face.append(hand(angle, "hand"));
  return face;
}

/** The token that the shown model looks at most. @param {App} app */
function attendedToken(app) {
  const row = app.attentionRow(app.shown.model);
  if (!row || !row.length) return null;
  const best = row.reduce((top, weight, at) => (weight > row[top] ? at : top), 0);
  return row[best] > 0.2 ? best : null;
}
