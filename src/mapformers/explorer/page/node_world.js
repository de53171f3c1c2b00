// Worlds whose places are numbered: graphs of one's own (tasks/graph.py) and families (tasks/family_tree.py).

import { chosen } from "./random.js";

export class NodeWorld {
  /**
   * @param {{exits: Record<number, number>[], contents: number[], start: number, names?: string[]}} world
   *   exits: for each place, action -> the place to which it leads
   */
  constructor(world) {
    this.exits = world.exits;
    this.contents = world.contents;
    this.start = world.start;
    this.names = world.names ?? world.exits.map((_, index) => String(index));
  }

  /** @param {number} place */
  possible(place) {
    return Object.keys(this.exits[place]).map(Number);
  }

  /** @param {number} place @param {number} action */
  follow(place, action) {
    return this.exits[place][action];
  }

  /** @param {number} place */
  key(place) {
    return String(place);
  }

  /** @param {number} place */
  content(place) {
    return this.contents[place];
  }

  /** An action that leads back, if there is one. @param {number} from @param {number} to */
  wayBack(from, to) {
    return this.possible(to).find((action) => this.follow(to, action) === from);
  }

  /** @param {number} place @param {number} steps @param {() => number} random */
  wander(place, steps, random) {
    const actions = [];
    for (let step = 0; step < steps; step++) {
      const ways = this.possible(place);
      const action = ways[chosen(random(), ways.length)];
      place = this.follow(place, action);
      actions.push(action);
    }
    return actions;
  }
}

/**
 * A family as a world: relations lead from person to person.
 * @param {{relatives: number[][], contents: number[], start: number}} family
 */
export function familyWorld(family) {
  const exits = family.relatives.map((of) => {
    /** @type {Record<number, number>} */
    const ways = {};
    of.forEach((person, relation) => {
      if (person >= 0) ways[relation] = person;
    });
    return ways;
  });
  return new NodeWorld({ exits, contents: family.contents, start: family.start });
}
