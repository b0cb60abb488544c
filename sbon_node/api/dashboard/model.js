// The state of the page: the last answers of its node, the user's choice, and values derived from both. Views listen to its topics.

import { thinned } from "./series.js";

export const LIVE = new Set(["placing", "running"]);
const THERE = new Set(["alive", "suspect"]);

/** Whether a component of a plan will send no more rows. */
export function isOver(part) {
  return part.ended || ["ended", "over"].includes(part.state);
}

/** Rate of a link of an Explanation, bytes a second: measured, or as planned; zero from a component that has ended. */
export function rateOf(link, part) {
  if (part && isOver(part)) return { bytesS: 0, measured: true };
  return { bytesS: link.measured_bytes_s ?? link.bytes_s, measured: link.measured_bytes_s !== null };
}

export class Model extends EventTarget {
  status = null;
  /** Use of the machine by the page's own node: points, the oldest first. */
  usage = [];
  members = [];
  streams = [];
  queries = [];
  /** Whether the list of queries has come. */
  heard = false;
  /** The last Explanation of a query, by its id: of the chosen one, and of all that are live. */
  explanations = new Map();
  /** The QueryInfo and the series of the network usage of queries that were chosen. */
  infos = new Map();
  queryUsages = new Map();
  query = "";
  node = "";
  /** The node that is pointed at, or has the focus on the map; empty where none is. */
  preview = "";
  /** Why there is no answer about the chosen query, by topic. */
  refusals = new Map();

  changed(...topics) {
    for (const topic of topics) this.dispatchEvent(new Event(topic));
  }

  on(topics, listener) {
    for (const topic of topics) this.addEventListener(topic, listener);
  }

  setStatus(status) {
    this.status = status;
    if (!this.node) this.node = status.name;
    this.changed("status");
  }

  addUsage(points) {
    const last = this.usage.at(-1)?.at_ms ?? 0;
    this.usage = thinned([...this.usage, ...points.filter((point) => point.at_ms > last)]);
    this.changed("usage");
  }

  setMembers(members) {
    this.members = members;
    this.changed("members");
  }

  setStreams(streams) {
    this.streams = streams;
    this.changed("streams");
  }

  /** Live ones first, then the newest. */
  setQueries(queries) {
    this.heard = true;
    const rank = (query) => (LIVE.has(query.state) ? 0 : 1);
    this.queries = queries.sort((a, b) => rank(a) - rank(b) || b.submitted_ms - a.submitted_ms || (a.id < b.id ? -1 : 1));
    const live = new Set(this.queries.filter((query) => LIVE.has(query.state)).map((query) => query.id));
    for (const id of this.explanations.keys()) if (!live.has(id) && id !== this.query) this.explanations.delete(id);
    if (!this.query && this.queries.length) this.chooseQuery(this.queries[0].id);
    this.changed("queries", "flows");
  }

  setExplanation(id, explanation) {
    this.explanations.set(id, explanation);
    this.refusals.delete("plan");
    this.changed("flows");
  }

  chooseQuery(id) {
    if (id === this.query) return;
    const live = this.queries.find((query) => query.id === this.query && LIVE.has(query.state));
    if (!live) this.explanations.delete(this.query);
    this.query = id;
    this.refusals.clear();
    this.changed("chosen", "queries", "flows");
  }

  chooseNode(name) {
    this.node = name;
    this.changed("node");
  }

  /** The chosen query as it is listed; undefined where it is not, or no longer. */
  get chosen() {
    return this.queries.find((query) => query.id === this.query);
  }

  isLive(id) {
    return this.queries.some((query) => query.id === id && LIVE.has(query.state));
  }

  isThere(name) {
    return this.members.some((member) => member.name === name && THERE.has(member.state));
  }

  member(name) {
    return this.members.find((member) => member.name === name);
  }

  /** The explanations that the map shows: of what is live, and of the chosen query even when it is over. */
  shown() {
    return [...this.explanations].filter(([id]) => id === this.query || this.isLive(id)).map(([, explanation]) => explanation);
  }

  /** The operators of the shown queries that are somewhere: components of explanations. */
  operators() {
    return this.shown().flatMap(({ components }) => components.filter(({ kind, node }) => kind === "operator" && node));
  }

  /** The query whose result a source is, as it is listed; undefined if it is none's, or that is gone. */
  queryOf({ connector, options }) {
    return connector === "query" ? this.queries.find(({ uid }) => uid === options?.query) : undefined;
  }

  /** Components at each node: name to `{source, operator, sink}`, lists of components, each with its query. */
  parts() {
    const found = new Map();
    const at = (node) => {
      if (!found.has(node)) found.set(node, { source: [], operator: [], sink: [] });
      return found.get(node);
    };
    for (const stream of this.streams) {
      for (const { source, state } of stream.sources) {
        const resultOf = this.queryOf(source)?.id ?? "";
        at(source.node).source.push({ id: `${source.stream}/${source.name}`, state, query: "", resultOf });
      }
    }
    for (const explanation of this.shown()) {
      for (const part of explanation.components) {
        if (part.kind !== "source" && part.node) at(part.node)[part.kind].push({ ...part, query: explanation.query });
      }
    }
    return found;
  }

  /**
   * Traffic between nodes, summed over the shown queries: a list of `{source, target, latencyMs, bytesS, measured, chosen}`,
   * rates in bytes a second, `chosen` of the chosen query alone (null if it does not use the link), `measured` if all rates are.
   */
  traffic() {
    const found = new Map();
    for (const explanation of this.shown()) {
      const over = !LIVE.has(explanation.state);
      const byId = new Map(explanation.components.map((part) => [part.id, part]));
      for (const link of explanation.links) {
        const [source, target] = [link.source_node, link.target_node];
        if (source === target || !source || !target) continue;
        const key = JSON.stringify([source, target]);
        const total = found.get(key) ?? { key, source, target, latencyMs: null, bytesS: 0, measured: true, chosen: null };
        const { bytesS, measured } = over ? { bytesS: 0, measured: true } : rateOf(link, byId.get(link.stream));
        total.latencyMs ??= link.latency_ms;
        total.bytesS += bytesS;
        total.measured &&= measured;
        if (explanation.query === this.query) total.chosen = (total.chosen ?? 0) + bytesS;
        found.set(key, total);
      }
    }
    return [...found.values()];
  }
}
