// The chosen query's network usage, against sending all rows to its consumer; and what that came to.

import { Chart } from "./chart.js";
import { el, say, svg } from "./dom.js";
import { bytes, clock } from "./format.js";
import { LIVE } from "./model.js";

const SHOWN_MS = 15 * 60_000;
const LINES = { placed: "as placed", whole: "all rows sent to the consumer" };

export class QueryUsageView {
  constructor(model, parent) {
    this.model = model;
    this.values = Object.fromEntries(Object.keys(LINES).map((name) => [name, el("b")]));
    this.when = el("span", { class: "quiet" });
    const key = (name) => el("span", { class: "key" }, sample(name), `${LINES[name]} `, this.values[name]);
    this.keys = el("p", { class: "keys" }, ...Object.keys(LINES).map(key), this.when);
    this.note = el("p", { class: "quiet" });
    this.total = el("p", { class: "total" });
    this.box = el("div", { class: "chart-box" });
    parent.append(this.keys, this.box, this.note, this.total);
    this.chart = new Chart(this.box, Object.keys(LINES), "Network usage over time", (chosen, point) => this.read(chosen, point));
    model.on(["queryUsages", "chosen", "queries", "refused"], () => this.draw());
    this.draw();
  }

  draw() {
    const series = this.model.queryUsages.get(this.model.query);
    const over = !LIVE.has(this.model.chosen?.state);
    const all = series?.usage() ?? [];
    const points = over ? all : all.filter((point) => point.at >= all.at(-1).at - SHOWN_MS);
    const drawn = points.length > 1;
    this.box.hidden = this.keys.hidden = !drawn;
    say(this.note, this.model.refusals.get("queryUsage") ?? (drawn || !this.model.query ? "" : over && series ? "It was over before there were figures for a chart." : "Watching; the first figures take some seconds."));
    this.note.hidden = !this.note.textContent;
    say(this.total, series?.last ? totals(series.last, over) : "");
    if (drawn) this.chart.show(points);
  }

  /** Shows what the cursor is at, or the newest; returns it in words. */
  read(chosen, point) {
    for (const name of Object.keys(LINES)) say(this.values[name], bytes(point[name]));
    say(this.when, chosen ? `at ${clock(point.at)}` : "");
    const texts = Object.entries(LINES).map(([name, word]) => `${word} ${bytes(point[name])}`);
    return `${clock(point.at)}: ${texts.join(", ")}`;
  }
}

/** Bytes x latency: `byte_ms` over a thousand are bytes in transit for a second. */
function totals({ placed, whole }, over) {
  if (!whole) return placed ? `${over ? "In all" : "So far"} ${bytes(placed / 1000)}·s.` : "";
  const saved = 100 * (1 - placed / whole);
  const size = Math.abs(saved);
  const figure = size.toFixed(size > 99 && size < 100 ? 1 : 0);
  const less = size < 0.5 ? "as much" : `${figure} % ${saved > 0 ? "less" : "more"}`;
  return `${over ? "In all" : "So far"} ${bytes(placed / 1000)}·s of bytes x latency, against ${bytes(whole / 1000)}·s with all rows sent to the consumer: ${less}.`;
}

const sample = (name) => svg("svg", { viewBox: "0 0 22 8", width: 22, height: 8, "aria-hidden": "true" }, svg("path", { class: `line ${name}`, d: "M1,4 H21" }));
