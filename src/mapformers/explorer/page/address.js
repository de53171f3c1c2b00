// The walk in the address of the page: whoever opens it sees the same walk.

/** @typedef {import("./app.js").App} App */

/** What the part after # says, by name. @param {string} fragment */
export function readAddress(fragment) {
  return new URLSearchParams(fragment.replace(/^#/, ""));
}

/** @param {App} app */
export function addressOf(app) {
  const said = new URLSearchParams();
  said.set("split", app.split);
  said.set("seed", String(app.seed));
  const written = app.walks ? app.walk.steps.map((/** @type {any} */ step) => step.action) : app.walk.tokens();
  said.set("walk", written.join("."));
  if (app.walks && !app.walk.revealed) said.set("covered", "1");
  if (app.options.hidden.size) said.set("hidden", [...app.options.hidden].join("."));
  if (app.options.still.size) said.set("still", [...app.options.still].join("."));
  if (app.options.temperature !== 1) said.set("heat", String(app.options.temperature));
  if (app.shown.model) said.set("model", String(app.shown.model));
  return `#${said}`;
}

const QUIET = 300; // milliseconds without a change, after which the address is written: browsers take long to do that
/** @type {number | undefined} */
let writing;

/**
 * Put the walk into the address of the page, once nothing has changed for a moment; the first time at once, because the
 * address still holds the secret of the server.
 * @param {App} app
 */
export function remember(app) {
  if (!hasAddress()) return;
  const write = () => history.replaceState(null, "", addressOf(app));
  if (writing === undefined) write();
  clearTimeout(writing);
  writing = setTimeout(write, QUIET);
}

/** A page inside another one, as in a report, has no address of its own. */
export function hasAddress() {
  return location.protocol !== "about:";
}

/** Whole numbers that were written with dots. @param {string | null} text @param {number} below */
export function numbersIn(text, below) {
  if (!text) return [];
  return text.split(".").map(Number).filter((value) => Number.isInteger(value) && value >= 0 && value < below).slice(0, 20000);
}

/** Bring back what an address says; false if it says nothing. @param {App} app @param {URLSearchParams} said */
export async function restore(app, said) {
  if (!said.has("walk") && !said.has("seed")) return false;
  const split = said.get("split") ?? "iid";
  app.options.temperature = Math.min(10, Math.max(0.1, Number(said.get("heat") ?? 1) || 1));
  numbersIn(said.get("still"), app.task.tokens.length).forEach((token) => app.options.still.add(token));
  app.shown.model = Math.min(app.about.models.length - 1, Math.max(0, Math.floor(Number(said.get("model") ?? 0)) || 0));
  const seed = Math.floor(Number(said.get("seed") ?? 1)) || 1;
  const walk = said.has("walk") ? numbersIn(said.get("walk"), app.task.tokens.length) : undefined;
  await app.enter(split in app.task.splits ? split : "iid", Math.abs(seed) % 2147483647, walk);
  const hidden = numbersIn(said.get("hidden"), app.walk.tokens().length);
  if (hidden.length) {
    hidden.forEach((index) => app.options.hidden.add(index));
    await app.update();
  }
  return true;
}
