// Decisions of the hosts and of the leader about the places of the chosen query's operators, the newest first.

import { el } from "./dom.js";
import { bytes, clock, partName } from "./format.js";
import { Table } from "./table.js";

const MOST = 30;

export class DecisionsView {
  constructor(model, parent) {
    this.model = model;
    this.box = el("div", { class: "why", hidden: true }, el("h3", {}, "Moves decided"));
    const columns = [
      { head: "Operator", first: true, text: (row) => partName(row.operator, this.model.query) },
      { head: "Decided", text: (row) => `${clock(row.at_ms)}${row.times > 1 ? `, ${row.times} times` : ""}` },
      { head: "At", text: (row) => row.node },
      { head: "By", text: (row) => (row.leader ? `leader ${row.leader}` : "host") },
      { head: "Verdict", text: (row) => (row.verdict === "moves" ? `moves to ${row.target}` : "stays") },
      { head: "Usage", numeric: true, text: (row) => usage(row) },
      { head: "Reason", wide: true, text: (row) => [row.reason, row.outcome].filter(Boolean).join("; ") },
    ];
    this.table = new Table(this.box, "Decisions about the places of operators", columns, (row) => `${row.operator} ${row.at_ms} ${row.leader} ${row.code}`);
    parent.append(this.box);
    model.on(["infos", "chosen"], () => this.draw());
    this.draw();
  }

  draw() {
    const operators = this.model.infos.get(this.model.query)?.operators ?? [];
    const decisions = operators.flatMap((operator) => operator.decisions ?? []);
    decisions.sort((a, b) => b.at_ms - a.at_ms);
    this.box.hidden = !decisions.length;
    this.table.show(decisions.slice(0, MOST));
  }
}

/** As it is, and with the operator at the other host. */
function usage(row) {
  if (row.usage === null) return "–";
  return row.usage_there === null ? bytes(row.usage) : `${bytes(row.usage)}, there ${bytes(row.usage_there)}`;
}
