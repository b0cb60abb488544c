// The queries of the cluster; one of them is shown closely.

import { badge, showBadge } from "./badge.js";
import { el, keep, say, set } from "./dom.js";
import { line } from "./format.js";

const MOST = 100;

export class QueriesView {
  constructor(model, parent, note) {
    Object.assign(this, { model, note });
    this.list = el("ul", { class: "choices", "aria-label": "Queries" });
    this.none = el("p", { class: "quiet" });
    parent.append(this.list, this.none);
    this.list.addEventListener("keydown", (event) => this.key(event));
    model.on(["queries", "chosen"], () => this.draw());
  }

  draw() {
    const { queries } = this.model;
    keep(this.list, queries.slice(0, MOST), (query) => query.id, (query) => this.item(query), (item, query) => {
      const button = item.firstElementChild;
      const [name, state, sql, where] = button.children;
      set(button, { "aria-pressed": String(query.id === this.model.query) });
      say(name, query.id);
      showBadge(state, query.state);
      say(sql, line(query.sql, 200));
      say(where, query.state === "unreachable" || query.stale ? query.reason : `to ${query.consumer} by ${query.strategy}`);
    });
    say(this.none, queries.length ? "" : "No query has been submitted.");
    const live = queries.filter((query) => query.state === "running").length;
    const cut = queries.length > MOST ? `, the first ${MOST} of ${queries.length} are shown` : "";
    say(this.note, queries.length ? `${live} running${cut}` : "");
  }

  item(query) {
    const button = el("button", { type: "button", class: "choice" }, el("b"), badge(), el("code"), el("span", { class: "quiet" }));
    button.addEventListener("click", () => this.model.chooseQuery(query.id));
    return el("li", { "data-query": query.id }, button);
  }

  /** Up and down go through the list, as Tab does. */
  key(event) {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    const buttons = [...this.list.querySelectorAll("button")];
    const to = step && buttons[buttons.indexOf(document.activeElement) + step];
    if (!to) return;
    event.preventDefault();
    to.focus();
  }
}
