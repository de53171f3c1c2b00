// @ts-check
/**
 * A model's streaming step, computed in the page: token and state in, logits, state and what can be seen out.
 *
 * The graph is what `mapformers.explorer.step_graph` writes: a list of small operations on tensors. States are values:
 * a step returns a new one, and leaves the one it was given as it was.
 */

import { OPERATIONS, tensor } from "./operations.js";
import { ARRAYS, Tensor } from "./tensors.js";

/** @typedef {import("./tensors.js").Kind} Kind */
/** @typedef {import("./tensors.js").Numbers} Numbers */
/** @typedef {import("./operations.js").Item} Item */
/** @typedef {import("./operations.js").Node} Node */
/** @typedef {import("./operations.js").Value} Value */
/** @typedef {{name: string, value: string, role: string, shape?: number[], dtype?: Kind, empty?: string}} Input */
/** @typedef {{name: string, value: string, role: string}} Output */
/** @typedef {{weight: string, shape: number[], strides: number[], offset: number}} View */
/** @typedef {{shape: number[], dtype: Kind, data: string}} Weight */
/**
 * @typedef {{inputs: Input[], outputs: Output[], nodes: Node[], constants: Record<string, View>,
 *   weights: Record<string, Weight>}} Graph
 */
/** @typedef {Readonly<Record<string, Tensor>>} State */
/** @typedef {{movementScale?: number, temperature?: number, hidden?: readonly number[]}} Settings */
/** @typedef {{shape: number[], data: Numbers}} Seen */
/** @typedef {{logits: Float32Array, state: State, observed: Record<string, Seen>}} Step */

/** @type {Record<string, number>} */
const WORDS = { Infinity: Infinity, "-Infinity": -Infinity };

/** @param {Weight} weight @returns {Numbers} */
function decoded(weight) {
  const bytes = Uint8Array.from(atob(weight.data), (letter) => letter.charCodeAt(0));
  return weight.dtype === "bool" ? bytes : new ARRAYS[weight.dtype](bytes.buffer);
}

export class StepGraph {
  /** @param {Graph} graph */
  constructor(graph) {
    this.graph = graph;
    const weights = new Map(Object.entries(graph.weights).map(([name, weight]) => [name, decoded(weight)]));
    /** @type {Map<string, Value>} what no token changes */
    this.constants = new Map();
    for (const [name, view] of Object.entries(graph.constants)) {
      const [data, weight] = [weights.get(view.weight), graph.weights[view.weight]];
      if (!data || !weight) throw new Error(`The graph has no weight ${view.weight}.`);
      this.constants.set(name, new Tensor(data, view.shape, weight.dtype, view.strides, view.offset));
    }
    for (const node of graph.nodes)
      if (!OPERATIONS[node.op]) throw new Error(`The graph asks for ${node.op}, which this reader does not know.`);
  }

  /** The state before the first token. @returns {State} */
  emptyState() {
    /** @type {Record<string, Tensor>} */
    const state = {};
    for (const input of this.graph.inputs) {
      if (input.role !== "state") continue;
      const start = input.empty === undefined ? undefined : this.constants.get(input.empty);
      state[input.name] = start instanceof Tensor ? start : Tensor.full(input.shape ?? [], input.dtype ?? "float32");
    }
    return Object.freeze(state);
  }

  /**
   * @param {number} token @param {State} state
   * @param {Settings} [settings] `hidden`: past tokens, counted from 0, that are not to be seen from here on
   * @returns {Step}
   */
  step(token, state, { movementScale = 1, temperature = 1, hidden = [] } = {}) {
    /** @type {Record<string, Tensor>} */
    const given = {
      token: new Tensor(Int32Array.of(token), [1, 1], "int32"),
      movement_scale: new Tensor(Float32Array.of(movementScale), [], "float32"),
      temperature: new Tensor(Float32Array.of(temperature), [], "float32"),
      ...state,
    };
    if (hidden.length > 0 && given["visible"]) {
      const { data, shape } = given["visible"].whole();
      given["visible"] = new Tensor(data.map((seen, i) => (hidden.includes(i) ? 0 : seen)), shape, "bool");
    }
    const values = new Map(this.constants);
    for (const input of this.graph.inputs) values.set(input.value, tensor(given[input.name]));
    /** @param {Item} item @returns {Value} */
    const read = (item) => (typeof item === "number" ? item : (values.get(item) ?? WORDS[item] ?? missing(item)));
    for (const node of this.graph.nodes) {
      const operation = OPERATIONS[node.op];
      if (operation) values.set(node.out, operation(node.in.map(read), node, (item) => Number(read(item))));
    }
    return this.#collected((name) => tensor(read(name)).whole());
  }

  /** @param {(name: string) => Tensor} find @returns {Step} */
  #collected(find) {
    /** @type {Record<string, Tensor>} */
    const state = {};
    /** @type {Record<string, Seen>} */
    const observed = {};
    let logits = new Float32Array();
    for (const { name, value, role } of this.graph.outputs) {
      const found = find(value);
      if (role === "logits") logits = Float32Array.from(found.data);
      else if (role === "state") state[name] = found;
      else observed[name] = { shape: found.shape, data: found.data };
    }
    return { logits, state: Object.freeze(state), observed };
  }
}

/** @param {string} name @returns {never} */
function missing(name) {
  throw new Error(`The graph has no value ${name}.`);
}
