// The grid of the task `navigation`: which steps are possible, where they lead, and what each cell holds.
// The rules are those of tasks/navigation.py and tasks/walls.py; tests compare the two.

import { chosen, randomStream } from "./random.js";

/** @typedef {number[]} Cell the coordinates of a cell, each from 0 to grid - 1 */
/** @typedef {{dims: number, grid: number, edges: string, p_empty: number, n_objects: number, max_run: number, steps: number}} GridSettings */

export class GridWorld {
  /** @param {GridSettings & {start: number[], contents: number[]}} world */
  constructor(world) {
    this.dims = world.dims;
    this.grid = world.grid;
    this.edges = world.edges;
    this.maxRun = world.max_run;
    this.start = world.start;
    this.contents = world.contents;
  }

  /** The actions that do not lead into a wall: 2·axis forwards, 2·axis + 1 backwards. @param {Cell} cell */
  possible(cell) {
    const actions = [];
    for (let action = 0; action < 2 * this.dims; action++) {
      const at = cell[action >> 1] + (action % 2 ? -1 : 1);
      if (this.edges === "torus" || (at >= 0 && at < this.grid)) actions.push(action);
    }
    return actions;
  }

  /** Where an action leads. @param {Cell} cell @param {number} action @returns {Cell} */
  follow(cell, action) {
    const reached = cell.slice();
    reached[action >> 1] += action % 2 ? -1 : 1;
    if (this.edges === "torus") reached[action >> 1] = (reached[action >> 1] + this.grid) % this.grid;
    return reached;
  }

  /** One word per cell; cells are equal when their words are. @param {Cell} cell */
  key(cell) {
    return cell.join(",");
  }

  /** The token of what a cell holds. @param {Cell} cell */
  content(cell) {
    let index = 0;
    for (let axis = this.dims - 1; axis >= 0; axis--) index = index * this.grid + cell[axis];
    return this.contents[index];
  }

  /** The action that undoes another one. @param {number} action */
  inverse(action) {
    return action ^ 1;
  }

  /**
   * A random walk of the task: a direction among the possible ones, kept for 1 to maxRun steps or until a wall.
   * @param {Cell} cell @param {number} steps @param {() => number} random
   */
  wander(cell, steps, random) {
    const actions = [];
    while (actions.length < steps) {
      const ways = this.possible(cell);
      const action = ways[chosen(random(), ways.length)];
      for (let left = 1 + chosen(random(), this.maxRun); left > 0 && actions.length < steps; left--) {
        if (!this.possible(cell).includes(action)) break;
        cell = this.follow(cell, action);
        actions.push(action);
      }
    }
    return actions;
  }
}

/**
 * A world drawn in the page: what it holds is drawn for every cell, which gives the same distribution as drawing it at
 * the first visit.
 * @param {GridSettings} settings @param {number} empty the token of an empty cell @param {number} seed
 */
export function drawGrid(settings, empty, seed) {
  const random = randomStream(seed);
  const start = Array.from({ length: settings.dims }, () => chosen(random(), settings.grid));
  const contents = Array.from({ length: settings.grid ** settings.dims }, () => drawContent(random(), settings, empty));
  return new GridWorld({ ...settings, start: settings.edges === "torus" ? start.map(() => 0) : start, contents });
}

/**
 * What a place holds, from one uniform number: nothing with probability p_empty, else one of the objects.
 * @param {number} uniform @param {{p_empty: number, n_objects: number}} settings @param {number} empty
 */
export function drawContent(uniform, settings, empty) {
  if (uniform < settings.p_empty) return empty;
  return empty + 1 + chosen((uniform - settings.p_empty) / Math.max(1 - settings.p_empty, 1e-12), settings.n_objects);
}
