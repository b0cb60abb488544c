// Details of one component of a plan: its SQL, its estimates and its measurements.

import { el, say } from "./dom.js";
import { backupText } from "./durability.js";
import { factList, showFacts } from "./facts.js";
import { bytes, count, moment, partName, perSecond, rows, share } from "./format.js";

export class PartView {
  constructor(parent) {
    this.title = el("h4");
    this.sql = el("pre", {}, el("code"));
    this.facts = factList();
    this.box = el("div", { class: "part", hidden: true }, this.title, this.sql, this.facts);
    parent.append(this.box);
  }

  /** `operator` is its host's description, if the part is an operator and that is known. */
  show(part, explanation, operator) {
    this.box.hidden = !part;
    if (!part) return;
    say(this.title, `${part.kind === "sink" ? "sink" : partName(part.id, explanation.query)} at ${part.node || "no node"}, ${part.state}`);
    this.sql.hidden = !part.fragment;
    say(this.sql.firstElementChild, part.fragment);
    const both = (word, text) => [
      [word, part.kind === "sink" || text(part.measured) === "–" ? null : text(part.measured)],
      [`${word}, planned`, text(part.estimated) === "–" ? null : text(part.estimated)],
    ];
    showFacts(this.facts, [
      ["Reason", part.reason],
      ["Reads", part.reads.map((id) => partName(id, explanation.query)).join(", ")],
      ["Result of", part.result_of],
      ["Rows so far", part.rows === null ? null : count(part.rows)],
      ...both("Rows", (flow) => rows(flow.rows_s)),
      ...both("Bytes", (flow) => perSecond(flow.bytes_s)),
      ...both("A row", (flow) => bytes(flow.row_bytes)),
      ...(part.kind === "operator" ? both("Rows passed", (flow) => share(flow.selectivity)) : []),
      ["Late rows", part.late === null ? null : count(part.late)],
      ["Watermark", part.watermark_ms === null ? null : `${moment(part.watermark_ms)} UTC`],
      ["Durability", operator?.durability],
      ["Backup", backupText(operator?.backup)],
      ["Epoch", operator?.epoch ? String(operator.epoch) : null],
      ["Planned with", part.remembered ? "measurements of an equal operator" : null],
    ]);
  }
}
