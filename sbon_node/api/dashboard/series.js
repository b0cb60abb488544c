// The network usage of a query over time: sums at moments, from the history its leader keeps, and what it said last. Bounded.

const MOST_POINTS = 900;
const RECENT_POINTS = 400;
const LEAST_MS = 8000;

/** Where there are too many, every other one goes of those that are not recent. */
export function thinned(points) {
  if (points.length <= MOST_POINTS) return points;
  const older = points.length - RECENT_POINTS;
  return points.filter((_, i) => i >= older || i % 2 === 0);
}

/** A point as the charts take it: `at`, sums of bytes x latency and of rows, and how the query went then, null for not known. */
function pointOf({ at_ms, byte_ms, baseline_byte_ms, rows_in = null, rows_out = null, lag_ms = null, batch_ms = null, held_back = null }) {
  return { at: at_ms, placed: byte_ms, whole: baseline_byte_ms, in: rows_in, out: rows_out, lag: lag_ms, batch: batch_ms, held: held_back };
}

export class Series {
  points = [];
  /** The time of the newest point of the leader's history: only later ones have to be asked for. */
  known = -1;

  /** Takes a QueryUsage: the points of its history that are new, and what it says now. */
  add(queryUsage) {
    const { at_ms, byte_ms, baseline_byte_ms, history } = queryUsage;
    const kept = new Map(this.points.map((point) => [point.at, point]));
    for (const point of [...history, queryUsage.now ?? { at_ms, byte_ms, baseline_byte_ms }]) kept.set(point.at_ms, pointOf(point));
    this.known = Math.max(this.known, history.at(-1)?.at_ms ?? -1);
    this.points = thinned([...kept.values()].sort((a, b) => a.at - b.at));
  }

  /**
   * Network usage in bytes over time, `{at, placed, whole}`: what the sums grew by, over some seconds at least, divided by that time. A sum
   * that shrinks (a node that counted is away) says nothing.
   */
  usage() {
    return this.grown(["placed", "whole"], (grown, time) => grown / time);
  }

  /** Rows a second, `{at, in, out}`, likewise. */
  rates() {
    return this.grown(["in", "out"], (grown, time) => (1000 * grown) / time);
  }

  /** Progress at each point, `{at, lag, batch, held}`, for points at which all of `names` are known. */
  states(...names) {
    return this.points.filter((point) => names.every((name) => point[name] !== null));
  }

  grown(names, share) {
    const found = [];
    for (let i = 1, j = 0; i < this.points.length; i++) {
      const here = this.points[i];
      while (j + 1 < i && here.at - this.points[j + 1].at >= LEAST_MS) j += 1;
      const before = this.points[j];
      const time = here.at - before.at;
      if (time < 1000 || names.some((name) => here[name] === null || before[name] === null || here[name] < before[name])) continue;
      found.push({ at: here.at, ...Object.fromEntries(names.map((name) => [name, share(here[name] - before[name], time)])) });
    }
    return found;
  }

  get last() {
    return this.points.at(-1);
  }
}
