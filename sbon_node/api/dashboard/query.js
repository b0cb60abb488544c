// The chosen query in words: its text, its state, and what it was placed for.

import { badge, showBadge } from "./badge.js";
import { el, say } from "./dom.js";
import { factList, showFacts } from "./facts.js";
import { bytes, count, moment, ms, perSecond } from "./format.js";

export class QueryView {
  constructor(model, parent, title, note) {
    Object.assign(this, { model, title, note });
    this.state = badge();
    this.reason = el("p", { class: "reason" });
    this.sql = el("pre", { class: "sql", tabindex: 0, "aria-label": "Text of the query" }, el("code"));
    this.facts = factList();
    title.after(this.state);
    this.box = el("div", { hidden: true }, this.reason, this.sql, this.facts);
    parent.append(this.box);
    model.on(["queries", "chosen", "infos", "flows"], () => this.draw());
  }

  draw() {
    const listed = this.model.chosen;
    this.box.hidden = this.state.hidden = !listed;
    say(this.title, listed ? `Query ${listed.id}` : "Query");
    say(this.note, listed ? "" : this.model.query ? `there is no query ${this.model.query}, or not any longer` : "none is chosen");
    if (!listed) return;
    const info = this.model.infos.get(listed.id) ?? listed;
    const explanation = this.model.explanations.get(listed.id);
    const sink = explanation?.parts.find((part) => part.kind === "sink");
    showBadge(this.state, listed.state);
    say(this.reason, info.reason || listed.reason);
    this.reason.hidden = !this.reason.textContent;
    say(this.sql.firstElementChild, info.sql);
    this.sql.hidden = !info.sql;
    if (listed.state === "unreachable") return showFacts(this.facts, [["Record at", listed.node], ["Consumer", listed.consumer]]);
    showFacts(this.facts, [
      ["Consumer", `${listed.consumer}, ${listed.sink.kind}`],
      ["Rows delivered", count(sink?.rows ?? info.rows)],
      ["Strategy", listed.strategy],
      ["Objective", listed.objective],
      ["Longest delay", listed.max_delay_ms === null ? null : ms(listed.max_delay_ms)],
      ["Least throughput", listed.min_throughput_bytes_s === null ? null : perSecond(listed.min_throughput_bytes_s)],
      ["Planned in flight", explanation?.usage === undefined || explanation.usage === null ? null : `${bytes(explanation.usage)}, whole ${bytes(explanation.whole_usage)}`],
      ["Record at", listed.node],
      ["Submitted", `${moment(listed.submitted_ms)} UTC`],
    ]);
  }
}
