// The chosen query in words: its text, its state, and what it was placed for.

import { badge, showBadge } from "./badge.js";
import { el, say } from "./dom.js";
import { factList, showFacts } from "./facts.js";
import { bytes, moment, ms, perSecond } from "./format.js";

export class QueryView {
  /** `details` is what there is to show of a query alone. */
  constructor(model, parent, title, note, details) {
    Object.assign(this, { model, title, note, details });
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
    this.details.hidden = !this.model.query;
    say(this.title, listed ? `Query ${listed.id}` : "Query");
    say(this.note, listed ? "" : this.model.query ? `there is no query ${this.model.query}, or not any longer` : (this.model.heard ? "none has been submitted" : ""));
    if (!listed) return;
    const info = this.model.infos.get(listed.id) ?? listed;
    const explanation = this.model.explanations.get(listed.id);
    showBadge(this.state, listed.state);
    say(this.reason, info.reason || listed.reason);
    this.reason.hidden = !this.reason.textContent;
    say(this.sql.firstElementChild, info.sql);
    this.sql.hidden = !info.sql;
    if (listed.state === "unreachable") return showFacts(this.facts, [["Record at", listed.node], ["Consumer", listed.consumer]]);
    showFacts(this.facts, [
      ["Consumer", `${listed.consumer}, ${listed.sink.kind}`],
      ["Strategy", listed.strategy],
      ["Objective", listed.objective],
      ["Longest delay", listed.max_delay_ms === null ? null : ms(listed.max_delay_ms)],
      ["Least throughput", listed.min_throughput_bytes_s === null ? null : perSecond(listed.min_throughput_bytes_s)],
      ["Planned network usage", explanation?.usage === undefined || explanation.usage === null ? null : `${bytes(explanation.usage)}, with all rows sent ${bytes(explanation.baseline_usage)}`],
      ["Durability", listed.durability],
      ["Loss of a node", info.survival?.text, true],
      ["Restart", info.restart || null, true],
      ["Record at", listed.node],
      ["Submitted", `${moment(listed.submitted_ms)} UTC`],
    ]);
  }
}
