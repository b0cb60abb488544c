// The log of decisions: who came and went, what was placed where and why, which queries began and ended. The last ones, newest first.

import { badge, showBadge } from "./badge.js";
import { el, keep, say } from "./dom.js";
import { clock } from "./format.js";

const MOST = 200;
const KINDS = ["member", "placement", "query"];

export class LogView {
  constructor(parent, note) {
    Object.assign(this, { note, entries: [], number: 0, hiddenKinds: new Set(), reason: "" });
    const filter = el("fieldset", { class: "filter" }, el("legend", { class: "visually-hidden" }, "Kinds of entries"), ...KINDS.map((kind) => this.choice(kind)));
    this.list = el("ol");
    this.box = el("div", { role: "log", "aria-label": "Decisions, newest first", tabindex: 0 }, this.list);
    this.none = el("p", { class: "quiet" });
    parent.append(filter, this.box, this.none);
    this.draw();
  }

  choice(kind) {
    const box = el("input", { type: "checkbox", checked: true });
    box.addEventListener("change", () => {
      this.hiddenKinds[box.checked ? "delete" : "add"](kind);
      this.draw();
    });
    return el("label", {}, box, { member: "members", placement: "placements", query: "queries" }[kind]);
  }

  /** Add an entry, unless it is listed already, as after a lost connection. */
  add(entry) {
    const same = ({ at, kind, text }) => at === entry.at && kind === entry.kind && text === entry.text;
    if (this.entries.some(same)) return;
    this.number += 1;
    this.entries.unshift({ ...entry, number: this.number });
    this.entries.sort((a, b) => b.at - a.at || b.number - a.number);
    this.entries.length = Math.min(this.entries.length, MOST);
    this.draw();
  }

  broken(reason) {
    this.reason = reason;
    this.draw();
  }

  draw() {
    const shown = this.entries.filter((entry) => !this.hiddenKinds.has(entry.kind));
    keep(this.list, shown, (entry) => entry.number, () => el("li", {}, el("time"), badge(), el("span", { class: "text" })), (item, entry) => {
      const [time, mark, text] = item.children;
      time.dateTime = new Date(entry.at).toISOString();
      say(time, timeText(entry.at));
      showBadge(mark, entry.state);
      say(text, entry.text);
    });
    this.box.hidden = !shown.length;
    say(this.none, shown.length ? "" : "No events since the node's start.");
    say(this.note, this.reason || (this.entries.length === MOST ? `the last ${MOST}` : ""));
  }
}

/** The time of day, with the day if that is not today. */
function timeText(at) {
  const day = new Date(at).toLocaleDateString();
  return day === new Date().toLocaleDateString() ? clock(at) : `${day} ${clock(at)}`;
}
