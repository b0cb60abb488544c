// The bill of a query over time: sums at moments, from the node's own short history and from what this page saw since. Bounded.

const MOST_POINTS = 900;
const LEAST_MS = 8000;

export class Series {
  points = [];

  /** Takes a Bill: its history, where that reaches back further, and what it says now. */
  add(bill) {
    const now = { at: bill.at_ms, placed: bill.byte_ms, whole: bill.whole_byte_ms };
    const known = new Map(this.points.map((point) => [point.at, point]));
    for (const { at_ms, byte_ms, whole_byte_ms } of bill.history) known.set(at_ms, { at: at_ms, placed: byte_ms, whole: whole_byte_ms });
    known.set(now.at, now);
    this.points = [...known.values()].sort((a, b) => a.at - b.at).slice(-MOST_POINTS);
  }

  /**
   * Bytes in flight over time, `{at, placed, whole}`: what the sums grew by, over some seconds at least, divided by that time. A sum
   * that shrinks (a node that counted is away) says nothing.
   */
  inFlight() {
    const found = [];
    for (let i = 1, j = 0; i < this.points.length; i++) {
      const here = this.points[i];
      while (j + 1 < i && here.at - this.points[j + 1].at >= LEAST_MS) j += 1;
      const before = this.points[j];
      const time = here.at - before.at;
      if (time < 1000 || here.placed < before.placed || here.whole < before.whole) continue;
      found.push({ at: here.at, placed: (here.placed - before.placed) / time, whole: (here.whole - before.whole) / time });
    }
    return found;
  }

  get last() {
    return this.points.at(-1);
  }
}
