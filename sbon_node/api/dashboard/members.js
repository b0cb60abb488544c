// Everybody this node knows, as a table; a name chooses the node on the map.

import { badge, showBadge } from "./badge.js";
import { el, say, set } from "./dom.js";
import { count, load, ms } from "./format.js";
import { STATES } from "./glyphs.js";
import { Table } from "./table.js";

// Whether a member says that it can work, and the codes of its reasons; nothing of one that is not there.
function health({ ready, reasons = [] }) {
  if (ready === null || ready === undefined) return "";
  const word = ready ? "ready" : "not ready";
  return reasons.length ? `${word} (${reasons.join(", ")})` : word;
}

export class MembersView {
  constructor(model, parent, note) {
    Object.assign(this, { model, note });
    const columns = [
      { head: "Node", first: true, make: (member) => this.name(member), update: (button, member) => this.chosen(button, member) },
      { head: "State", make: badge, update: (element, member) => showBadge(element, member.state, STATES[member.state]?.path) },
      { head: "Health", text: (member) => health(member) },
      { head: "Round trip", numeric: true, text: (member) => this.rtt(member) },
      { head: "Load", numeric: true, text: (member) => load(member.load_per_core) },
      { head: "Height", numeric: true, text: (member) => ms(member.height_ms) },
      { head: "Cores", numeric: true, text: (member) => (member.cores ? count(member.cores) : "–") },
      { head: "Operators", numeric: true, text: (member) => String(this.parts?.get(member.name)?.operator.length ?? 0) },
      { head: "Version", numeric: true, text: (member) => member.version || "–" },
    ];
    this.table = new Table(parent, "Members", columns, (member) => member.name);
    model.on(["members", "status", "node", "flows"], () => this.draw());
    this.draw();
  }

  draw() {
    const { members } = this.model;
    this.parts = this.model.parts();
    this.table.show(members, "Waiting for the members.", (member) => (member.state === "alive" ? "" : "gone"));
    const alive = members.filter((member) => member.state === "alive").length;
    const unready = members.filter((member) => member.ready === false).length;
    say(this.note, members.length ? `${alive} of ${members.length} alive${unready ? `, ${unready} not ready` : ""}` : "");
  }

  name(member) {
    const button = el("button", { type: "button", class: "link" }, member.name);
    button.addEventListener("click", () => this.model.chooseNode(member.name));
    return button;
  }

  chosen(button, member) {
    set(button, { "aria-pressed": String(member.name === this.model.node) });
  }

  rtt(member) {
    if (member.name === this.model.status?.name) return "here";
    return member.rtt_ms === null ? "–" : `${member.measured ? "" : "≈ "}${ms(member.rtt_ms)}`;
  }
}
