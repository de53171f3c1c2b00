// The models behind `mapformers explore`: every question is a POST to the server that served this page.

import { commonLength, firstOf, followedBy, signature } from "./engine.js";

/** @typedef {import("./engine.js").Seen} Seen */
/** @typedef {import("./engine.js").Options} Options */

export class ServerEngine {
  /** @param {string} key the secret of the server */
  constructor(key) {
    this.key = key;
    this.live = true;
    /** @type {any} */
    this.about = null;
    /** @type {{read: string[], seen: Seen}[]} */
    this.known = [];
    /** @type {{asked: any, resolve: (answer: any) => void, reject: (error: Error) => void}[]} */
    this.waiting = [];
  }

  async open() {
    this.about = await this.ask("about", {});
    this.known = this.about.models.map(() => ({ read: [], seen: { logits: [], layers: [] } }));
    return this;
  }

  /** @param {number} model @param {number[]} tokens @param {Options} [options] @returns {Promise<Seen>} */
  async read(model, tokens, options = {}) {
    if (!tokens.length) return { logits: [], layers: [] };
    if (options.attention === false) return this.readSoon({ model, tokens, ...options, progress: undefined });
    const wanted = signature(tokens, options);
    const known = this.known[model];
    const same = commonLength(known.read, wanted);
    if (same === wanted.length) return firstOf(known.seen, same);
    const more = await this.readSoon({ model, tokens, from: same, ...options });
    more.logits = more.logits.map((/** @type {any} */ row) => (row.tokens ? whole(row, this.about.models[model].vocab) : row));
    const seen = followedBy(firstOf(known.seen, same), more);
    this.known[model] = { read: wanted, seen };
    return seen;
  }

  /** Readings that are asked for at the same moment go in one question: two at once would be in each other's way. @param {any} asked @returns {Promise<any>} */
  readSoon(asked) {
    if (!this.waiting.length) queueMicrotask(() => this.readNow());
    return new Promise((resolve, reject) => this.waiting.push({ asked, resolve, reject }));
  }

  async readNow() {
    const waiting = this.waiting;
    this.waiting = [];
    try {
      const { answers } = await this.ask("read", { readings: waiting.map(({ asked }) => asked) });
      waiting.forEach(({ resolve }, index) => resolve(answers[index]));
    } catch (error) {
      waiting.forEach(({ reject }) => reject(/** @type {Error} */ (error)));
    }
  }

  /** @param {string} split @param {number} seed */
  async world(split, seed) {
    return this.ask("world", { split, seed });
  }

  /** @param {string} question @param {any} asked @returns {Promise<any>} */
  async ask(question, asked) {
    const answer = await fetch(`/${question}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Explorer-Key": this.key },
      body: JSON.stringify(asked),
    });
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error);
    return found;
  }
}

/** A row of which only the likeliest tokens were told; all others are next to impossible. @param {{tokens: number[], values: number[]}} row @param {number} vocab */
function whole(row, vocab) {
  const logits = new Float32Array(vocab).fill(-30);
  row.tokens.forEach((token, rank) => (logits[token] = row.values[rank]));
  return logits;
}
