// The page begins here: find the models, enter a world, and draw everything whenever anything changes.

import { addressOf, hasAddress, readAddress, remember, restore } from "./address.js";
import { App } from "./app.js";
import { drawBrackets, drawBracketScores, drawValid } from "./bracket_view.js";
import { drawClocks } from "./clock_view.js";
import { drawControls, drawMapChoice, drawWorldChoice, listen } from "./controls.js";
import { element, fill, isNew, part } from "./dom.js";
import { openGraphs } from "./graph_engine.js";
import { drawGridView } from "./grid_view.js";
import { drawGuess, drawScores } from "./guess_view.js";
import { drawLab } from "./lab_view.js";
import { drawCompass, drawMapView } from "./map_view.js";
import { drawNodes } from "./node_view.js";
import { drawNext, drawNextScores, drawNorms } from "./norm_view.js";
import { acceptGraphs } from "./own_graph.js";
import { drawRecord } from "./record_view.js";
import { download, standalone, walkAsJson } from "./saving.js";
import { ServerEngine } from "./server_engine.js";
import { drawStrip, drawToken } from "./strip_view.js";
import { Tour } from "./tour.js";

const LEADS = {
  grid: "Walk through a world. A transformer reads along, and says what you will find when you come back to a place.",
  brackets: "Type brackets. A transformer reads along, and says what may come next.",
  family: "Walk from relative to relative. A transformer reads along, and says who you will meet again.",
  graph: "Walk from place to place. A transformer reads along, and says what you will find when you come back.",
  copy: "A transformer reads symbols between blanks, and must repeat them in order.",
  text: "A transformer reads text, and says what comes next.",
  tokens: "A transformer reads along, and says what comes next.",
};

/** Draw every part. @param {App} app */
function drawAll(app) {
  const { kind } = app.task;
  drawWorldChoice(part("world-choice"), app);
  drawControls(part("world-controls"), app);
  drawMapChoice(part("map-choice"), app);
  if (kind === "grid") drawGridView(part("world"), app);
  else if (kind === "brackets") drawBrackets(part("world"), app);
  else if (app.walks) drawNodes(part("world"), app);
  else drawNorms(part("world"), app);
  if (kind === "brackets") {
    drawValid(part("guess-caption"), part("guess"), app);
    drawBracketScores(part("scores"), app);
  } else if (app.walks) {
    drawGuess(part("guess-caption"), part("guess"), app);
    drawScores(part("scores"), app);
  } else {
    drawNext(part("guess-caption"), part("guess"), app);
    drawNextScores(part("scores"), app);
  }
  drawMapView(part("map"), app);
  drawCompass(part("compass"), app);
  drawStrip(part("strip"), app);
  drawToken(part("token"), app);
  part("clock-panel").hidden = !drawClocks(part("clocks"), app);
  drawLab(part("lab"), app);
  drawCaptions(app);
  remember(app);
}

/** @param {App} app */
function drawCaptions(app) {
  const { kind } = app.task;
  const has = app.layerAbout().movements;
  if (!isNew(part("map-caption"), app.shown.model, app.shown.layer, has)) return;
  fill(part("world-title"), kind === "brackets" ? "The brackets" : kind === "family" ? "The family" : app.walks ? "The world" : "Token by token");
  const models = app.about.models.map((model, index) => element("span", { class: `legend model-${index}` }, element("i", { class: "dot" }), model.label));
  const seen = { grid: "Rings: where each model looks.", brackets: "Arcs: where each model looks. Dashed: the last open bracket.", family: "Circles are women, squares men. Rings: where each model looks.", graph: "Click a neighbour to go there; drop a world of your own. Rings: where each model looks." };
  fill(part("world-caption"), ...models, " ", seen[/** @type {keyof typeof seen} */ (kind)] ?? "");
  const label = app.about.models[app.shown.model].label;
  fill(part("map-caption"), !has ? "" : kind === "grid" ? "Thick: where you are. Thin: where it believes to be." : `The path of ${label}, step by step.`);
  fill(part("strip-caption"), app.about.models.length > 1 ? "Bars above and below: attention of the two models. Click a token to look from there." : "Bars: attention. Click a token to look from there.");
  fill(part("clock-caption"), `${label} keeps its place as angles: fast clocks first, slow ones last. The faint hand is the token that it looks at most.`);
}

/** Hovering a token lights its place everywhere, and a place all its tokens. @param {App} app */
function lightUp(app) {
  const main = part("app");
  main.addEventListener("pointerover", (event) => {
    const target = /** @type {Element} */ (event.target).closest("[data-token], [data-key]");
    main.querySelectorAll(".lit").forEach((node) => node.classList.remove("lit"));
    if (!target) return;
    const token = target.getAttribute("data-token");
    const key = target.getAttribute("data-key") ?? (token && app.walks ? app.keyAt(Number(token)) : null);
    if (token) main.querySelectorAll(`[data-token="${token}"]`).forEach((node) => node.classList.add("lit"));
    if (key) main.querySelectorAll(`[data-key="${CSS.escape(key)}"]`).forEach((node) => node.classList.add("lit"));
  });
}

/** @param {App} app */
function tools(app) {
  const tour = new Tour(app);
  part("start-tour").addEventListener("click", () => tour.start());
  part("share").hidden = !hasAddress();
  part("share").addEventListener("click", async () => {
    await navigator.clipboard?.writeText(location.href.split("#")[0] + addressOf(app)).catch(() => undefined);
    app.say("The address of this walk is copied.");
    part("share").textContent = "Copied";
    setTimeout(() => (part("share").textContent = "Share"), 1500);
  });
  part("save-svg").addEventListener("click", () => {
    for (const name of ["world", "map"]) {
      const picture = part(name).querySelector("svg");
      if (picture) download(`${app.task.name}-${name}.svg`, standalone(picture), "image/svg+xml");
    }
  });
  part("save-json").addEventListener("click", () => download(`${app.task.name}.json`, walkAsJson(app), "application/json"));
  part("theme").addEventListener("click", () => {
    const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = dark ? "light" : "dark";
  });
  listen(app, () => tour.start());
}

/** The models in the page itself if it has them, otherwise those of the server. @param {URLSearchParams} said */
async function openEngine(said) {
  const inside = document.getElementById("models");
  if (inside) return openGraphs(JSON.parse(inside.textContent ?? ""));
  const key = said.get("key") ?? sessionStorage.getItem("explorer-key") ?? "";
  sessionStorage.setItem("explorer-key", key);
  return new ServerEngine(key).open();
}

async function begin() {
  const said = readAddress(location.hash);
  const app = new App(await openEngine(said), drawAll);
  Object.assign(globalThis, { explorer: app });
  fill(part("lead"), LEADS[/** @type {keyof typeof LEADS} */ (app.task.kind)] ?? LEADS.tokens);
  drawRecord(part("record"), app);
  tools(app);
  lightUp(app);
  acceptGraphs(app);
  if (!(await restore(app, said))) await app.enter("iid", 1);
  part("app").setAttribute("aria-busy", "false");
  if (!app.about.players) {
    app.about.players = await app.engine.ask("players", {});
    drawRecord(part("record"), app);
  }
}

begin().catch((error) => {
  part("trouble").hidden = false;
  fill(part("trouble"), error.message);
});
