// What has happened so far, as tokens. A walk goes step by step in a world; a string is typed token by token.

/** @typedef {{action: number, place: any, key: string, content: number, first: number}} Step first: the step of the first visit */

export class Walk {
  /** @param {any} world a GridWorld or NodeWorld */
  constructor(world) {
    this.world = world;
    /** @type {Step[]} */
    this.steps = [];
    this.revealed = true;
  }

  get place() {
    return this.steps.length ? this.steps[this.steps.length - 1].place : this.world.start;
  }

  /** The actions that are possible now. @returns {number[]} */
  possible() {
    return this.world.possible(this.place);
  }

  /** Go to the next place, whose content stays covered until it is revealed. @param {number} action */
  go(action) {
    const place = this.world.follow(this.place, action);
    const key = this.world.key(place);
    const before = this.steps.findIndex((step) => step.key === key);
    const first = before < 0 ? this.steps.length : before;
    this.steps.push({ action, place, key, content: this.world.content(place), first });
    this.revealed = false;
  }

  reveal() {
    this.revealed = true;
  }

  /** Take back the reveal and the step before it. */
  undo() {
    this.steps.pop();
    this.revealed = true;
  }

  /** a₁ o₁ a₂ o₂ …; the last o is missing until it is revealed. */
  tokens() {
    const tokens = this.steps.flatMap((step) => [step.action, step.content]);
    return this.revealed ? tokens : tokens.slice(0, -1);
  }

  /** The step that a token belongs to. @param {number} index */
  stepOf(index) {
    return index >> 1;
  }

  /** Whether a step leads to a place that was observed before. @param {number} step */
  isRevisit(step) {
    return this.steps[step].first < step;
  }
}

export class Text {
  /** @param {number[]} tokens */
  constructor(tokens = []) {
    this.typed = tokens;
    this.revealed = true;
  }

  tokens() {
    return this.typed;
  }

  /** @param {number} token */
  type(token) {
    this.typed = [...this.typed, token];
  }

  undo() {
    this.typed = this.typed.slice(0, -1);
  }

  reveal() {}
}
