// Events of the node (GET /v1/events) as entries of the log: members, placements, queries.

import { paths } from "./api.js";
import { partName } from "./format.js";

/** Calls `heard({at, kind, text, state})` for every event, and `broken(reason)` when the stream of events is cut, "" when it is back. */
export class Events {
  constructor(heard, broken) {
    Object.assign(this, { heard, broken, source: null });
    document.addEventListener("visibilitychange", () => (document.hidden ? this.stop() : this.start()));
  }

  start() {
    this.stop();
    if (document.hidden) return;
    const source = (this.source = new EventSource(paths.events()));
    source.addEventListener("open", () => this.broken(""));
    source.addEventListener("error", () => {
      this.broken("no events at present");
      // The browser tries again by itself, but not once it has had an answer that was no stream of events.
      if (source.readyState === EventSource.CLOSED) this.later = setTimeout(() => this.start(), 10_000);
    });
    for (const [kind, entry] of Object.entries(ENTRIES)) {
      source.addEventListener(kind, (message) => {
        const event = JSON.parse(message.data);
        const { text, state } = entry(event);
        this.heard({ at: event.at_ms, kind: WORDS[kind], text, state, event });
      });
    }
  }

  stop() {
    clearTimeout(this.later);
    this.source?.close();
    this.source = null;
  }
}

const WORDS = { membership: "member", placement: "placement", queries: "query", lost: "log" };
const CHANGES = {
  joined: "has joined",
  suspected: "is suspected",
  died: "is dead",
  "went-away": "went away",
  returned: "is back",
  left: "has left",
  updated: "describes itself anew",
};

const ENTRIES = {
  membership: ({ member, change, state }) => ({ text: `${member} ${CHANGES[change] ?? change}`, state }),
  placement: ({ query, operator, change, host, was, target, strategy, reason }) => {
    const name = `${query}: ${partName(operator, query)}`;
    const why = reason ? `: ${reason}` : "";
    if (change === "placed") return { text: `${name} placed at ${host} by ${strategy}${why}`, state: "placing" };
    if (change === "re-placed") return { text: `${name} moved from ${was} to ${host} by ${strategy}${why}`, state: "placing" };
    if (change === "moving") return { text: `${name} moves from ${host} to ${target}`, state: "placing" };
    if (change === "moved") return { text: `${name} moved from ${was} to ${host}`, state: "running" };
    if (change === "move-given-up") return { text: `${name} stays at ${host}: its move to ${target} was given up${why}`, state: "paused" };
    return { text: `${name} at ${host} ${change}${why}`, state: change };
  },
  queries: ({ query, state, reason }) => ({ text: `${query} ${state}${reason ? `: ${reason}` : ""}`, state }),
  lost: ({ count }) => ({ text: `${count} events were too many for this page`, state: "failed" }),
};
