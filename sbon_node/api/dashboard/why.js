// Why the chosen query's operators are where they are; and, on request, what else there would have been.

import { get, paths } from "./api.js";
import { el, keep, say } from "./dom.js";
import { bytes, line, ms, partName } from "./format.js";
import { Table } from "./table.js";

const MOST_CANDIDATES = 6;

export class WhyView {
  constructor(model, parent) {
    this.model = model;
    this.title = el("h3", {}, "Why there");
    this.reason = el("p", { class: "quiet" });
    const columns = [
      { head: "Operator", first: true, text: (row) => partName(row.operator, this.model.query) },
      { head: "Node", text: (row) => row.node },
      { head: "Reason", wide: true, text: (row) => row.reason },
    ];
    this.box = el("div", { class: "why" }, this.title, this.reason);
    this.table = new Table(this.box, "Reasons of the placement", columns, (row) => row.operator);
    this.button = el("button", { type: "button" }, "Compare the alternatives now");
    this.button.addEventListener("click", () => this.weigh());
    this.status = el("p", { class: "quiet", role: "status" });
    this.weighed = el("div", { class: "weighed" });
    this.box.append(this.button, this.status, this.weighed);
    parent.append(this.box);
    model.on(["infos"], () => this.draw());
    model.on(["chosen"], () => this.forget());
    this.draw();
  }

  forget() {
    this.asking?.abort();
    this.button.disabled = false;
    this.weighed.replaceChildren();
    say(this.status, "");
    this.draw();
  }

  draw() {
    const placement = this.model.infos.get(this.model.query)?.placement;
    this.box.hidden = !placement?.assignments.length;
    if (!placement) return;
    const delay = placement.delay_ms ? `, longest path ${ms(placement.delay_ms)}` : "";
    const why = placement.reason ? `: ${placement.reason}` : "";
    say(this.reason, `By ${placement.strategy}${why}. Predicted ${bytes(placement.usage)} of network usage${delay}.`);
    this.table.show(placement.assignments);
  }

  /** Every strategy is run on what the node knows now, which takes it some work: only when it is asked for. */
  async weigh() {
    const asking = (this.asking = new AbortController());
    this.button.disabled = true;
    say(this.status, "Comparing.");
    try {
      const answer = await get(paths.placement(this.model.query), asking.signal);
      this.show(answer);
      say(this.status, "Compared by the latencies known now.");
    } catch (error) {
      if (!asking.signal.aborted) say(this.status, error.message);
    } finally {
      if (this.asking === asking) this.button.disabled = false;
    }
  }

  show({ operators, strategies, query }) {
    this.weighed.replaceChildren();
    for (const operator of operators) {
      const box = el("details", { open: operators.length === 1 }, el("summary", {}, `${partName(operator.id, query)} at ${operator.node}, would be at ${operator.now} now`));
      const columns = [
        { head: "Candidate", first: true, text: (row) => row.node },
        { head: "Least cost", numeric: true, text: (row) => cost(row.measured) },
        { head: "By coordinates", numeric: true, text: (row) => cost(row.predicted) },
        { head: "Why not", wide: true, text: (row) => row.lost || "chosen" },
      ];
      new Table(box, `Candidates for ${operator.id}`, columns, (row) => row.node).show(operator.candidates.slice(0, MOST_CANDIDATES));
      this.weighed.append(box);
    }
    const box = el("details", {}, el("summary", {}, "What other strategies would do"));
    const columns = [
      { head: "Strategy", first: true, text: (row) => row.strategy },
      { head: "Network usage", numeric: true, text: (row) => bytes(row.usage) },
      { head: "Longest path", numeric: true, text: (row) => ms(row.delay_ms) },
      { head: "Remark", wide: true, text: (row) => line(row.refused || row.breaks || "", 200) },
    ];
    new Table(box, "Strategies", columns, (row) => row.strategy).show(strategies);
    this.weighed.append(box);
  }
}

/** By the query's objective, whose unit depends on it. */
function cost(value) {
  return value === null ? "–" : value.toPrecision(3).replace(/\.?0+$/, "");
}
