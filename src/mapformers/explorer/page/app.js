// The state of the page, and all that a key or a click can do to it. Every change reads the tokens and draws again.

import { fill, part } from "./dom.js";
import { GridWorld } from "./grid_world.js";
import { familyWorld, NodeWorld } from "./node_world.js";
import { randomStream } from "./random.js";
import { Text, Walk } from "./walk.js";

/** @typedef {import("./engine.js").Engine} Engine */
/** @typedef {import("./engine.js").Seen} Seen */

const REVEAL_AFTER = 900; // milliseconds until a covered place shows what it holds

export class App {
  /** @param {Engine} engine @param {(app: App) => void} draw */
  constructor(engine, draw) {
    this.engine = engine;
    this.draw = draw;
    this.about = engine.about;
    this.task = engine.about.task;
    this.shown = { model: 0, layer: 0, head: 0 };
    this.options = { hidden: new Set(/** @type {number[]} */ ([])), still: new Set(/** @type {number[]} */ ([])), temperature: 1 };
    this.split = "iid";
    this.seed = 1;
    /** @type {any} */
    this.raw = null;
    /** @type {any} */
    this.walk = new Text();
    this.cursor = -1;
    /** @type {Seen[]} */
    this.seen = this.about.models.map(() => ({ logits: [], layers: [] }));
    this.turn = 0; // of readings: a slow answer to an old question is dropped
    this.busy = false; // on the long walk, and how far it is
    this.progress = "";
    /** @type {number | undefined} */
    this.timer = undefined;
    this.revealsByItself = true;
    this.milliseconds = /** @type {number[]} */ ([]);
    this.moment = -1; // which snapshot of the training is shown; -1: the end
    this.finished = this.about.models.map((model) => model.layers);
    /** @type {any} */
    this.journey = null; // the result of the long walk and back
    /** @type {any} */
    this.certain = null; // what the logician says, in families
  }

  /** Walks have places; anything else is a string of tokens. */
  get walks() {
    return this.walk instanceof Walk;
  }

  /** A new world, and a recorded walk in it to begin with. @param {string} split @param {number} seed @param {number[]} [actions] */
  async enter(split, seed, actions) {
    this.split = split;
    this.seed = seed;
    this.raw = await this.engine.world(split, seed);
    this.begin(this.raw, actions);
    await this.update();
  }

  /** @param {any} raw @param {number[]} [actions] */
  begin(raw, actions) {
    this.raw = raw;
    this.journey = null;
    this.options.hidden.clear();
    if (this.task.kind === "grid") this.walk = new Walk(new GridWorld(raw));
    else if (this.task.kind === "graph") this.walk = new Walk(new NodeWorld({ ...raw, names: raw.nodes }));
    else if (this.task.kind === "family") this.walk = new Walk(familyWorld(raw));
    else this.walk = new Text(actions ?? raw.tokens.slice(0, this.task.kind === "copy" ? raw.tokens.length - 1 : raw.tokens.length));
    if (this.walks) {
      const recorded = actions ?? this.walk.world.wander(this.walk.world.start, 24, randomStream(this.seed));
      for (const action of recorded) {
        if (!this.walk.possible().includes(action)) break;
        this.walk.go(action);
      }
      this.walk.reveal();
    }
    this.cursor = this.walk.tokens().length - 1;
  }

  /** Go one step; a place that is still covered is revealed first. @param {number} action */
  async go(action) {
    if (!this.walks) return;
    this.walk.reveal();
    if (!this.walk.possible().includes(action)) {
      this.say("There is a wall.");
      return this.update();
    }
    this.walk.go(action);
    this.certain = null;
    this.toEnd();
    await this.update();
    this.revealSoon();
    if (this.task.kind === "family" && this.engine.live) this.askLogician();
  }

  async askLogician() {
    const tokens = this.walk.tokens();
    const asked = tokens.length % 2 ? tokens : tokens.slice(0, -1);
    const { steps } = this.walk;
    const [walked, certain] = [steps.length, await this.engine.ask("certain", { tokens: asked })];
    if (this.walk.steps !== steps || steps.length !== walked) return; // one step further by now
    this.certain = certain;
    this.redraw();
  }

  /** Type one token of a string. @param {number} token */
  async type(token) {
    this.walk.type(token);
    this.toEnd();
    await this.update();
  }

  revealSoon() {
    clearTimeout(this.timer);
    if (this.revealsByItself) this.timer = setTimeout(() => this.reveal(), REVEAL_AFTER);
  }

  async reveal() {
    clearTimeout(this.timer);
    if (!this.walks || this.walk.revealed) return;
    this.walk.reveal();
    const atEnd = this.cursor >= this.walk.tokens().length - 2;
    if (atEnd) this.toEnd();
    await this.update();
    this.sayVerdict();
  }

  async undo() {
    clearTimeout(this.timer);
    this.walk.undo();
    this.toEnd();
    await this.update();
  }

  async clear() {
    clearTimeout(this.timer);
    this.begin(this.raw, []);
    await this.update();
  }

  toEnd() {
    this.cursor = this.walk.tokens().length - 1;
  }

  isAtEnd() {
    return this.cursor === this.walk.tokens().length - 1;
  }

  /** Whether the place under the cursor does not show yet what it holds. */
  isCovered() {
    return this.walks && !this.walk.revealed && this.isAtEnd();
  }

  /** Look from an earlier token. @param {number} index */
  lookFrom(index) {
    this.cursor = index;
    this.redraw();
  }

  /** @param {number} index */
  async toggleHidden(index) {
    toggle(this.options.hidden, index);
    await this.update();
  }

  /** @param {number} token */
  async toggleStill(token) {
    toggle(this.options.still, token);
    await this.update();
  }

  /** @param {number} temperature */
  async setTemperature(temperature) {
    this.options.temperature = temperature;
    await this.update();
  }

  /** @param {Partial<{model: number, layer: number, head: number}>} shown */
  show(shown) {
    this.shown = { ...this.shown, ...shown };
    if (shown.model !== undefined) this.shown.layer = this.shown.head = 0;
    this.redraw();
  }

  /** The steps of which both models, or the one there is, have snapshots. @returns {number[]} */
  moments() {
    const [first, second] = this.about.models.map((model) => model.snapshots ?? []);
    return second ? first.filter((step) => second.includes(step)) : first;
  }

  /** Show the models as they were after some steps of training. @param {number} moment */
  async goTo(moment) {
    const steps = this.moments();
    this.moment = moment >= steps.length - 1 ? -1 : moment;
    const snapshot = this.moment < 0 ? undefined : steps[this.moment];
    for (let model = 0; model < this.about.models.length; model++) {
      this.about.models[model].layers = snapshot === undefined ? this.finished[model] : (await this.engine.ask("snapshot", { model, snapshot })).layers;
    }
    await this.update();
  }

  plainOptions() {
    const snapshot = this.moment < 0 ? undefined : this.moments()[this.moment];
    return { hidden: [...this.options.hidden], still: [...this.options.still], temperature: this.options.temperature, snapshot };
  }

  /** Let every model read the tokens, and draw what was seen. */
  async update() {
    const turn = ++this.turn;
    const tokens = this.walk.tokens();
    const began = performance.now();
    try {
      const seen = await Promise.all(this.about.models.map((_, model) => this.engine.read(model, tokens, this.plainOptions())));
      if (turn !== this.turn) return;
      this.seen = seen;
      this.trouble("");
    } catch (error) {
      this.trouble(error instanceof Error ? error.message : String(error));
      return;
    }
    this.draw(this);
    this.milliseconds.push(performance.now() - began);
  }

  /** Draw again what is known; while a token is still being read, all is drawn once that is done. */
  redraw() {
    if (this.seen.every((seen) => seen.logits.length === this.walk.tokens().length)) this.draw(this);
  }

  layerAbout() {
    return this.about.models[this.shown.model].layers[this.shown.layer];
  }

  /** The step under a token; -1 before the first. @param {number} index */
  stepAt(index) {
    return this.walks ? Math.min(index >> 1, this.walk.steps.length - 1) : -1;
  }

  /** The place under a token. @param {number} index */
  placeAt(index) {
    const step = this.stepAt(index);
    return step < 0 ? this.walk.world.start : this.walk.steps[step].place;
  }

  /** The word of the place of a token. @param {number} index */
  keyAt(index) {
    const step = this.stepAt(index);
    return step < 0 ? null : this.walk.steps[step].key;
  }

  /** What the token under the cursor attends to in a model: its last layer that attends, all heads together. @param {number} model */
  attentionRow(model) {
    const layers = this.seen[model]?.layers ?? [];
    const own = model === this.shown.model ? layers[this.shown.layer] : undefined;
    const layer = own?.attention ? own : [...layers].reverse().find((one) => one.attention);
    const heads = layer?.attention?.map((head) => head[this.questionToken()]).filter((row) => row != null);
    if (!heads || !heads.length) return null;
    if (model === this.shown.model && heads.length > 1) return heads[this.shown.head] ?? null;
    return Array.from(heads[0] ?? [], (_, key) => heads.reduce((sum, row) => sum + (row?.[key] ?? 0), 0) / heads.length);
  }

  /** The token whose prediction and attention are shown: the last action, or whatever is looked at. */
  questionToken() {
    if (this.walks && this.isAtEnd() && this.walk.revealed && this.cursor % 2) return this.cursor - 1;
    return this.cursor;
  }

  /** Attention summed over all tokens of a place. @param {number} model @returns {Map<string, {place: any, weight: number, token: number}>} */
  attentionByPlace(model) {
    const found = new Map();
    const row = this.attentionRow(model);
    if (!row) return found;
    row.forEach((weight, token) => {
      const key = this.walks ? this.keyAt(token) : String(token);
      if (key === null || weight < 0.002) return;
      const before = found.get(key) ?? { place: this.walks ? this.placeAt(token) : token, weight: 0, token, best: 0 };
      const top = weight > before.best;
      found.set(key, { ...before, weight: before.weight + weight, token: top ? token : before.token, best: top ? weight : before.best });
    });
    return found;
  }

  /** The true path in the plane, counted from the start, one point per token; null where there is none. */
  truePath() {
    if (this.task.kind !== "grid") return null;
    const at = [0, 0];
    const path = [[0, 0]];
    this.walk.tokens().slice(0, this.cursor + 1).forEach((/** @type {number} */ token, /** @type {number} */ index) => {
      if (index % 2 === 0 && token < 4) at[token >> 1] += token % 2 ? -1 : 1;
      path.push([...at]);
    });
    return path;
  }

  sayVerdict() {
    const step = this.walk.steps.length - 1;
    const { content } = this.walk.steps[step];
    const found = content === this.task.empty ? "nothing" : this.task.tokens[content];
    this.say(`Here is ${found}.${this.walk.isRevisit(step) ? " You have been here before." : ""}`);
  }

  /** Tell those who listen to the page. @param {string} sentence */
  say(sentence) {
    fill(part("says"), sentence);
  }

  /** @param {string} sentence */
  trouble(sentence) {
    part("trouble").hidden = !sentence;
    fill(part("trouble"), sentence);
  }
}

/** @template T @param {Set<T>} set @param {T} item */
function toggle(set, item) {
  if (!set.delete(item)) set.add(item);
}
