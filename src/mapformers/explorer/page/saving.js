// Take it home: the pictures as SVG with their colours in them, and all that was seen as JSON.

/** @typedef {import("./app.js").App} App */

const PAINT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family", "font-weight", "text-anchor", "dominant-baseline", "stroke-linecap", "stroke-linejoin", "transform", "paint-order"];

/** A picture that looks the same outside the page. @param {SVGElement} picture */
export function standalone(picture) {
  const copy = /** @type {SVGElement} */ (picture.cloneNode(true));
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const from = [picture, ...picture.querySelectorAll("*")];
  const to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((node, index) => {
    const style = getComputedStyle(node);
    for (const name of PAINT) {
      const value = style.getPropertyValue(name);
      if (value && value !== "none" && value !== "normal") to[index].setAttribute(name, value);
      else if (value === "none" && (name === "fill" || name === "stroke")) to[index].setAttribute(name, "none");
    }
    to[index].removeAttribute("class");
    to[index].removeAttribute("style");
  });
  return new XMLSerializer().serializeToString(copy);
}

/** @param {App} app */
export function walkAsJson(app) {
  return JSON.stringify({
    task: app.task, models: app.about.models, split: app.split, seed: app.seed, world: app.raw, tokens: app.walk.tokens(),
    names: app.walk.tokens().map((/** @type {number} */ token) => app.task.tokens[token]), options: app.plainOptions(), seen: app.seen,
  });
}

/** Hand a file to the browser. @param {string} name @param {string} content @param {string} kind */
export function download(name, content, kind) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type: kind }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
