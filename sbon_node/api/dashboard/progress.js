// Progress of the chosen query: a bar if its sources have an end, and rows in and out, lag and time left.

import { el, say, set } from "./dom.js";
import { factList, showFacts } from "./facts.js";
import { count, plural, rows, span } from "./format.js";

const MOST_NAMED = 3;

export class ProgressView {
  constructor(model, parent) {
    this.model = model;
    this.fill = el("div", { class: "fill" });
    this.bar = el("div", { class: "bar", role: "progressbar", "aria-label": "Progress", "aria-valuemin": 0, "aria-valuemax": 100 }, this.fill);
    this.text = el("p", { class: "far" });
    this.facts = factList();
    this.box = el("div", { class: "progress", hidden: true }, this.text, this.bar, this.facts);
    parent.append(this.box);
    model.on(["infos", "chosen", "queries", "flows"], () => this.draw());
  }

  draw() {
    const { model } = this;
    const info = model.chosen ? model.infos.get(model.query) : null;
    this.box.hidden = !info?.progress || info.state === "unreachable";
    if (this.box.hidden) return;
    const shown = far(info);
    const percent = shown.share === null ? null : floored(shown.share);
    say(this.text, shown.text);
    this.bar.hidden = shown.kind === "none";
    set(this.bar, { class: `bar ${shown.kind}`, "aria-valuenow": percent, "aria-valuetext": shown.text });
    this.fill.style.width = shown.share === null ? "100%" : `${(100 * shown.share).toFixed(1)}%`;
    const { rows_in, rows_out, rows_in_s, rows_out_s, lag_ms, left_s } = info.progress;
    const parts = model.explanations.get(model.query)?.components ?? [];
    showFacts(this.facts, [
      ["Rows read", withRate(rows_in, rows_in_s)],
      ["Rows delivered", `${withRate(rows_out, rows_out_s)}${still(info, parts)}`],
      ["Lag", lag_ms === null ? null : span(lag_ms)],
      ["Time left", left_s === null ? null : `about ${span(1000 * left_s)}`],
    ]);
  }
}

/** `{kind, share, text}` of a QueryInfo: how its bar looks, how full it is (null for no end, or not known), and the same in words. */
export function far({ state, reason, progress }) {
  const { read_share: share, endless } = progress;
  const read = share === null ? "" : `${floored(share)} % of the sources read`;
  if (state === "finished") return { kind: "done", share: 1, text: "Finished: all of the sources read" };
  if (state === "placing") return { kind: "unknown", share: null, text: "Starting" };
  if (state !== "running") return { kind: share === null ? "none" : state === "failed" ? "bad" : "done", share, text: `${capital(state)}${read ? ` with ${read}` : ""}` };
  const waits = reason ? ", waiting" : "";
  const kind = reason ? "waits" : "good";
  if (share !== null) return { kind, share, text: `${read}${waits}` };
  if (endless.length) return { kind: `endless ${kind}`, share: null, text: `No end: ${named(endless)}${waits}` };
  return { kind: "unknown", share: null, text: `Share of the sources read is not known${waits}` };
}

/** Never 100 before all is read. */
const floored = (share) => Math.floor(100 * share + 1e-9);
const capital = (word) => word.charAt(0).toUpperCase() + word.slice(1);
const named = (sources) => (sources.length > MOST_NAMED ? plural(sources.length, "source") : sources.join(", "));
const withRate = (number, rate) => `${count(number)}${rate === null ? "" : `, ${rows(rate)}`}`;

/** The reason for a rate of zero, so that it does not look like a hang. */
function still({ state, reason, progress }, parts) {
  if (state !== "running" || progress.rows_out_s === null || progress.rows_out_s >= 0.05) return "";
  if (reason) return " while it waits";
  const longest = Math.max(0, ...parts.map((part) => part.under_way_s ?? 0));
  return longest >= 1 ? `, a batch under way for ${span(1000 * longest)}` : "";
}
