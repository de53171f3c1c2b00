// Six steps for somebody who has never heard of a cognitive map.

import { element, fill, part } from "./dom.js";

/** @typedef {import("./app.js").App} App */
/** @typedef {{at: string, title: string, text: string}} Stop */

/** @param {App} app @returns {Stop[]} */
export function stopsOf(app) {
  const model = app.about.models[0].label;
  const other = app.about.models[1]?.label;
  const map = { at: "map-panel", title: "A map that nobody drew", text: `Each token moves ${model} a little on a map of its own (the arrows). Added up, the movements say where it is: the thin line follows the thick one, which is the truth. Psychologists call such a thing a cognitive map.` };
  const strip = { at: "strip-panel", title: "All it ever sees", text: "No coordinates, no picture: only this row of symbols. Which of them move you, and where to, it had to find out by guessing what comes next. The bars show where it looks." };
  const clocks = { at: "clock-panel", title: "A place, told by clocks", text: "Inside, its place is a set of angles. Fast clocks tell near cells apart, slow ones far cells. Come back, and all the hands are where they were: so it finds what it saw here." };
  const end = { at: "lab-panel", title: "Now break it", text: "Stop one of its arrows, hide a token from it, make its attention vague: watch what it gets wrong. Every address of this page is a walk that you can pass on." };
  if (app.task.kind === "brackets") {
    return [
      { at: "world-panel", title: "Brackets are a walk, too", text: "Every opening bracket is a step up, every closing one a step down. To know which bracket must close next, one has to remember what is still open: the stack on the right." },
      strip,
      { at: "guess-panel", title: "What may come next?", text: "Type a bracket. Before the next one, the model says which brackets could follow. The bars are its answer, “may” and “no” the truth." },
      { ...map, text: `Each bracket moves ${model} on a map, and its partner moves it back. After “([])” it is where it began: a matched string is a walk that comes home.` },
      { at: "world-panel", title: "Looking back", text: "The arcs show where it looks: at the last bracket that is still open, because on the map that bracket is right next door. The dashed arc is the right answer." },
      end,
    ];
  }
  const where = app.task.kind === "family" ? "a family" : app.task.kind === "graph" ? "a network of places" : "a world";
  const walks = app.walks;
  return [
    walks
      ? { at: "world-panel", title: "You are walking blindfolded", text: `This is ${where}. Go ${app.task.kind === "grid" ? "with the arrow keys, by swiping, or with the buttons" : "by clicking a neighbour"}. You notice only what is at the very place where you stand: a letter, or nothing (·).` }
      : { at: "world-panel", title: "Tokens, one by one", text: "The model reads a row of symbols. The bars show how far each of them moves it on its map, and how much attention it gets." },
    strip,
    { at: "guess-panel", title: "A guess before you look", text: walks ? "After each step it says what it expects to find, before that is shown. In a new place nobody can know. When you come back to a place, somebody with a map can: only that counts." : "After each token it says what it expects next." },
    { ...map, text: other ? `${map.text} ${other} has none: compare their scores as you walk.` : map.text },
    clocks,
    end,
  ];
}

export class Tour {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.at = -1;
  }

  start() {
    this.go(0);
  }

  stop() {
    part("tour").hidden = true;
    document.querySelectorAll(".toured").forEach((panel) => panel.classList.remove("toured"));
    this.at = -1;
  }

  /** @param {number} at */
  go(at) {
    const stops = stopsOf(this.app).filter((stop) => !part(stop.at).hidden);
    if (at >= stops.length) return this.stop();
    this.at = at;
    const stop = stops[at];
    document.querySelectorAll(".toured").forEach((panel) => panel.classList.remove("toured"));
    const panel = part(stop.at);
    panel.classList.add("toured");
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    panel.scrollIntoView({ block: "center", behavior: calm ? "auto" : "smooth" });
    const next = element("button", { type: "button", class: "main", id: "tour-next", click: () => this.go(at + 1) }, at + 1 < stops.length ? "Next" : "Walk");
    const box = part("tour");
    box.hidden = false;
    fill(box,
      element("p", { class: "count" }, `${at + 1} of ${stops.length}`), element("h2", {}, stop.title), element("p", {}, stop.text),
      element("div", { class: "row" }, element("button", { type: "button", click: () => this.stop() }, "Close"), at ? element("button", { type: "button", click: () => this.go(at - 1) }, "Back") : null, next));
    next.focus({ preventScroll: true });
    this.app.say(`${stop.title}. ${stop.text}`);
  }
}
