// Small helpers to make elements. Text is always set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Record<string, string | number | boolean | null | undefined | ((event: any) => void)>} Attributes */
/** @typedef {Node | string | number | null | undefined} Child */

/**
 * @param {Element} made
 * @param {Attributes} attributes
 * @param {Child[]} children
 */
function dress(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, String(value));
  }
  for (const child of children) if (child != null) made.append(child instanceof Node ? child : String(child));
}

/**
 * An HTML element: attributes by name, listeners as functions.
 * @param {string} tag
 * @param {Attributes} [attributes]
 * @param {...Child} children
 * @returns {HTMLElement}
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  dress(made, attributes, children);
  return made;
}

/**
 * An SVG element.
 * @param {string} tag
 * @param {Attributes} [attributes]
 * @param {...Child} children
 * @returns {SVGElement}
 */
export function drawn(tag, attributes = {}, ...children) {
  const made = /** @type {SVGElement} */ (document.createElementNS(SVG, tag));
  dress(made, attributes, children);
  return made;
}

/**
 * The element of the page with an id.
 * @param {string} id
 * @returns {HTMLElement}
 */
export function part(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`The page has no part ${id}.`);
  return found;
}

/**
 * Replace all that an element holds.
 * @param {Element} parent
 * @param {...Child} children
 */
export function fill(parent, ...children) {
  parent.replaceChildren(...children.filter((child) => child != null).map((child) => (child instanceof Node ? child : String(child))));
}

/** @type {WeakMap<Element, unknown[]>} */
const depended = new WeakMap();

/**
 * Whether anything that a part depends on has changed since it was drawn; if not, it need not be drawn again. A part
 * that stays keeps the focus and what was typed into it.
 * @param {Element} holder
 * @param {...unknown} depends numbers, strings, or objects that are replaced when they change
 */
export function isNew(holder, ...depends) {
  const before = depended.get(holder);
  depended.set(holder, depends);
  return !before || before.length !== depends.length || before.some((value, index) => !Object.is(value, depends[index]));
}

/** @param {number} share */
export function percent(share) {
  return share > 0 && share < 0.005 ? "<1%" : `${Math.round(100 * share)}%`;
}

/** @param {number} number @param {string} one @param {string} [many] */
export function counted(number, one, many = `${one}s`) {
  return `${number} ${number === 1 ? one : many}`;
}
