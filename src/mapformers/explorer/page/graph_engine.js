// The models in the page itself: each step of a model is a graph of small operations, which step_graph.js computes.

import { commonLength, firstOf, followedBy, signature } from "./engine.js";
import { drawGrid } from "./grid_world.js";
import { graphFrom } from "./own_graph.js";
import { StepGraph } from "./step_graph.js";

/** @typedef {import("./engine.js").Seen} Seen */
/** @typedef {import("./engine.js").Options} Options */

const EVERY = 32; // of older states only every 32nd is kept: each holds all keys and values up to it
const RECENT = 64;
const BREATH = 40; // milliseconds of computing after which the page may draw
const KEPT = ["delta_in", "coordinate", "theta", "delta", "attention"];

/** @param {any} data what bundle.py put into the page */
export function openGraphs(data) {
  return new GraphEngine(data);
}

export class GraphEngine {
  /** @param {any} data */
  constructor(data) {
    this.about = data.about;
    this.worlds = data.worlds;
    this.live = false;
    /** @type {any[]} */
    this.graphs = data.graphs.map((/** @type {any} */ graph) => new StepGraph(graph));
    this.known = this.graphs.map(() => ({ read: /** @type {string[]} */ ([]), seen: /** @type {Seen} */ ({ logits: [], layers: [] }), states: new Map() }));
    /** @type {Promise<any>} */
    this.last = Promise.resolve();
  }

  /** Readings wait for each other, so that no two of them share a cache. @param {number} model @param {number[]} tokens @param {Options} [options] @returns {Promise<Seen>} */
  read(model, tokens, options = {}) {
    this.last = this.last.catch(() => undefined).then(() => this.readNow(model, tokens, options));
    return this.last;
  }

  /** @param {number} model @param {number[]} tokens @param {Options} options @returns {Promise<Seen>} */
  async readNow(model, tokens, options) {
    if (!tokens.length) return { logits: [], layers: [] };
    if (options.attention === false) return (await this.steps(model, tokens, 0, this.graphs[model].emptyState(), options, null)).seen;
    const wanted = signature(tokens, options);
    const known = this.known[model];
    const same = commonLength(known.read, wanted);
    if (same === wanted.length) return firstOf(known.seen, same);
    for (const length of [...known.states.keys()]) if (length > same) known.states.delete(length);
    const from = Math.max(0, ...known.states.keys());
    const state = from ? known.states.get(from) : this.graphs[model].emptyState();
    const { seen: more } = await this.steps(model, tokens, from, state, options, known.states);
    const seen = followedBy(firstOf(known.seen, from), more);
    this.known[model] = { read: wanted, seen, states: known.states };
    return seen;
  }

  /**
   * Read tokens one after another, from a state on.
   * @param {number} model @param {number[]} tokens @param {number} from @param {any} state @param {Options} options
   * @param {Map<number, any> | null} states where states are kept
   */
  async steps(model, tokens, from, state, options, states) {
    const graph = this.graphs[model];
    const still = new Set(options.still ?? []);
    const layers = this.about.models[model].layers.map(() => /** @type {any} */ ({}));
    /** @type {number[][]} */
    const logits = [];
    let breath = performance.now();
    for (let index = from; index < tokens.length; index++) {
      const hidden = (options.hidden ?? []).filter((position) => position < index);
      const done = graph.step(tokens[index], state, { movementScale: still.has(tokens[index]) ? 0 : 1, temperature: options.temperature ?? 1, hidden });
      state = done.state;
      logits.push(Array.from(numbersOf(done.logits)));
      layers.forEach((/** @type {any} */ layer, /** @type {number} */ number) => note(layer, done.observed, number, this.about.models[model].layers[number].heads, options.attention !== false));
      if (states) {
        states.set(index + 1, state);
        const old = index + 1 - RECENT;
        if (old % EVERY) states.delete(old);
      }
      if (performance.now() - breath > BREATH) {
        options.progress?.((index + 1 - from) / (tokens.length - from));
        await new Promise((resolve) => setTimeout(resolve));
        breath = performance.now();
      }
    }
    return { seen: { logits, layers }, state };
  }

  /** @param {string} split @param {number} seed */
  async world(split, seed) {
    const { task } = this.about;
    if (task.kind === "grid") {
      const world = drawGrid(task.splits[split], task.empty, seed);
      return { ...task.splits[split], start: world.start, contents: world.contents };
    }
    const worlds = this.worlds[split] ?? this.worlds.iid;
    return worlds[seed % worlds.length];
  }

  /** @param {string} question @param {any} asked @returns {Promise<any>} */
  async ask(question, asked) {
    if (question === "graph") return graphFrom(asked.world, this.about.task);
    throw new Error("This page has no Python behind it; open the run with `mapformers explore` for that.");
  }
}

/** The numbers of a tensor, or of a plain array. @param {any} tensor @returns {ArrayLike<number>} */
function numbersOf(tensor) {
  return tensor.data ?? tensor;
}

/** Add the row of one token to what was seen of a layer. @param {any} layer @param {any} observed @param {number} number @param {number} heads @param {boolean} attention */
function note(layer, observed, number, heads, attention) {
  for (const name of KEPT) {
    const tensor = observed[`layer${number}.${name}`];
    if (!tensor || (name === "attention" && !attention)) continue;
    const row = Array.from(numbersOf(tensor));
    if (name !== "attention") (layer[name] ??= []).push(row);
    else {
      layer.attention ??= Array.from({ length: heads }, () => []);
      const keys = row.length / heads;
      for (let head = 0; head < heads; head++) layer.attention[head].push(row.slice(head * keys, (head + 1) * keys));
    }
  }
}
