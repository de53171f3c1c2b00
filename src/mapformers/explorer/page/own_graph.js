// A world of one's own: drop the JSON of docs/worlds.md on the page.

import { drawContent } from "./grid_world.js";
import { randomStream } from "./random.js";

/** @typedef {import("./app.js").App} App */

/** @param {App} app */
export function acceptGraphs(app) {
  if (app.task.kind !== "graph") return;
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", async (event) => {
    event.preventDefault();
    const file = event.dataTransfer?.files[0];
    if (file) await enterGraph(app, await file.text());
  });
}

/** @param {App} app @param {string} text */
export async function enterGraph(app, text) {
  try {
    app.begin(await app.engine.ask("graph", { world: text }));
    await app.update();
  } catch (error) {
    app.trouble(error instanceof Error ? error.message : String(error));
  }
}

/**
 * The world that a JSON text describes, for a page without Python behind it.
 * @param {string} text @param {any} task
 */
export function graphFrom(text, task) {
  const world = readJson(text);
  for (const name of ["nodes", "actions", "edges"]) {
    if (!Array.isArray(world[name]) || !world[name].length) throw new Error(`A world has a list of ${name}; see docs/worlds.md.`);
  }
  const place = new Map(world.nodes.map((/** @type {string} */ node, /** @type {number} */ index) => [node, index]));
  const token = new Map(task.tokens.map((/** @type {string} */ name, /** @type {number} */ index) => [name, index]));
  /** @type {Record<number, number>[]} */
  const exits = world.nodes.map(() => ({}));
  for (const [tail, action, head] of world.edges) {
    if (!place.has(tail) || !place.has(head)) throw new Error(`An edge leads from ${tail} to ${head}, which are not both nodes.`);
    if (!task.actions.includes(token.get(action))) throw new Error(`This model does not know the action ${action}.`);
    exits[place.get(tail)][token.get(action)] = place.get(head);
  }
  const stuck = exits.findIndex((ways) => !Object.keys(ways).length);
  if (stuck >= 0) throw new Error(`Nothing leads on from ${world.nodes[stuck]}.`);
  const random = randomStream(1);
  const contents = world.nodes.map((/** @type {string} */ node) => {
    const fixed = world.observations?.[node];
    if (fixed === undefined) return drawContent(random(), task.settings, task.empty ?? 0);
    if (!token.has(fixed)) throw new Error(`This model has never seen ${fixed}.`);
    return token.get(fixed);
  });
  return { name: world.name ?? "yours", nodes: world.nodes, start: place.get(world.start) ?? 0, contents, exits };
}

/** @param {string} text */
function readJson(text) {
  try {
    return Object(JSON.parse(text));
  } catch {
    throw new Error("That file is not JSON.");
  }
}
