// Polling: one request of a kind at a time, pauses between them, longer ones after failures, none while the page is hidden.

import { Unreachable, get } from "./api.js";

const LONGEST_PAUSE_MS = 30_000;

/** Asks for `path()` every `everyMs` and hands what comes to `got`; a path of null is nothing to ask for at present. */
export class Feed {
  constructor(everyMs, path, got, failed = () => {}) {
    Object.assign(this, { everyMs, path, got, failed });
    this.failures = 0;
    this.timer = 0;
    this.asking = null;
  }

  start() {
    this.stop();
    this.ask();
  }

  stop() {
    clearTimeout(this.timer);
    this.asking?.abort();
    this.asking = null;
  }

  async ask() {
    const path = this.path();
    const asking = (this.asking = new AbortController());
    try {
      const value = path === null ? null : await answer(path, asking.signal);
      if (this.asking === asking && value) this.take(value, path);
    } finally {
      if (this.asking === asking) {
        this.asking = null;
        this.timer = setTimeout(() => this.ask(), this.pauseMs());
      }
    }
  }

  take({ value, error }, path) {
    this.failures = error ? this.failures + 1 : 0;
    if (error) {
      this.line?.failed(this, error);
      this.failed(error, path);
    } else {
      this.line?.answered();
      this.got(value, path);
    }
  }

  /** Doubles with each failure; a little chance keeps many pages from asking in step. */
  pauseMs() {
    const pause = Math.min(this.everyMs * 2 ** Math.min(this.failures, 6), LONGEST_PAUSE_MS);
    return pause * (0.9 + 0.2 * Math.random());
  }
}

/** The value, or the error: what a view makes of it is none of the request's failures. */
async function answer(path, signal) {
  try {
    return { value: await get(path, signal) };
  } catch (error) {
    return { error };
  }
}

/** All feeds of the page, as one line to the node: up, down, or paused while the page is hidden. `changed(state, reason)`. */
export class Line {
  constructor(feeds, changed) {
    this.feeds = feeds;
    this.changed = changed;
    this.state = "";
    this.heardMs = 0;
    for (const feed of feeds) feed.line = this;
    document.addEventListener("visibilitychange", () => this.look());
  }

  /** Starts what is to run, as long as somebody looks. */
  look() {
    for (const feed of this.feeds) document.hidden ? feed.stop() : feed.start();
    this.enter(document.hidden ? "paused" : this.heardMs ? "live" : "connecting");
  }

  answered() {
    this.heardMs = Date.now();
    this.enter("live");
  }

  failed(feed, error) {
    if (error instanceof Unreachable) this.enter("lost", error.message);
    else if (error.code === "starting" || error.code === "stopping") this.enter("lost", error.message);
    else this.answered();
  }

  enter(state, reason = "") {
    if (state === this.state && reason === this.reason) return;
    const back = this.state === "lost" && state === "live";
    this.state = state;
    this.reason = reason;
    this.changed(state, reason);
    if (back) this.hurry();
  }

  /** The node answers again: end the long pause. */
  hurry() {
    for (const feed of this.feeds) if (feed.failures && !feed.asking) feed.start();
  }
}
