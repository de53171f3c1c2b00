// The models in the page itself: each step of a model is a graph of small operations (step_graph.js).

import { commonLength, firstOf, followedBy, signature } from "./engine.js";
import { drawGrid } from "./grid_world.js";

/** @typedef {import("./engine.js").Seen} Seen */
/** @typedef {import("./engine.js").Options} Options */

/** @param {any} data what bundle.py put into the page */
export async function openGraphs(data) {
  const { StepGraph } = await import("./step_graph.js");
  return new GraphEngine(data, data.graphs.map((/** @type {any} */ graph) => new StepGraph(graph)));
}

export class GraphEngine {
  /** @param {any} data @param {any[]} graphs */
  constructor(data, graphs) {
    this.about = data.about;
    this.data = data;
    this.graphs = graphs;
    this.live = false;
  }
}
