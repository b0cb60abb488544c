// Activity of the chosen query: its batches, its waits with their reasons, and charts of both over time.

import { el, keep, say } from "./dom.js";
import { bytes, count, moveText, partName, plural, span } from "./format.js";
import { LIVE } from "./model.js";
import { SmallChart } from "./small_chart.js";

const SHOWN_MS = 30 * 60_000;
const LONG_S = 3;
const UNUSUAL = 1.5;

export class RunView {
  constructor(model, parent) {
    this.model = model;
    this.now = el("ul", { class: "now", "aria-label": "What the query does now" });
    this.charts = el("div", { class: "charts" });
    this.none = el("p", { class: "quiet" });
    this.box = el("div", { hidden: true }, this.now, this.charts, this.none);
    parent.append(this.box);
    this.rates = new SmallChart(this.charts, "Rows a second", { in: "read", out: "delivered" }, rate, { tick: count });
    this.lag = new SmallChart(this.charts, "Lag", { lag: "" }, span, { least: 1000 });
    this.batch = new SmallChart(this.charts, "Batch time", { batch: "" }, span, { least: 10 });
    this.held = new SmallChart(this.charts, "Back-pressure", { held: "" }, waiting, { tick: whole, least: 2 });
    model.on(["flows", "queryUsages", "chosen", "queries"], () => this.draw());
    this.draw();
  }

  draw() {
    const { model } = this;
    const series = model.queryUsages.get(model.query);
    this.box.hidden = !model.chosen || model.chosen.state === "unreachable";
    if (this.box.hidden) return;
    const over = !LIVE.has(model.chosen.state);
    const explanation = over ? null : model.explanations.get(model.query);
    keep(this.now, (explanation?.components ?? []).flatMap((part) => activity(part, model.query)), ({ key }) => key, () => el("li"), (item, { text, kind }) => {
      item.className = kind;
      say(item, text);
    });
    this.now.hidden = !this.now.childElementCount;
    const newest = series?.last?.at ?? 0;
    const recent = (points) => (over ? points : points.filter(({ at }) => at >= newest - SHOWN_MS));
    const [rates, ...states] = [series?.rates() ?? [], ...["lag", "batch", "held"].map((name) => series?.states(name) ?? [])].map(recent);
    const unwatched = over && [rates, ...states].every((points) => points.length < 2);
    this.charts.hidden = unwatched;
    this.none.hidden = !unwatched;
    say(this.none, unwatched ? "It was over before there were figures for charts." : "");
    const none = over ? "No figures." : "The first figures take some seconds.";
    this.rates.show(rates, none);
    this.lag.show(states[0], over ? none : "No operator has a watermark yet.");
    this.batch.show(states[1], over ? none : "No batch is done yet.");
    this.held.show(states[2], none);
  }
}

/** A long batch, a move to another node, and the reason why a component waits. */
function activity(part, query) {
  const name = `${part.kind === "sink" ? "sink" : partName(part.id, query)} at ${part.node || "no node"}`;
  const found = [];
  // The card shows ordinary batches: a line that appears and disappears every few seconds would move the page.
  if (part.under_way_s !== null && part.under_way_s >= Math.max(LONG_S, (UNUSUAL * (part.batch_ms ?? 0)) / 1000)) {
    const read = part.under_way_rows ? `${plural(count(part.under_way_rows), "row")}, ${bytes(part.under_way_bytes)} read so far` : "nothing read yet";
    const usual = part.batch_ms === null ? "its first" : `batches take ${span(part.batch_ms)} on the average`;
    found.push({ key: `batch ${part.id}`, kind: "batch", text: `${name}: a batch has been under way for ${span(1000 * part.under_way_s)}, ${read}; ${usual}.` });
  }
  if (part.move) found.push({ key: `move ${part.id}`, kind: "moves", text: `${name}: ${moveText(part.move)}.` });
  if (part.reason && part.kind !== "sink") found.push({ key: `reason ${part.id}`, kind: "waits", text: `${name} waits: ${part.reason}.` });
  return found;
}

const rate = (value) => `${count(value)}/s`;
const waiting = (value) => plural(value, "operator waits", "operators wait");
const whole = (value) => (Number.isInteger(value) ? String(value) : "");
